// What the Node clients share: the tools, the tasks, the command line and the report.
import { parseArgs } from 'node:util';

const TASKS = {
  parallel: 'Compare the news of France and Spain',
  sequential: 'What does the headline item cost?',
  failing: 'Try the tool that explodes',
};
export const ROUNDS_MAX = 20;

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

const declare = (name, description, parameters) => ({
  type: 'function',
  function: {
    name,
    description,
    parameters: {
      type: 'object',
      properties: Object.fromEntries(parameters.map((parameter) => [parameter, { type: 'string' }])),
      required: parameters,
      additionalProperties: false,
    },
  },
});
export const tools = [
  declare('web_search', 'Search the web for headlines.', ['query']),
  declare('get_price', 'Get the price of an item.', ['item', 'currency']),
  declare('explode', 'Try something that does not work.', ['reason']),
];
export const functions = { web_search: webSearch, get_price: getPrice, explode };

/** A tool that fails is told to the model; a call that names no tool or is not JSON ends the client. */
export function runTool(name, text) {
  if (!Object.hasOwn(functions, name)) throw new Error(`no tool is named ${name}`);
  const args = JSON.parse(text);
  try {
    return functions[name](args);
  } catch (error) {
    return String(error);
  }
}

export function commandLine() {
  const { values } = parseArgs({
    options: {
      'base-url': { type: 'string' },
      model: { type: 'string' },
      scenario: { type: 'string' },
      stream: { type: 'boolean', default: false },
    },
  });
  const { 'base-url': baseURL, model, scenario, stream } = values;
  if (!baseURL || !model || !Object.hasOwn(TASKS, scenario ?? '')) {
    console.error(`--base-url URL --model NAME --scenario ${Object.keys(TASKS).join('|')} [--stream]`);
    process.exit(2);
  }
  return { baseURL, model, stream, task: TASKS[scenario] };
}

export function report(answer, requests) {
  console.log(JSON.stringify({ answer, calls, requests }));
}

export function giveUp() {
  throw new Error(`no answer after ${ROUNDS_MAX} requests; calls: ${JSON.stringify(calls)}`);
}
