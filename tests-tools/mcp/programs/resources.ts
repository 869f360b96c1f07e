// Resources: lists, templates, text, what is not text, and one that is not there. (everything, sqlite)
const [{ resources }, { resourceTemplates }, memo] = await Promise.all([
  everything.list_resources(),
  everything.list_resource_templates({}),
  sqlite.read_resource({ uri: "memo://insights" }),
]);
const { uri } = resources.find(({ name }) => name === "features.md");
const [document, blob] = await Promise.all([
  everything.read_resource({ uri }),
  everything.read_resource({ uri: resourceTemplates.at(-1).uriTemplate.replace("{resourceId}", "7") }),
]);
let refusal: string;
try {
  await everything.read_resource({ uri: "demo://nothing" });
} catch (error) {
  refusal = error.name;
}
return {
  documents: resources.length,
  templates: resourceTemplates.map(({ uriTemplate }) => uriTemplate),
  document: document.contents[0].text.split("\n")[0],
  blob: blob.contents[0],
  memo: memo.contents[0].text,
  refusal,
};
