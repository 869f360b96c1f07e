import { announce, button, fill, h } from "./elements.js";
import { entryText, plural, preview } from "./format.js";
import { KeyNeeded, embedded, explain, isServed, recordedConversation, setKey } from "./gateway.js";
import { ProgramView, statusChip, statusOf } from "./program_view.js";
import { contextBars, histories } from "./histories.js";
import { LiveList, requestTimes } from "./live.js";

const EXAMPLE = {
  program: { code: 'const prices = await Promise.all([1, 2, 3].map((item) => price({ item })));\nconsole.log("asked for", prices.length);\nreturn prices.reduce((sum, { eur }) => sum + eur, 0);' },
  tools: [{ name: "price", inputSchema: { type: "object", properties: { item: { type: "number" } }, required: ["item"] } }],
  journal: [
    { call: 0, tool: "price", args: { item: 1 }, ok: { eur: 12 } },
    { call: 2, tool: "price", args: { item: 3 }, ok: { eur: 5 } },
    { call: 1, tool: "price", args: { item: 2 }, ok: { eur: 8 } },
  ],
};

const state = { conversations: [], conversation: 0, block: 0, tab: "programs", whatIf: null, recorded: null, requests: null };

const titleOf = (conversation) => {
  const user = conversation.history.find((entry) => entry.role === "user");
  const text = user && entryText(user);
  return text ? preview(text, 70) : conversation.wire ? "A conversation" : "A step request";
};

const sidebar = h("nav", { class: "sidebar", "aria-label": "Conversations" });
const main = h("main", { id: "main", tabindex: -1 });

const openRecorded = async (id) => {
  try {
    const explanation = await recordedConversation(id);
    const isSame = state.recorded === id;
    Object.assign(state, { recorded: id, requests: explanation.requests });
    const { conversation, block, tab } = state;
    load(explanation, { keepsFocus: true });
    if (isSame) go(conversation, Math.min(block, state.conversations[0].blocks.length - 1), tab);
  } catch (error) {
    problem.hidden = false;
    problem.textContent = error.message;
  }
};
// While somebody tries something out, what is on the page stays.
const live = new LiveList({ onOpen: openRecorded, onChange: (id) => !state.whatIf && !document.querySelector(".editor") && openRecorded(id) });

const showSidebar = () => {
  const conversationEntry = (conversation, at) => {
    const isCurrent = at === state.conversation;
    const blocks = conversation.blocks.map((block, blockAt) =>
      button([h("span", { class: `dot status-${statusOf(block)}` }), `program ${block.number}`], () => go(at, blockAt), {
        class: "block-link",
        "aria-current": isCurrent && blockAt === state.block && state.tab === "programs" ? "true" : undefined,
      }),
    );
    return h(
      "li",
      { class: isCurrent ? "current" : undefined },
      button([h("span", { class: "conversation-title" }, titleOf(conversation)), h("span", { class: "conversation-meta" }, [conversation.line && `line ${conversation.line}`, conversation.wire ?? "step", conversation.model, conversation.problem ? "not readable" : plural(conversation.blocks.length, "program")].filter(Boolean).join(" · "))], () => go(at, 0), { class: "conversation-link", "aria-current": isCurrent ? "true" : undefined }),
      isCurrent && blocks.length > 1 && h("div", { class: "block-links" }, blocks),
    );
  };
  const isLive = !live.element.hidden;
  const opened = h("ul", {}, state.conversations.map(conversationEntry));
  fill(sidebar, h("h2", { class: "visually-hidden" }, "Conversations"), opened, live.element);
  sidebar.hidden = state.conversations.length === 0 && !isLive;
};

const go = (conversation, block, tab = "programs") => {
  Object.assign(state, { conversation, block, tab, whatIf: null });
  show();
};

const tabs = (conversation) => {
  const tab = (name, label) =>
    button(label, () => go(state.conversation, state.block, name), { role: "tab", id: `tab-${name}`, "aria-selected": state.tab === name ? "true" : "false", class: "tab" });
  return h("div", { class: "tabs", role: "tablist" }, tab("programs", conversation.blocks.length > 1 ? `Program ${conversation.blocks[state.block]?.number ?? ""}` : "Program"), conversation.wire && tab("histories", "Client and model"));
};

const conversationHead = (conversation) =>
  h(
    "header",
    { class: "conversation-head" },
    h("h1", {}, titleOf(conversation)),
    h("p", { class: "chips" }, [conversation.wire ?? "step request", conversation.model, conversation.wire && `${conversation.mode} mode`].filter(Boolean).map((text) => h("span", { class: "chip" }, text))),
    conversation.notes.map((note) => h("p", { class: "note" }, note)),
    conversation.unopened.map(({ id, reason }) => h("p", { class: "problem", role: "alert" }, h("code", {}, id), ` could not be opened: ${reason}.`)),
    conversation.context && contextBars(conversation.context),
    state.requests && requestTimes(state.requests),
  );

const program = (conversation) => {
  const block = conversation.blocks[state.block];
  if (!block) return h("p", { class: "empty" }, "There is no program in this conversation.");
  state.view = new ProgramView({
    conversation,
    block: state.whatIf ?? block,
    isWhatIf: state.whatIf !== null,
    onWhatIf: (changed) => {
      state.whatIf = changed;
      show();
    },
    onBack: () => go(state.conversation, state.block),
  });
  return state.view.element;
};

const show = () => {
  showSidebar();
  const conversation = state.conversations[state.conversation];
  state.view = null;
  if (!conversation) return fill(main, welcome());
  if (conversation.problem) {
    return fill(main, h("h1", {}, "This cannot be explained"), h("p", { class: "problem", role: "alert" }, conversation.line ? `Line ${conversation.line} ${conversation.problem}.` : `The text ${conversation.problem}.`), welcome());
  }
  return fill(main, conversationHead(conversation), tabs(conversation), state.tab === "histories" ? histories(conversation, (block) => go(state.conversation, block)) : program(conversation));
};

const problem = h("p", { class: "problem", role: "alert", hidden: true });
const keyField = h("form", { class: "key-field", hidden: true }, h("label", {}, "Key of a client ", h("input", { type: "password", autocomplete: "off", name: "key" })), h("button", { type: "submit" }, "Use it"));
let lastText = "";
keyField.addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(keyField.elements.key.value);
  open(lastText);
});

const open = async (text) => {
  lastText = text;
  Object.assign(state, { recorded: null, requests: null });
  live.leave();
  problem.hidden = true;
  keyField.hidden = true;
  document.body.classList.add("busy");
  try {
    load(await explain(text));
  } catch (error) {
    problem.hidden = false;
    problem.textContent = error.message;
    keyField.hidden = !(error instanceof KeyNeeded);
    if (state.conversations.length === 0) fill(main, welcome());
  } finally {
    document.body.classList.remove("busy");
  }
};

const load = (explanation, { keepsFocus = false } = {}) => {
  state.conversations = explanation.conversations;
  go(0, 0);
  announce(`${plural(state.conversations.length, "conversation")} opened.`);
  if (!keepsFocus) main.focus({ preventScroll: true });
};

const welcome = () => {
  if (!isServed) return null;
  const area = h("textarea", { id: "paste", rows: 8, spellcheck: "false", placeholder: '{"model": "…", "messages": [ … ], "tools": [ … ]}' });
  const file = h("input", { type: "file", class: "visually-hidden", id: "file", onchange: () => openFile(file.files[0]) });
  return h(
    "section",
    { class: "welcome" },
    h("h1", {}, "See what a program did"),
    h("p", { class: "lead" }, "Drop or paste a saved request of any wire, a list of messages, or one request per line. Its programs are run again from their start, answer by answer, here in your gateway. Nothing is kept, and no tool is called."),
    h("label", { class: "visually-hidden", for: "paste" }, "Request or transcript"),
    area,
    h("div", { class: "toolbar" }, button("Explain it", () => open(area.value), { class: "primary", id: "explain" }), file, button("Choose a file…", () => file.click()), button("Try an example", () => open(JSON.stringify(EXAMPLE)), { id: "example" })),
  );
};

const openFile = async (file) => file && open(await file.text());

const isTyping = (target) => target instanceof HTMLTextAreaElement || (target instanceof HTMLInputElement && target.type !== "range");

const keys = (event) => {
  if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
  const conversation = state.conversations[state.conversation];
  const blocks = conversation?.blocks.length ?? 0;
  if (event.key === "]" && state.block + 1 < blocks) go(state.conversation, state.block + 1);
  else if (event.key === "[" && state.block > 0) go(state.conversation, state.block - 1);
  else if (event.key === "}" && state.conversation + 1 < state.conversations.length) go(state.conversation + 1, 0);
  else if (event.key === "{" && state.conversation > 0) go(state.conversation - 1, 0);
  else if (event.key === "," && state.view) state.view.show(Math.max(0, state.view.at - 1));
  else if (event.key === "." && state.view) state.view.show(Math.min(state.view.points.length - 1, state.view.at + 1));
  else if (event.key === "e" && state.view && isServed && !state.whatIf) state.view.edit();
  else if (event.key === "m" && conversation?.wire) go(state.conversation, state.block, state.tab === "histories" ? "programs" : "histories");
  else return;
  event.preventDefault();
};

const start = () => {
  const help = h("details", { class: "help" }, h("summary", {}, "Keys"), h("dl", {}, [["[ ]", "previous, next program"], ["{ }", "previous, next conversation"], [", .", "one answer back, on"], ["↑ ↓", "previous, next call, in the list of calls"], ["e", "edit the program"], ["m", "what client and model see"]].map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
  const header = h(
    "header",
    { class: "top" },
    h("a", { class: "skip", href: "#main" }, "Skip to the program"),
    h("span", { class: "brand" }, h("span", { class: "mark", "aria-hidden": "true" }, "D.C."), " Da Capo ", h("span", { class: "dim" }, "inspector")),
    isServed && button("Open another", () => { Object.assign(state, { conversations: [], recorded: null, requests: null }); live.leave(); show(); document.getElementById("paste")?.focus(); }),
    help,
  );
  document.getElementById("app").append(header, live.banner, problem, keyField, h("div", { class: "layout" }, sidebar, main), h("div", { id: "announcements", class: "visually-hidden", "aria-live": "polite" }));
  document.addEventListener("keydown", keys);
  if (isServed) {
    document.addEventListener("paste", (event) => {
      if (!isTyping(event.target)) open(event.clipboardData.getData("text"));
    });
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      const file = event.dataTransfer.files[0];
      if (file) openFile(file);
      else open(event.dataTransfer.getData("text"));
    });
  }
  if (embedded) load(embedded);
  else show();
  if (isServed) {
    live.start().then(showSidebar, (error) => {
      problem.hidden = false;
      problem.textContent = error.message;
    });
  }
};

start();
