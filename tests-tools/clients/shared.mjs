// What the Node clients share: the tools, the tasks, the command line and the report.
import { parseArgs } from 'node:util';

const TASKS = {
  parallel: 'Compare the news of France and Spain',
  sequential: 'What does the headline item cost?',
  failing: 'Try the tool that explodes',
  thinking: 'Think about the news of France and Spain',
  handoff: 'Hand the news of France over',
  image: 'Look at the photo of a cat',
  // The second step may make no calls.
  'last-step': 'Search once, then say what it costs',
};
export const ROUNDS_MAX = 20;
export const TOKENS_MAX = 4096;

const calls = [];

// The SDKs' errors hold whole requests; the reason is enough.
process.on('uncaughtException', (error) => {
  console.error(String(error));
  process.exit(1);
});

export function webSearch({ query }) {
  calls.push({ tool: 'web_search', args: { query } });
  return JSON.stringify([{ title: `${query} headline 1` }, { title: `${query} headline 2` }]);
}

export function getPrice({ item, currency }) {
  calls.push({ tool: 'get_price', args: { item, currency } });
  return JSON.stringify({ item, price: 10 * item.length });
}

export function explode({ reason }) {
  calls.push({ tool: 'explode', args: { reason } });
  throw new Error(`tool exploded: ${reason}`);
}

// One pixel.
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=';

export function takePhoto({ subject }) {
  calls.push({ tool: 'take_photo', args: { subject } });
  return PNG;
}

const declare = (name, description, parameters) => ({
  name,
  description,
  parameters: {
    type: 'object',
    properties: Object.fromEntries(parameters.map((parameter) => [parameter, { type: 'string' }])),
    required: parameters,
    additionalProperties: false,
  },
});
const declared = [
  declare('web_search', 'Search the web for headlines.', ['query']),
  declare('get_price', 'Get the price of an item.', ['item', 'currency']),
  declare('explode', 'Try something that does not work.', ['reason']),
];
export const tools = declared.map((tool) => ({ type: 'function', function: tool }));
export const responsesTools = declared.map((tool) => ({ type: 'function', strict: true, ...tool }));
export const messagesTools = declared.map(({ name, description, parameters }) => ({
  name,
  description,
  input_schema: parameters,
}));
export const functions = { web_search: webSearch, get_price: getPrice, explode };

/** A tool that fails is told to the model; a call that names no tool or is not JSON ends the client. */
export function runTool(name, text) {
  return runParsed(name, JSON.parse(text)).text;
}

/** Also says whether the tool failed. */
export function runParsed(name, args) {
  if (!Object.hasOwn(functions, name)) throw new Error(`no tool is named ${name}`);
  try {
    return { text: functions[name](args), failed: false };
  } catch (error) {
    return { text: String(error), failed: true };
  }
}

export function commandLine() {
  const { values } = parseArgs({
    options: {
      'base-url': { type: 'string' },
      model: { type: 'string' },
      scenario: { type: 'string' },
      stream: { type: 'boolean', default: false },
      wire: { type: 'string', default: 'chat' }, // if a client has several
      explicit: { type: 'boolean', default: false }, // declare the provider's own tool for programs
      unstored: { type: 'boolean', default: false }, // ask the server to store nothing
    },
  });
  const { 'base-url': baseURL, model, scenario, ...options } = values;
  if (!baseURL || !model || !Object.hasOwn(TASKS, scenario ?? '')) {
    console.error(`--base-url URL --model NAME --scenario ${Object.keys(TASKS).join('|')} [--stream] ...`);
    process.exit(2);
  }
  // Anthropic's SDK adds the /v1.
  const origin = baseURL.replace(/\/v1$/, '');
  const thinking = scenario === 'thinking';
  return { ...options, baseURL, origin, model, scenario, task: TASKS[scenario], thinking };
}

export function report(answer, requests) {
  console.log(JSON.stringify({ answer, calls, requests }));
}

export function giveUp() {
  throw new Error(`no answer after ${ROUNDS_MAX} requests; calls: ${JSON.stringify(calls)}`);
}
