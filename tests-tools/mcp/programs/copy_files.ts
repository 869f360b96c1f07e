// Copies the notes into a folder of their own and summarises them. (filesystem)
const listing = await filesystem.list_directory({ path: "." });
const notes = listing.content
  .split("\n")
  .map((line) => line.replace("[FILE] ", ""))
  .filter((name) => name.endsWith(".md"))
  .sort();
await filesystem.create_directory({ path: "copies" });

const summaries = await Promise.all(
  notes.map(async (name) => {
    const { content } = await filesystem.read_text_file({ path: name });
    await filesystem.write_file({ path: `copies/${name}`, content });
    const [title, ...body] = content.split("\n").filter((line) => line.length > 0);
    return { name, title: title.replace("# ", ""), lines: body.length, words: body.join(" ").split(" ").length };
  }),
);

const tree: { name: string; children?: { name: string }[] }[] = JSON.parse(
  (await filesystem.directory_tree({ path: "." })).content,
);
const copies = tree.find((entry) => entry.name === "copies")?.children?.map((entry) => entry.name).sort();
return { summaries, words: summaries.reduce((sum, note) => sum + note.words, 0), copies };
