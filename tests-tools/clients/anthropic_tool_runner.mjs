// @anthropic-ai/sdk: `toolRunner`, which calls the functions itself, in a thread that the server may keep.
import Anthropic from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { ROUNDS_MAX, TOKENS_MAX, commandLine, functions, messagesTools, report } from './shared.mjs';

const { origin, model, stream, task, thinking } = commandLine();
const client = new Anthropic({ baseURL: origin, apiKey: 'sk-test' });
const asked = thinking && { thinking: { type: 'enabled', budget_tokens: TOKENS_MAX / 2 } };

const runner = client.beta.messages.toolRunner({
  model,
  max_tokens: TOKENS_MAX,
  messages: [{ role: 'user', content: task }],
  tools: messagesTools.map(({ name, description, input_schema: inputSchema }) =>
    betaTool({ name, description, inputSchema, run: async (input) => functions[name](input) }),
  ),
  ...asked,
  max_iterations: ROUNDS_MAX,
  stream,
});
let requests = 0;
let last;
for await (const turn of runner) {
  last = stream ? await turn.finalMessage() : turn;
  requests++;
}
const texts = last.content.filter((block) => block.type === 'text').map((block) => block.text);
report(texts.join(''), requests);
