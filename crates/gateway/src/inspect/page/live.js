import { announce, button, fill, h } from "./elements.js";
import { bytes, grouped, plural, preview } from "./format.js";
import { forgetAll, newToken, openSession, session, watchConversations } from "./gateway.js";

// Conversations that the gateway records, as they go on.
export class LiveList {
  constructor({ onOpen, onChange }) {
    Object.assign(this, { onOpen, onChange, conversations: new Map(), current: null, isConnected: false });
    this.banner = h("div", { class: "live-banner", role: "status", hidden: true });
    this.list = h("ul", { class: "live-list" });
    this.element = h("section", { class: "live", hidden: true, "aria-label": "Recorded conversations" }, h("h3", {}, "recorded"), this.list);
  }

  // Lets this browser in with the token of the address, if there is one, and starts to watch.
  async start() {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token) {
      history.replaceState(null, "", location.pathname);
      await openSession(token);
    }
    const state = await session();
    if (!state.recording) return;
    this.state = state;
    this.showBanner();
    if (!state.open) return;
    this.element.hidden = false;
    watchConversations((message) => this.take(message), (isConnected) => {
      this.isConnected = isConnected;
      this.showBanner();
    });
  }

  showBanner() {
    const { open, conversations_max, bytes_max } = this.state;
    const kept = `the last ${grouped(conversations_max)} conversations (${bytes(bytes_max)} at most), with their programs, arguments and answers`;
    this.banner.hidden = false;
    fill(
      this.banner,
      h("span", { class: `live-dot ${this.isConnected ? "on" : ""}`, "aria-hidden": "true" }),
      open
        ? `This gateway records ${kept}, in memory only.`
        : `This gateway records ${kept}. Open the address that it printed to see them.`,
      open && button("Forget all", () => forgetAll(), { class: "link" }),
      open && button("Copy an address for another browser", async (event) => {
        const { token } = await newToken();
        await navigator.clipboard?.writeText(`${location.origin}/#token=${token}`);
        event.target.textContent = "Copied; it works once";
      }, { class: "link" }),
    );
  }

  take(message) {
    if (message.kind === "list") this.conversations = new Map(message.conversations.map((one) => [one.id, one]));
    else if (message.kind === "forgotten") this.conversations.delete(message.id);
    else {
      const known = this.conversations.get(message.conversation.id);
      this.conversations.set(message.conversation.id, message.conversation);
      if (!known) announce("A conversation began.");
      if (message.conversation.id === this.current && !message.conversation.running) this.onChange(this.current);
    }
    this.show();
  }

  open(id) {
    this.current = id;
    this.show();
    this.onOpen(id);
  }

  leave() {
    this.current = null;
    this.show();
  }

  show() {
    const newest = [...this.conversations.values()].sort((one, other) => other.updated - one.updated);
    fill(
      this.list,
      newest.map((one) =>
        h(
          "li",
          {},
          button(
            [
              h("span", { class: "conversation-title" }, one.title ? preview(one.title, 70) : "A conversation"),
              h("span", { class: "conversation-meta" }, h("span", { class: `live-dot ${one.running ? "on" : ""}`, "aria-hidden": "true" }), ` ${one.state} · ${plural(one.requests, "request")}`),
            ],
            () => this.open(one.id),
            { class: "conversation-link", "aria-current": one.id === this.current ? "true" : undefined },
          ),
        ),
      ),
      newest.length === 0 && h("li", { class: "dim" }, "Nothing yet. Conversations appear here as clients ask."),
    );
  }
}

// The requests of a recorded conversation, in time.
export const requestTimes = (requests) => {
  const start = requests[0]?.started_at ?? 0;
  const end = Math.max(...requests.map((request) => request.started_at + (request.ms ?? 0)), start + 1);
  const row = (request, at) => {
    const bar = h("span", { class: "bar" });
    bar.style.left = `${((request.started_at - start) / (end - start)) * 100}%`;
    bar.style.width = `${((request.ms ?? 0) / (end - start)) * 100}%`;
    return h(
      "tr",
      { title: request.events.map(([ms, text]) => `${grouped(ms)} ms: ${text}`).join("\n") },
      h("td", {}, `${at + 1}`),
      h("td", {}, request.events.at(-1)?.[1] ?? "running"),
      h("td", { class: "number" }, request.ms === null ? "…" : `${grouped(request.ms)} ms`),
      h("td", { class: "wide" }, h("span", { class: "waterfall" }, bar)),
    );
  };
  return h("details", { class: "request-times panel" }, h("summary", {}, `${plural(requests.length, "request")} in ${grouped(end - start)} ms`), h("table", {}, h("tbody", {}, requests.map(row))));
};
