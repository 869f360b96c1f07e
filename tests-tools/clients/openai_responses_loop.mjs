// openai-node: the loop over `responses.create()` that its documentation shows, whole or streamed.
import OpenAI from 'openai';
import { ROUNDS_MAX, commandLine, giveUp, report, responsesTools as tools, runTool } from './shared.mjs';

const { baseURL, model, stream, task, thinking } = commandLine();
const client = new OpenAI({ baseURL, apiKey: 'sk-test' });
const input = [{ role: 'user', content: task }];
const asked = thinking && {
  reasoning: { effort: 'medium', summary: 'auto' },
  include: ['reasoning.encrypted_content'],
};

async function nextResponse() {
  const request = { model, input, tools, ...asked };
  return stream ? client.responses.stream(request).finalResponse() : client.responses.create(request);
}

async function run() {
  for (let round = 1; round <= ROUNDS_MAX; round++) {
    const response = await nextResponse();
    if (response.status !== 'completed') throw new Error(`the response is ${response.status}`);
    input.push(...response.output);
    const calls = response.output.filter((item) => item.type === 'function_call');
    if (calls.length === 0) return report(response.output_text, round);
    for (const { call_id, name, arguments: text } of calls) {
      input.push({ type: 'function_call_output', call_id, output: runTool(name, text) });
    }
  }
  giveUp();
}

await run();
