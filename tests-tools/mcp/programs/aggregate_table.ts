// Makes a table, fills it and aggregates it. The server answers with Python's way to write lists. (sqlite)
const rows = (text: string): Record<string, unknown>[] =>
  JSON.parse(text.replaceAll("'", '"').replaceAll("None", "null"));

await sqlite.create_table({ query: "CREATE TABLE concerts (city TEXT, year INTEGER, seats INTEGER)" });
const cities = ["Leipzig", "Vienna", "Prague"];
const values = Array.from({ length: 30 }, (_, at) => `('${cities[at % 3]}', ${2024 + (at % 2)}, ${100 + at})`);
const inserted = rows(await sqlite.write_query({ query: `INSERT INTO concerts VALUES ${values.join(", ")}` }));
const [byCity, oldest, columns] = await Promise.all([
  sqlite.read_query({ query: "SELECT city, COUNT(*) AS n, SUM(seats) AS seats FROM concerts GROUP BY city ORDER BY city" }),
  sqlite.read_query({ query: "SELECT MIN(year) AS year, NULL AS missing FROM concerts" }),
  sqlite.describe_table({ table_name: "concerts" }),
]);
return {
  inserted: inserted[0].affected_rows,
  byCity: rows(byCity),
  oldest: rows(oldest)[0],
  columns: rows(columns).map((column) => `${column.name} ${column.type}`),
};
