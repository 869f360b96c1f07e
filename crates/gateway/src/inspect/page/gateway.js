// What the page asks the gateway that served it. A page that was saved asks nobody.
export const embedded = JSON.parse(document.getElementById("data").textContent);
export const isServed = embedded === null && location.protocol.startsWith("http");

let key = "";
export const setKey = (text) => (key = text.trim());

export class KeyNeeded extends Error {}

const headers = () => ({ "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) });

const ask = async (path, body) => {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: headers(), body });
  } catch {
    throw new Error("The gateway does not answer. Is it still running?");
  }
  const text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Error(`The gateway answered ${response.status}: ${text.slice(0, 300)}`);
  }
  if (response.status === 401) throw new KeyNeeded("This gateway wants a client's key.");
  if (!response.ok) throw new Error(answer?.error?.message ?? `The gateway answered ${response.status}.`);
  return answer;
};

export const explain = (text) => ask("/inspect/explain", text);
export const whatIf = (step, recorded) => ask("/inspect/what-if", JSON.stringify({ step, recorded }));

const get = async (path, method = "GET") => {
  const response = await fetch(path, { method });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer?.error?.message ?? `The gateway answered ${response.status}.`);
  return answer;
};

export const session = () => get("/inspect/session");
export const openSession = (token) => ask("/inspect/session", JSON.stringify({ token }));
export const newToken = () => get("/inspect/tokens", "POST");
export const recordedConversation = (id) => get(`/inspect/conversations/${id}`);
export const forgetAll = () => get("/inspect/conversations", "DELETE");

// Calls back with every message about recorded conversations.
export const watchConversations = (onMessage, onConnection) => {
  const source = new EventSource("/inspect/conversations");
  source.onmessage = (event) => onMessage(JSON.parse(event.data));
  source.onopen = () => onConnection(true);
  source.onerror = () => onConnection(false);
};
