// Builds a graph of people and what they play, and asks it who plays together. (memory)
const players = { Clara: "piano", Robert: "cello", Johannes: "piano" };
await memory.create_entities({
  entities: [
    ...Object.keys(players).map((name) => ({ name, entityType: "person", observations: ["plays on Fridays"] })),
    ...[...new Set(Object.values(players))].map((name) => ({ name, entityType: "instrument", observations: [] })),
  ],
});
await memory.create_relations({
  relations: Object.entries(players).map(([from, to]) => ({ from, to, relationType: "plays" })),
});
const added = await memory.add_observations({
  observations: [{ entityName: "Clara", contents: ["tours in spring", "plays on Fridays"] }],
});

const [graph, touring] = await Promise.all([memory.read_graph({}), memory.search_nodes({ query: "spring" })]);
const together: Record<string, string[]> = {};
for (const { from, to } of graph.relations.filter((relation) => relation.relationType === "plays")) {
  (together[to] ??= []).push(from);
}
return {
  people: graph.entities.filter((entity) => entity.entityType === "person").length,
  added: added.results[0].addedObservations,
  together,
  touring: touring.entities.map((entity) => entity.name),
};
