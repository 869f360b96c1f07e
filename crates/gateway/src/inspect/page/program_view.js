import { announce, button, fill, h } from "./elements.js";
import { bytes, grouped, hasAnswer, plural, pretty, preview, short } from "./format.js";
import { functionName, sourceCode } from "./source_code.js";
import { isServed, whatIf } from "./gateway.js";
import { asCurl, asScenario, journalOf, recordedOf, stepRequest } from "./copies.js";
import { CallList, statusAt } from "./call_list.js";

const SHOWN_CHARS_MAX = 20_000;

const REPLAY_WORDS = {
  exact: "replayed exactly",
  diverged: "diverged",
  edited: "history was edited",
  trimmed: "history was trimmed",
  orphaned: "cannot go on",
  stopped: "stopped",
  interrupted: "interrupted",
};

export const failureOf = (block) => block.end?.result?.error;

export const statusOf = (block) => {
  if (block.replay.status !== "exact" && block.replay.status !== "stopped") return "differs";
  if (block.end?.status === "paused") return "waiting";
  return failureOf(block) ? "failed" : "success";
};

const STATUS_WORDS = { differs: "differs", waiting: "waits for answers", failed: "failed", success: "success" };
export const statusChip = (block) => {
  const status = statusOf(block);
  return h("span", { class: `chip status-${status}` }, status === "differs" ? REPLAY_WORDS[block.replay.status] : STATUS_WORDS[status]);
};

// A long text, with all of it on demand.
export const longText = (text, className = "") => {
  const element = h("pre", { class: `text ${className}`, tabindex: 0 }, text.slice(0, SHOWN_CHARS_MAX));
  if (text.length <= SHOWN_CHARS_MAX) return element;
  const more = button(`Show all ${grouped(text.length)} characters`, () => {
    element.textContent = text;
    more.remove();
  });
  return h("div", {}, element, more);
};

const tile = (label, value, title) => h("div", { class: "tile", title }, h("dt", {}, label), h("dd", {}, value));

const copyText = async (text, what) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages on plain HTTP beyond this machine, and saved ones, may have no clipboard.
    const area = h("textarea", {}, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(`Copied ${what}.`);
  return what;
};

// One program: its source, its calls over time, its logs and its end, at any point of its run.
export class ProgramView {
  constructor({ conversation, block, isWhatIf = false, original, onWhatIf, onBack }) {
    Object.assign(this, { conversation, block, isWhatIf, original, onWhatIf, onBack });
    this.points = block.points;
    this.at = Math.max(0, this.points.length - 1);
    this.tools = new Set([...conversation.tools.map((tool) => functionName(tool.name)), ...block.calls.map((call) => functionName(call.tool))]);
    const answersMax = this.points.at(-1)?.answers ?? 0;
    this.list = new CallList({ calls: block.calls, answersMax, onSelect: (call) => this.showCall(call) });
    this.parts = {
      tiles: h("dl", { class: "tiles" }),
      source: h("div", { class: "source" }),
      logs: h("section", { class: "logs panel" }),
      end: h("section", { class: "end panel" }),
      call: h("section", { class: "call-detail panel", "aria-live": "polite" }),
      state: h("output", { class: "slider-state" }),
    };
    this.element = h("article", { class: `program ${isWhatIf ? "what-if" : ""}` }, this.head(), this.body());
    this.show(this.at);
    this.parts.call.hidden = true;
    this.list.select(0);
  }

  head() {
    const { block } = this;
    const isExact = block.replay.status === "exact" || block.replay.status === "stopped";
    return h(
      "header",
      { class: "program-head" },
      h("h2", {}, this.isWhatIf ? "What if" : `Program ${block.number}`, " ", statusChip(block)),
      this.isWhatIf && h("p", { class: "what-if-note" }, "Nothing real was called: recorded answers were given to equal calls. ", button("Back to what happened", this.onBack, { class: "link" })),
      !isExact && h("p", { class: "problem", role: "alert" }, block.replay.message, block.replay.call !== undefined && ` (call ${block.replay.call})`),
      this.parts.tiles,
      this.slider(),
    );
  }

  slider() {
    const last = this.points.length - 1;
    if (last < 1) return null;
    this.range = h("input", { type: "range", min: 0, max: last, value: last, "aria-label": "Answers that the program has got", oninput: () => this.show(Number(this.range.value)) });
    const step = (by) => () => this.show(Math.min(last, Math.max(0, this.at + by)));
    return h(
      "div",
      { class: "slider" },
      button("|◀", () => this.show(0), { title: "Da capo: the start", "aria-label": "To the start" }),
      button("◀", step(-1), { title: "One answer back", "aria-label": "One answer back" }),
      this.range,
      button("▶", step(1), { title: "One answer on", "aria-label": "One answer on" }),
      button("▶|", () => this.show(last), { title: "The end", "aria-label": "To the end" }),
      this.parts.state,
    );
  }

  body() {
    const { block } = this;
    const attempts = block.attempts.length > 0 && h(
      "details",
      { class: "attempts panel" },
      h("summary", {}, plural(block.attempts.length, "program"), " before it in the same turn"),
      block.attempts.map((attempt) => [
        sourceCode(attempt.program.code, { tools: this.tools, failure: attempt.end?.result?.error }),
        attempt.end && longText(pretty(attempt.end.result ?? {})),
      ]),
    );
    return h(
      "div",
      { class: "program-body" },
      h("div", { class: "column" }, attempts, this.toolbar(), this.parts.source, this.parts.logs, this.parts.end),
      h("div", { class: "column" }, this.timeline(), this.parts.call),
    );
  }

  toolbar() {
    const copied = (text, what) => async (event) => {
      const target = event.currentTarget;
      const label = target.textContent;
      await copyText(text(), what);
      target.textContent = "Copied ✓";
      setTimeout(() => (target.textContent = label), 1200);
    };
    const request = () => stepRequest(this.conversation, this.block, this.points[this.at]?.answers);
    const canEdit = isServed && !this.isWhatIf;
    return h(
      "div",
      { class: "toolbar", role: "toolbar", "aria-label": "What to do with the program" },
      canEdit && button("What if…", () => this.edit(), { class: "primary", id: "edit-program", title: "Edit the program and run it with the recorded answers (e)" }),
      h("span", { class: "copy-label" }, "Copy"),
      button("step request", copied(() => JSON.stringify(request(), null, 2), "the step request")),
      button("curl", copied(() => asCurl(request()), "a curl command")),
      this.conversation.wire && button("scenario", copied(() => asScenario(this.conversation), "a scenario")),
    );
  }

  timeline() {
    const { calls } = this.block;
    if (!calls.length) return h("section", { class: "timeline panel empty" }, "The program made no calls.");
    const rounds = new Set(calls.map((call) => call.round)).size;
    return h(
      "section",
      { class: "timeline panel" },
      h("h3", {}, plural(calls.length, "call"), " in ", plural(rounds, "round")),
      h("div", { class: "call-row heading", "aria-hidden": "true" }, ["round", "tool", "args", "size", "waterfall"].map((name) => h("span", { class: name }, { round: "№", tool: "tool", args: "arguments", size: "answer", waterfall: "issued → settled" }[name]))),
      this.list.element,
    );
  }

  // Shows the program at one of its points.
  show(at) {
    this.at = at;
    const { block } = this;
    const point = this.points[at] ?? { answers: 0, finished: false, waiting: 0, logs: 0, fuel: 0, memory_bytes: 0 };
    const isEnd = at === this.points.length - 1;
    const last = this.points.at(-1);
    if (this.range) this.range.value = at;
    const total = last?.answers ?? 0;
    const state = point.finished ? "finished" : `waits for ${plural(point.waiting, "answer")}`;
    this.parts.state.textContent = `after ${grouped(point.answers)} of ${plural(total, "answer")}: ${state}`;
    this.range?.setAttribute("aria-valuetext", this.parts.state.textContent);
    const answered = block.calls.filter((call) => ["ok", "error"].includes(statusAt(call, point.answers)));
    const answerBytes = answered.reduce((sum, call) => sum + call.bytes, 0);
    fill(
      this.parts.tiles,
      tile("calls", grouped(block.calls.filter((call) => statusAt(call, point.answers) !== "later").length)),
      tile("answers", bytes(answerBytes), `${grouped(answered.length)} answers`),
      tile("fuel", short(point.fuel), `${grouped(point.fuel)} instructions`),
      tile("memory", bytes(point.memory_bytes)),
      tile("kept out", isEnd && point.finished ? `${short(block.tokens.kept_out)} tokens` : "–", "Estimated tokens of answers that the model does not have to read"),
    );
    this.showSource(isEnd);
    this.showLogs(point.logs);
    this.showEnd(isEnd, point);
    this.list.at(point.answers);
    const selected = this.block.calls[this.list.selected];
    if (selected) this.showCall(selected);
  }

  showSource(isEnd) {
    const failure = isEnd ? failureOf(this.block) : undefined;
    if (this.shownFailure === failure && this.parts.source.firstChild) return;
    this.shownFailure = failure;
    fill(this.parts.source, sourceCode(this.block.program.code, { tools: this.tools, failure }));
  }

  showLogs(count) {
    const logs = (this.block.end?.logs ?? []).slice(0, count);
    this.parts.logs.hidden = logs.length === 0;
    const shown = logs.slice(-500);
    fill(
      this.parts.logs,
      h("h3", {}, plural(logs.length, "log line")),
      logs.length > shown.length && h("p", { class: "dim" }, `The last ${grouped(shown.length)} are shown.`),
      h("ol", { class: "log-lines" }, shown.map((line) => h("li", { class: `log-${line.level}` }, line.text))),
    );
  }

  showEnd(isEnd, point) {
    const { end } = this.block;
    const waiting = end?.status === "paused" && isEnd;
    if (!end) fill(this.parts.end, h("h3", {}, "End"), h("p", {}, "The program was not run to its end."));
    else if (!isEnd || waiting) {
      fill(this.parts.end, h("h3", {}, point.finished ? "Finished" : "Paused"), h("p", { class: "dim" }, point.finished ? "Move to the last answer to see the result." : `The program waits for ${plural(point.waiting, "answer")}.`));
      if (waiting) this.parts.end.append(...end.calls.slice(0, 20).map((call) => h("p", { class: "waiting-call" }, `${call.tool}(${preview(call.args, 120)})`)));
      if (waiting && end.calls.length > 20) this.parts.end.append(h("p", { class: "dim" }, `and ${grouped(end.calls.length - 20)} more`));
    } else {
      const { status, data, error } = end.result;
      fill(this.parts.end, h("h3", {}, status === "success" ? "Result" : `${error.name}`), status === "success" ? longText(pretty(data)) : longText(error.frame ? `${error.message}\n\n${error.frame}` : error.message, "failed"));
    }
  }

  showCall(call) {
    const status = statusAt(call, this.points[this.at]?.answers ?? 0);
    const isAnswered = hasAnswer(call) && (status === "ok" || status === "error" || call.issued === null);
    const answer = call.error ? (call.error.data === undefined ? call.error.message : call.error) : call.ok;
    const canEdit = isServed && !this.isWhatIf && isAnswered && call.args !== null;
    fill(
      this.parts.call,
      h("h3", {}, `${call.tool} `, h("span", { class: "dim" }, `call ${call.call}, round ${call.round}`)),
      h("h4", {}, "arguments"),
      call.args === null ? h("p", { class: "dim" }, "The client has changed them in its history.") : longText(pretty(call.args)),
      h("h4", {}, isAnswered ? (call.error ? "error" : "answer") : "no answer yet", isAnswered && h("span", { class: "dim" }, ` ${bytes(call.bytes)}`)),
      isAnswered && longText(pretty(answer), call.error ? "failed" : ""),
      canEdit && button("What if it had answered…", () => this.editAnswer(call), { class: "primary" }),
    );
    this.parts.call.hidden = false;
  }

  edit() {
    const area = h("textarea", { class: "editor", spellcheck: "false", "aria-label": "Program" });
    area.value = this.block.program.code;
    area.rows = Math.min(30, area.value.split("\n").length + 2);
    const run = () => this.run({ ...stepRequest(this.conversation, this.block, 0), program: { ...this.block.program, code: area.value } }, recordedOf(this.block));
    this.editor(this.parts.source, area, run, () => {
      this.shownFailure = null;
      this.showSource(this.at === this.points.length - 1);
    });
  }

  editAnswer(call) {
    const area = h("textarea", { class: "editor", spellcheck: "false", "aria-label": `Answer of ${call.tool}` });
    const wasText = typeof call.ok === "string" || call.error !== undefined;
    area.value = pretty(call.error ? call.error.message : call.ok);
    area.rows = Math.min(20, area.value.split("\n").length + 1);
    const failed = h("input", { type: "checkbox" });
    failed.checked = call.error !== undefined;
    const run = () => {
      let answer;
      if (failed.checked) answer = { error: { message: area.value } };
      else if (wasText) answer = { ok: area.value };
      else answer = { ok: JSON.parse(area.value) };
      const before = journalOf(this.block, call.settled - 1);
      const changed = { call: call.call, tool: call.tool, args: call.args, ...answer };
      const others = this.block.calls.filter((other) => other !== call && other.settled > call.settled);
      return this.run({ ...stepRequest(this.conversation, this.block, 0), journal: [...before, changed] }, recordedOf({ calls: others }));
    };
    const label = h("label", { class: "failed-label" }, failed, " the call fails with this message");
    this.editor(this.parts.call, [area, label], run, () => this.showCall(call));
  }

  editor(place, area, run, cancel) {
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    const start = async () => {
      try {
        await run();
      } catch (error) {
        problem.hidden = false;
        problem.textContent = error.message;
      }
    };
    const buttons = h("div", { class: "toolbar" }, button("Run", start, { class: "primary" }), button("Cancel", cancel), h("span", { class: "dim" }, "Ctrl+Enter runs it; nothing real is called"));
    fill(place, area, buttons, problem);
    const text = [area].flat()[0];
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
      if (event.key === "Escape") cancel();
    });
    text.focus();
  }

  async run(request, recorded) {
    const block = await whatIf(request, recorded);
    announce("The changed program was run.");
    this.onWhatIf(block);
  }
}
