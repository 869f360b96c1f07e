// AI SDK with its provider for OpenAI-compatible servers: `generateText` and `streamText`.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { ROUNDS_MAX, commandLine, explode, getPrice, report, webSearch } from './shared.mjs';

const { baseURL, model, stream, task } = commandLine();
const provider = createOpenAICompatible({ name: 'gateway', baseURL, apiKey: 'sk-test' });
const request = {
  model: provider(model),
  prompt: task,
  tools: {
    web_search: tool({
      description: 'Search the web for headlines.',
      inputSchema: z.object({ query: z.string() }),
      execute: async (input) => webSearch(input),
    }),
    get_price: tool({
      description: 'Get the price of an item.',
      inputSchema: z.object({ item: z.string(), currency: z.string() }),
      execute: async (input) => getPrice(input),
    }),
    explode: tool({
      description: 'Try something that does not work.',
      inputSchema: z.object({ reason: z.string() }),
      execute: async (input) => explode(input),
    }),
  },
  stopWhen: stepCountIs(ROUNDS_MAX),
};

if (stream) {
  let failure;
  const result = streamText({ ...request, onError: ({ error }) => (failure = error) });
  for await (const _ of result.textStream);
  if (failure) throw failure;
  report(await result.text, (await result.steps).length);
} else {
  const { text, steps } = await generateText(request);
  report(text, steps.length);
}
