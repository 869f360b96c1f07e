// Revenue of the best customers since January, in dollars.
const orders = [];
for (let page = 1; page <= 2; page++) {
  const batch = await list_orders({ page, status: "paid", since: "2026-01-01" });
  orders.push(...batch.orders);
}
const totals = new Map<string, number>();
for (const { customer_id, total } of orders) {
  totals.set(customer_id, (totals.get(customer_id) ?? 0) + total);
}
const best = [...totals.entries()].sort((a, b) => b[1] - a[1]).slice(0, 3);

const customers = await Promise.all(best.map(([id]) => get_customer({ customer_id: id })));
const { rate } = await get_exchange_rate({ from: "EUR", to: "USD" });
const rows = best.map(([id, total], index) => ({
  id,
  name: customers[index].name,
  tier: customers[index].tier ?? "basic",
  revenue: Math.round(total * rate * 100) / 100,
}));

const missing = rows.filter((row) => !row.name).map((row) => row.id);
if (missing.length > 0) console.warn(`no name: ${missing.join(", ")}`);
const { url } = await create_report({ title: "Best customers", rows, folder: "sales" });
return { url, orders: orders.length, best: rows[0] };
