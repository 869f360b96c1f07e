// Writes the schemas in schemas.jsonl as types with each peer, and the tools in lists.json as declarations; prints times and
// texts as JSON.

import { readFileSync } from "node:fs";
import { register } from "node:module";

const script = (source) => `data:text/javascript,${encodeURIComponent(source)}`;
const classes = ["DurableObject", "RpcTarget", "WorkerEntrypoint"].map((name) => `export class ${name} {}`);
// codemode's entry also holds what runs in Workers only; that part is never called here.
register(script(`export const resolve = (specifier, context, next) => specifier === "cloudflare:workers"
  ? { url: ${JSON.stringify(script(classes.join("\n")))}, shortCircuit: true } : next(specifier, context);`));

const load = async (name) => {
  const start = performance.now();
  const module = await import(name);
  return { module, load_ms: performance.now() - start };
};
const { module: { compile }, load_ms: j2tsLoad } = await load("json-schema-to-typescript");
const { module: { generateTypesFromJsonSchema, jsonSchemaToType }, load_ms: codemodeLoad } = await load("@cloudflare/codemode");

const schemas = readFileSync(new URL("schemas.jsonl", import.meta.url), "utf8").split("\n").map((line) => JSON.parse(line));

const options = { format: false, unknownAny: true, bannerComment: "" };
const j2ts = {
  name: "json-schema-to-typescript",
  load_ms: j2tsLoad,
  passes: 5,
  async pass(texts) {
    for (const schema of schemas) texts.push(await compile(schema, "Root", options).catch(() => null));
  },
  // The others export nothing.
  comparable: (text) => text.replace(/^export /gm, ""),
};
const codemode = {
  name: "@cloudflare/codemode",
  load_ms: codemodeLoad,
  passes: 200,
  // Not async: a pass of a few milliseconds shall not wait for promises.
  pass(texts) {
    for (const schema of schemas) {
      try {
        texts.push(jsonSchemaToType(schema, "Root"));
      } catch {
        texts.push(null);
      }
    }
  },
  comparable: (text) => text,
};

// The first pass is the warm-up, and worth knowing: it is what a process pays that writes each type once.
async function measure({ name, load_ms, passes, pass, comparable }) {
  const times = [];
  let texts;
  for (let i = 0; i <= passes; i++) {
    texts = [];
    const start = performance.now();
    const pending = pass(texts);
    if (pending) await pending;
    times.push(performance.now() - start);
  }
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url), "utf8"));
  const [first, ...warm] = times;
  return {
    name: `${name} ${version}`,
    load_ms,
    first_ms: first,
    best_ms: Math.min(...warm),
    texts: texts.map((text) => text === null ? null : comparable(text)),
  };
}

// json-schema-to-typescript declares no functions: its types alone stand for it.
const typesOf = async (tool) => {
  const schemas = [tool.inputSchema, tool.outputSchema].filter((schema) => schema !== undefined);
  const texts = schemas.map((schema) => compile(structuredClone(schema), "Args", options).catch(() => ""));
  return (await Promise.all(texts)).map(j2ts.comparable).join("");
};
const declarations = {};
for (const [name, tools] of Object.entries(JSON.parse(readFileSync(new URL("lists.json", import.meta.url), "utf8")))) {
  declarations[name] = {
    codemode: generateTypesFromJsonSchema(Object.fromEntries(tools.map((tool) => [tool.name, tool]))),
    types: (await Promise.all(tools.map(typesOf))).join(""),
  };
}

process.stdout.write(JSON.stringify({ written: [await measure(j2ts), await measure(codemode)], declarations }));
