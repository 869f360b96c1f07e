// openai-node: `runTools`, which calls the functions itself.
import OpenAI from 'openai';
import { ROUNDS_MAX, commandLine, functions, report, tools } from './shared.mjs';

const { baseURL, model, stream, task } = commandLine();
const client = new OpenAI({ baseURL, apiKey: 'sk-test' });

// A function that throws ends the run.
const caught = (run) => (args) => {
  try {
    return run(args);
  } catch (error) {
    return String(error);
  }
};
const runnable = tools.map(({ type, function: declared }) => ({
  type,
  function: { ...declared, parse: JSON.parse, function: caught(functions[declared.name]) },
}));

const runner = client.chat.completions.runTools(
  { model, messages: [{ role: 'user', content: task }], tools: runnable, stream },
  { maxChatCompletions: ROUNDS_MAX },
);
const answer = await runner.finalContent();
report(answer, runner.allChatCompletions().length);
