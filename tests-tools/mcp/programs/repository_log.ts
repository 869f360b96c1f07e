// Logs a repository and says who changed what. (git)
const repo_path = "repo";
const [log, branches] = await Promise.all([
  git.git_log({ repo_path, max_count: 20 }),
  git.git_branch({ repo_path, branch_type: "local" }),
]);
const commits = [...log.matchAll(/Commit: (\w+)\nAuthor: (.*)\nDate: (\S+).*\nMessage: (.*)/g)].map(
  ([, sha, author, day, message]) => ({ sha, author, day, message }),
);
const shown = await Promise.all(commits.map(({ sha }) => git.git_show({ repo_path, revision: sha })));
const authors: Record<string, { commits: number; files: string[] }> = {};
commits.forEach(({ author }, at) => {
  const files = [...shown[at].matchAll(/^\+\+\+ (?:b\/)?(\S+)$/gm)].map(([, file]) => file);
  const entry = (authors[author] ??= { commits: 0, files: [] });
  entry.commits += 1;
  entry.files = [...new Set([...entry.files, ...files])].sort();
});
return {
  latest: `${commits[0].day}: ${commits[0].message}`,
  authors,
  branches: branches.split("\n").map((line) => line.replace("*", "").trim()).filter(Boolean),
};
