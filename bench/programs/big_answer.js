const rows = await weather({});
const kept = rows.filter((row) => row.active && row.amount > 1000);
kept.sort((a, b) => b.amount - a.amount || a.id - b.id);
return kept.slice(0, 10).map(({ id, amount }) => ({ id, amount }));
