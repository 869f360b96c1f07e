import { h } from "./elements.js";
import { entryText, grouped, pretty, short, times } from "./format.js";
import { sourceCode } from "./source_code.js";
import { longText } from "./program_view.js";

const TITLES = { client: "client", model: "model", program: "program", lost_calls: "calls of a lost program", search: "search for tools" };
const CALLS_SHOWN_MAX = 50;

// A call of the model. One that holds a program is shown as source code.
const callLine = (name, args) => {
  let value = args;
  try {
    value = typeof args === "string" ? JSON.parse(args) : args;
  } catch {
    // The model wrote something else than JSON.
  }
  if (typeof value?.code === "string") return h("div", { class: "history-program" }, h("b", {}, name), sourceCode(value.code));
  return h("p", { class: "history-call" }, h("b", {}, name), " ", h("span", {}, typeof args === "string" ? args : JSON.stringify(args)));
};

// One entry of a history on any wire.
const entry = (value) => {
  const who = value.role ?? value.type ?? "entry";
  const parts = [];
  const text = entryText(value);
  if (text) parts.push(longText(who === "tool" ? pretty(text) : text));
  for (const call of value.tool_calls ?? []) parts.push(callLine(call.function?.name ?? call.custom?.name, call.function?.arguments ?? call.custom?.input));
  if (value.type === "function_call") parts.push(callLine(value.name, value.arguments));
  if (text === undefined && Array.isArray(value.content)) {
    for (const part of value.content) {
      if (part.type === "text") parts.push(longText(part.text));
      else if (part.type === "tool_use") parts.push(callLine(part.name, part.input));
      else if (part.type === "tool_result") parts.push(longText(pretty(entryText(part) ?? part.content)));
      else parts.push(longText(pretty(part)));
    }
  }
  if (!parts.length) parts.push(longText(pretty(value.output ?? value)));
  return h("div", { class: `entry by-${who}` }, h("span", { class: "who" }, who), h("div", {}, parts));
};

const column = (entries, none) => {
  const shown = entries.slice(0, CALLS_SHOWN_MAX).map(entry);
  if (entries.length > CALLS_SHOWN_MAX) {
    const more = h("button", { type: "button" }, `Show ${grouped(entries.length - CALLS_SHOWN_MAX)} more`);
    more.addEventListener("click", () => more.replaceWith(...entries.slice(CALLS_SHOWN_MAX).map(entry)));
    shown.push(more);
  }
  return h("div", { class: "history-column" }, shown.length ? shown : h("p", { class: "dim" }, none));
};

// What the client has in its history, beside what the model reads.
export const histories = (conversation, onProgram) =>
  h(
    "div",
    { class: "histories" },
    h("div", { class: "history-heads" }, h("h3", {}, "The client sees"), h("h3", {}, "The model sees")),
    h("details", { class: "history-item" }, h("summary", {}, "Requests without their histories: tools, instructions, parameters"), h("div", { class: "history-pair" }, h("div", { class: "history-column" }, longText(pretty(conversation.request))), h("div", { class: "history-column" }, longText(pretty(conversation.model_request))))),
    conversation.items.map((item) =>
      h(
        "section",
        { class: `history-item kind-${item.kind}` },
        h("h4", {}, item.block === undefined ? TITLES[item.kind] : h("button", { type: "button", class: "link", onclick: () => onProgram(item.block) }, `program ${conversation.blocks[item.block]?.number ?? ""}`)),
        h(
          "div",
          { class: "history-pair" },
          column(conversation.history.slice(...item.client), "nothing: the gateway answered by itself"),
          column(conversation.model_history.slice(...item.model), "nothing yet: the program has not finished"),
        ),
      ),
    ),
  );

// Tokens that the model reads, with code mode and without.
export const contextBars = ({ code, classic }) => {
  const most = Math.max(code.tokens, classic.tokens, 1);
  const bar = (name, calls, className) => {
    const fillBar = h("span", { class: `context-bar ${className}` });
    fillBar.style.width = `${(calls.tokens / most) * 100}%`;
    return h("div", { class: "context-row" }, h("span", { class: "context-name" }, name), h("span", { class: "context-track" }, fillBar), h("span", { class: "context-figure" }, `${short(calls.tokens)} tokens in ${grouped(calls.model_calls)} model ${calls.model_calls === 1 ? "call" : "calls"}`));
  };
  return h(
    "figure",
    { class: "context", title: "Estimated from sizes: what the model has read so far, in all its calls together" },
    bar("code mode", code, "code-mode"),
    bar("classic", classic, "classic"),
    h("figcaption", {}, classic.tokens >= code.tokens ? `classic tool calling reads about ${times(classic.tokens, code.tokens)} as much` : `classic tool calling reads less here: ${times(classic.tokens, code.tokens)}`),
  );
};
