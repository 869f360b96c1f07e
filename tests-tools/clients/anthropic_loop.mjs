// @anthropic-ai/sdk: the loop its documentation shows, whole messages or `messages.stream()`.
import Anthropic from '@anthropic-ai/sdk';
import { ROUNDS_MAX, TOKENS_MAX, commandLine, giveUp, messagesTools as tools, report, runParsed } from './shared.mjs';

const { origin, model, stream, task, thinking } = commandLine();
const client = new Anthropic({ baseURL: origin, apiKey: 'sk-test' });
const messages = [{ role: 'user', content: task }];
const asked = thinking && { thinking: { type: 'enabled', budget_tokens: TOKENS_MAX / 2 } };

async function nextMessage() {
  const request = { model, max_tokens: TOKENS_MAX, messages, tools, ...asked };
  return stream ? client.messages.stream(request).finalMessage() : client.messages.create(request);
}

async function run() {
  for (let round = 1; round <= ROUNDS_MAX; round++) {
    const { content, stop_reason } = await nextMessage();
    messages.push({ role: 'assistant', content });
    if (stop_reason === 'end_turn') {
      const texts = content.filter((block) => block.type === 'text').map((block) => block.text);
      return report(texts.join(''), round);
    }
    if (stop_reason !== 'tool_use') throw new Error(`stopped because of ${stop_reason}`);
    const results = [];
    for (const { type, id, name, input } of content) {
      if (type !== 'tool_use') continue;
      const { text, failed } = runParsed(name, input);
      results.push({ type: 'tool_result', tool_use_id: id, content: text, is_error: failed });
    }
    messages.push({ role: 'user', content: results });
  }
  giveUp();
}

await run();
