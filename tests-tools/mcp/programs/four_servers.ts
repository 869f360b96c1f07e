// Orders from a file go into a table, the totals into a graph, with the local hour of each city.
// (filesystem, sqlite, time, memory)
const { content } = await filesystem.read_text_file({ path: "orders.csv" });
const [, ...lines] = content.trim().split("\n");
const orders = lines.map((line) => line.split(","));
const zones = new Map(orders.map(([city, zone]) => [city, zone]));

await sqlite.create_table({ query: "CREATE TABLE orders (city TEXT, item TEXT, amount INTEGER)" });
const values = orders.map(([city, , item, amount]) => `('${city}', '${item}', ${amount})`);
await sqlite.write_query({ query: `INSERT INTO orders VALUES ${values.join(", ")}` });

const [totals, ...clocks] = await Promise.all([
  sqlite.read_query({ query: "SELECT city, SUM(amount) AS total FROM orders GROUP BY city ORDER BY total DESC" }),
  ...[...zones.values()].map((target_timezone) =>
    time.convert_time({ source_timezone: "UTC", time: "08:00", target_timezone }),
  ),
]);
const hours = new Map([...zones.keys()].map((city, at) => [city, clocks[at].target.datetime.slice(11, 16)]));
const report: { city: string; total: number; delivered: string }[] = JSON.parse(totals.replaceAll("'", '"')).map(
  ({ city, total }) => ({ city, total, delivered: hours.get(city) }),
);

await memory.create_entities({
  entities: report.map(({ city, total, delivered }) => ({
    name: city,
    entityType: "market",
    observations: [`ordered ${total}`, `delivered at ${delivered}`],
  })),
});
const { entities } = await memory.open_nodes({ names: report.map(({ city }) => city) });
return { report, remembered: entities.map(({ name, observations }) => `${name} ${observations.join(", ")}`).sort() };
