// Fails at its second call: the server refuses the path. (filesystem)
const { content } = await filesystem.read_text_file({ path: "tea.md" });
const secrets = await filesystem.read_text_file({ path: "/etc/hostname" });
return content.length + secrets.content.length;
