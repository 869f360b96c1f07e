// openai-node: the loop its documentation shows, whole messages or streamed.
import OpenAI from 'openai';
import { ROUNDS_MAX, commandLine, giveUp, report, runTool, tools } from './shared.mjs';

const { baseURL, model, stream, task } = commandLine();
const client = new OpenAI({ baseURL, apiKey: 'sk-test' });
const messages = [{ role: 'user', content: task }];

async function wholeMessage() {
  const completion = await client.chat.completions.create({ model, messages, tools });
  return completion.choices[0].message;
}

async function streamedMessage() {
  const message = { role: 'assistant', content: '' };
  const toolCalls = {};
  for await (const chunk of await client.chat.completions.create({ model, messages, tools, stream: true })) {
    const { delta } = chunk.choices[0];
    message.content += delta.content ?? '';
    // As the documentation has it: arguments in the delta that opens a call would be counted twice.
    for (const toolCall of delta.tool_calls ?? []) {
      toolCalls[toolCall.index] ??= toolCall;
      toolCalls[toolCall.index].function.arguments += toolCall.function.arguments;
    }
  }
  const called = Object.values(toolCalls);
  if (called.length > 0) message.tool_calls = called;
  return message;
}

async function run() {
  for (let round = 1; round <= ROUNDS_MAX; round++) {
    const message = stream ? await streamedMessage() : await wholeMessage();
    messages.push(message);
    if (!message.tool_calls?.length) return report(message.content, round);
    for (const call of message.tool_calls) {
      const content = runTool(call.function.name, call.function.arguments);
      messages.push({ role: 'tool', tool_call_id: call.id, content });
    }
  }
  giveUp();
}

await run();
