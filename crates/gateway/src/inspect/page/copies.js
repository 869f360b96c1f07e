import { entryText, hasAnswer } from "./format.js";

const answerOf = (call) => (call.ok !== undefined ? { ok: call.ok } : { error: call.error });

// A program's answers as a journal, in the order in which they settled.
export const journalOf = (block, answers = Infinity) =>
  block.calls
    .filter((call) => hasAnswer(call) && call.settled !== null && call.settled <= answers)
    .sort((one, other) => one.settled - other.settled)
    .map((call) => ({ call: call.call, tool: call.tool, ...(call.args === null ? {} : { args: call.args }), ...answerOf(call) }));

// Answers to calls whose arguments are known, for a program that makes them again.
export const recordedOf = (block) =>
  block.calls
    .filter((call) => hasAnswer(call) && call.args !== null)
    .map((call) => ({ tool: call.tool, args: call.args, ...answerOf(call) }));

// The request that `dacapo step` takes.
export const stepRequest = (conversation, block, answers = Infinity) => ({
  program: block.program,
  tools: conversation.tools,
  journal: journalOf(block, answers),
  ...(block.reuse.length ? { reuse: block.reuse } : {}),
  limits: block.limits,
});

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export const asCurl = (request) =>
  `curl ${location.protocol.startsWith("http") ? location.origin : "http://127.0.0.1:8787"}/v1/step \\\n  -H 'content-type: application/json' \\\n  -d ${quoted(JSON.stringify(request))}`;

const parameters = (tool) => {
  const { properties = {}, required = [] } = tool.inputSchema ?? {};
  return Object.keys(properties).map((name) => (required.includes(name) ? name : `${name}?`));
};

const multiline = (code) => `"""\n${code.replaceAll("\\", "\\\\").replaceAll('"""', '\\"\\"\\"')}"""`;
const oneLine = (value) => (typeof value === "string" ? value : JSON.stringify(value)).replace(/\s*\n\s*/g, " ");

// The conversation as a scenario: a scripted model writes the same programs, and the client gives the same answers.
export const asScenario = (conversation) => {
  const programs = conversation.blocks.flatMap((block) => [...block.attempts, block].map(({ program }) => program.code));
  const users = conversation.history.filter((entry) => entry.role === "user").map((entry) => entryText(entry)).filter(Boolean);
  const turns = programs.map((code, step) => `[[turn]]\nwhen = { step = ${step} }\nprogram = ${multiline(code)}\n`);
  const steps = [`user ${oneLine(users[0] ?? "Go.")}`, "send"];
  for (const block of conversation.blocks) {
    const rounds = new Map();
    for (const call of block.calls) rounds.set(call.round, [...(rounds.get(call.round) ?? []), call]);
    for (const calls of rounds.values()) {
      for (const [at, call] of calls.entries()) {
        if (hasAnswer(call)) steps.push(`answer ${at + 1} ${oneLine(call.ok ?? call.error.message)}`);
      }
      steps.push("send");
    }
  }
  const fence = "```";
  return [
    "# A conversation from the inspector",
    "",
    "The transcript is written by `DACAPO_UPDATE=1 cargo test -p dacapo-gateway`.",
    "",
    `${fence}tools`,
    ...conversation.tools.map((tool) => `${tool.name}(${parameters(tool).join(", ")})`),
    fence,
    "",
    `${fence}toml`,
    ...turns,
    `[[turn]]\ntext = "{{result}}"`,
    fence,
    "",
    `${fence}steps`,
    ...steps,
    fence,
    "",
    `${fence}transcript`,
    fence,
    "",
  ].join("\n");
};
