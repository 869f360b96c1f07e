// What the TypeScript clients have in common; the arguments and the report are those of shared.py.
import { existsSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";

export function readArguments() {
  const args = { era: "modern", call: [] };
  const given = process.argv.slice(2);
  while (given.length > 0) {
    const flag = given.shift();
    if (flag === "--stdio") args.stdio = given.splice(0);
    else if (flag === "--call") args.call.push(given.splice(0, 2));
    else if (["--era", "--query", "--code", "--elicit", "--pause", "--http"].includes(flag)) args[flag.slice(2)] = given.shift();
    else throw new Error(`${flag} is unknown`);
  }
  if (!args.http && !args.stdio) throw new Error("give --http URL or --stdio COMMAND");
  return args;
}

/** What a person in a hurry fills in. */
function fieldValue(schema) {
  if ("default" in schema) return schema.default;
  if ("enum" in schema) return schema.enum[0];
  if ("oneOf" in schema) return schema.oneOf[0].const;
  if (schema.type === "integer" || schema.type === "number") return schema.minimum ?? 1;
  return { boolean: true, array: [] }[schema.type] ?? "filled in";
}

function answerTo(requestedSchema) {
  const properties = Object.entries(requestedSchema?.properties ?? {});
  return Object.fromEntries(properties.map(([name, schema]) => [name, fieldValue(schema)]));
}

export class Conversation {
  progress = [];
  elicited = [];
  constructor(args) {
    this.args = args;
  }

  onElicitation = async (request) => {
    this.elicited.push(request.params.message);
    await this.pause();
    if (this.args.elicit === "decline") return { action: "decline" };
    return { action: "accept", content: answerTo(request.params.requestedSchema) };
  };

  async pause() {
    if (this.args.pause === undefined) return;
    writeFileSync(`${this.args.pause}/asked`, "");
    while (!existsSync(`${this.args.pause}/go`)) await setTimeout(20);
  }

  /** `call(tool, args, options)` answers with a result of the SDK; its failures are MCP errors. */
  async have(call) {
    const answer = async (tool, args) => {
      try {
        return await call(tool, args, { onprogress: (progress) => this.progress.push(progress) });
      } catch (error) {
        if (error.code === undefined) throw error;
        return { error: { code: error.code, message: error.message } };
      }
    };
    const report = {};
    if (this.args.query !== undefined) report.search = await answer("search", { query: this.args.query });
    if (this.args.code !== undefined) report.execute = await answer("execute", { code: this.args.code });
    report.calls = [];
    for (const [tool, args] of this.args.call) report.calls.push(await answer(tool, JSON.parse(args)));
    return { ...report, progress: this.progress, elicited: this.elicited };
  }
}

export function tell(report) {
  process.stdout.write(`${JSON.stringify(report)}\n`);
}
