import { h, fill } from "./elements.js";
import { bytes, hasAnswer, preview } from "./format.js";

const ROW = 30;
// Rows beyond the visible ones, so that scrolling shows no gaps.
const MARGIN_ROWS = 8;

// A call after so many answers.
export const statusAt = (call, answers) => {
  if (call.issued === null || call.issued > answers) return "later";
  if (call.settled === null || call.settled > answers) return "waiting";
  return call.error === undefined ? "ok" : "error";
};

const WORDS = { later: "not made yet", waiting: "waits for its answer", ok: "answered", error: "failed" };

// All calls as a waterfall over the answers. Only the visible rows are in the document.
export class CallList {
  constructor({ calls, answersMax, onSelect }) {
    Object.assign(this, { calls, answersMax: Math.max(1, answersMax), onSelect, answers: answersMax, selected: -1 });
    this.rows = h("div", { class: "call-rows" });
    this.rows.style.height = `${calls.length * ROW}px`;
    this.element = h(
      "div",
      { class: "call-list", role: "listbox", tabindex: 0, "aria-label": "Calls of the program", onscroll: () => this.render(), onkeydown: (event) => this.key(event) },
      this.rows,
    );
    this.element.style.height = `min(${calls.length * ROW + 2}px, 60vh)`;
    new ResizeObserver(() => this.render()).observe(this.element);
  }

  at(answers) {
    this.answers = answers;
    this.render();
  }

  select(at, { focus = false } = {}) {
    if (at < 0 || at >= this.calls.length) return;
    this.selected = at;
    const top = at * ROW;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    if (top + ROW > scrollTop + clientHeight) this.element.scrollTop = top + ROW - clientHeight;
    this.render();
    if (focus) this.element.focus();
    this.onSelect(this.calls[at]);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW) - 1);
    const to = { ArrowDown: this.selected + 1, ArrowUp: this.selected - 1, Home: 0, End: this.calls.length - 1, PageDown: this.selected + page, PageUp: this.selected - page }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.select(Math.min(this.calls.length - 1, Math.max(0, to)));
  }

  render() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - MARGIN_ROWS);
    const visible = Math.ceil((this.element.clientHeight || 400) / ROW) + 2 * MARGIN_ROWS;
    const rows = this.calls.slice(first, first + visible).map((call, offset) => this.row(call, first + offset));
    fill(this.rows, rows);
    if (this.selected >= 0) this.element.setAttribute("aria-activedescendant", `call-${this.calls[this.selected].call}`);
  }

  row(call, at) {
    const status = statusAt(call, this.answers);
    const bar = h("span", { class: `bar ${status}` });
    const from = (call.issued ?? 0) / this.answersMax;
    const settled = call.settled !== null && call.settled <= this.answers ? call.settled : this.answers;
    const to = Math.max(settled / this.answersMax, from);
    bar.style.left = `${from * 100}%`;
    bar.style.width = `${Math.max(0, to - from) * 100}%`;
    const isFirst = at === 0 || this.calls[at - 1].round !== call.round;
    const row = h(
      "div",
      {
        class: `call-row ${status} ${call.round % 2 ? "odd" : "even"} ${isFirst ? "first" : ""} ${at === this.selected ? "selected" : ""}`,
        id: `call-${call.call}`,
        role: "option",
        "aria-selected": at === this.selected ? "true" : "false",
        "aria-setsize": this.calls.length,
        "aria-posinset": at + 1,
        "aria-label": `Round ${call.round}, call ${call.call}, ${call.tool}, ${WORDS[status]}`,
        onclick: () => this.select(at, { focus: true }),
      },
      h("span", { class: "round" }, isFirst ? `${call.round}` : ""),
      h("span", { class: "tool" }, call.tool),
      h("span", { class: "args" }, call.args === null ? "(changed)" : preview(call.args, 80)),
      h("span", { class: "size" }, hasAnswer(call) && status !== "later" && status !== "waiting" ? bytes(call.bytes) : ""),
      h("span", { class: "waterfall" }, bar),
    );
    row.style.top = `${at * ROW}px`;
    return row;
  }
}
