// Deletes what it has just written, which the server calls destructive: somebody is asked. (memory)
await memory.create_entities({ entities: [{ name: "Rumour", entityType: "story", observations: ["untrue"] }] });
try {
  const { message } = await memory.delete_entities({ entityNames: ["Rumour"] });
  const { entities } = await memory.search_nodes({ query: "untrue" });
  return { deleted: true, message, left: entities.length };
} catch (error) {
  const { entities } = await memory.search_nodes({ query: "untrue" });
  return { deleted: false, error: error.name, left: entities.length };
}
