import { h } from "./elements.js";

const TOKENS =
  /(?<comment>\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|(?<string>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|`(?:\\[\s\S]|[^`\\])*`?)|(?<number>\b\d[\d_.]*(?:e[+-]?\d+)?n?\b)|(?<word>[A-Za-z_$][\w$]*)/g;
const KEYWORDS = new Set(
  "async await break case catch class const continue default delete do else export extends finally for from function if import in instanceof interface let new null of return static super switch this throw true false try type typeof undefined var void while yield".split(" "),
);

// The function that a tool is called by in programs.
export const functionName = (tool) => tool.split(".").at(-1).replace(/[^\w$]/g, "_");

// A program as numbered lines, with calls of tools and the failing place marked.
export const sourceCode = (code, { tools = new Set(), failure } = {}) => {
  const lines = [[]];
  const add = (text, kind) => {
    for (const [at, part] of text.split("\n").entries()) {
      if (at > 0) lines.push([]);
      if (part) lines.at(-1).push(kind ? h("span", { class: `token-${kind}` }, part) : part);
    }
  };
  let end = 0;
  for (const match of code.matchAll(TOKENS)) {
    add(code.slice(end, match.index));
    const { word } = match.groups;
    let kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    if (word) kind = KEYWORDS.has(word) ? "keyword" : tools.has(word) ? "tool" : undefined;
    add(match[0], kind);
    end = match.index + match[0].length;
  }
  add(code.slice(end));
  return h(
    "ol",
    { class: "code", tabindex: 0, "aria-label": "Program" },
    lines.map((line, at) => {
      const isFailing = failure?.line === at + 1;
      const marked = isFailing ? "failing" : line.some((part) => part.className === "token-tool") ? "calling" : undefined;
      return h(
        "li",
        { class: marked, "data-line": at + 1 },
        h("code", {}, line.length ? line : " "),
        isFailing && h("span", { class: "failure-note", role: "note" }, `${failure.name}: ${failure.message}`),
      );
    }),
  );
};
