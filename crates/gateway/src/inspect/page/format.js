// Numbers and JSON as people read them.
export const grouped = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");

export const bytes = (count) => {
  if (count < 10_000) return `${grouped(count)} B`;
  if (count < 10_000_000) return `${grouped(count / 1000)} kB`;
  return `${grouped(count / 1_000_000)} MB`;
};

export const short = (number) => {
  if (number < 10_000) return grouped(number);
  if (number < 1_000_000) return `${(number / 1000).toFixed(number < 100_000 ? 1 : 0)}k`;
  return `${(number / 1_000_000).toFixed(number < 100_000_000 ? 1 : 0)}M`;
};

export const plural = (count, noun, nouns = `${noun}s`) => `${grouped(count)} ${count === 1 ? noun : nouns}`;

export const times = (more, than) => {
  const ratio = more / Math.max(1, than);
  return `${ratio < 10 ? ratio.toFixed(1) : grouped(ratio)}×`;
};

// One line of a value.
export const preview = (value, charsMax = 160) => {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  const line = text.slice(0, charsMax * 2).replace(/\s+/g, " ");
  return line.length > charsMax || text.length > charsMax * 2 ? `${line.slice(0, charsMax - 1)}…` : line;
};

// A value over several lines. Many tools answer with JSON in text, which is shown as JSON.
export const pretty = (value) => {
  if (typeof value !== "string") return JSON.stringify(value, null, 2) ?? "";
  const looksLikeJson = /^\s*[[{]/.test(value);
  if (!looksLikeJson) return value;
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
};

export const hasAnswer = (call) => call.ok !== undefined || call.error !== undefined;

// The text of an entry of a history, on any wire.
export const entryText = (entry) => {
  if (typeof entry.content === "string") return entry.content;
  if (Array.isArray(entry.content)) {
    const texts = entry.content.map((part) => part?.text);
    if (texts.every((text) => typeof text === "string")) return texts.join("\n");
  }
  return undefined;
};
