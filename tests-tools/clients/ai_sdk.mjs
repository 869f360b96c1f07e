// AI SDK with its providers for OpenAI-compatible servers, Anthropic and OpenAI: `generateText` and `streamText`.
import { createAnthropic, forwardAnthropicContainerIdFromLastStep } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { ROUNDS_MAX, TOKENS_MAX, commandLine, explode, getPrice, report, takePhoto, webSearch } from './shared.mjs';

const { baseURL, model, wire, stream, explicit, unstored, thinking, scenario, task } = commandLine();
const wires = { chat, messages, responses };

function chat() {
  const provider = createOpenAICompatible({ name: 'gateway', baseURL, apiKey: 'sk-test' });
  return { model: provider(model), tools: tools() };
}

function messages() {
  const provider = createAnthropic({ baseURL, apiKey: 'sk-test' });
  const asked = thinking && { thinking: { type: 'enabled', budgetTokens: TOKENS_MAX / 2 } };
  const request = {
    model: provider(model),
    maxOutputTokens: TOKENS_MAX,
    tools: tools(),
    providerOptions: { anthropic: { ...asked } },
  };
  if (!explicit) return request;
  return {
    ...request,
    tools: {
      code_execution: provider.tools.codeExecution_20260120(),
      ...tools({ anthropic: { allowedCallers: ['code_execution_20260120'] } }),
    },
    prepareStep: forwardAnthropicContainerIdFromLastStep,
  };
}

function responses() {
  const provider = createOpenAI({ baseURL, apiKey: 'sk-test' });
  const asked = thinking && {
    forceReasoning: true, // it knows which models reason by their names
    reasoningEffort: 'medium',
    reasoningSummary: 'auto',
    include: ['reasoning.encrypted_content'],
  };
  const request = {
    model: provider(model),
    tools: tools(),
    providerOptions: { openai: { ...asked, ...(unstored && { store: false }) } },
  };
  if (!explicit) return request;
  return {
    ...request,
    tools: {
      program: provider.tools.programmaticToolCalling(),
      ...tools({ openai: { allowedCallers: ['programmatic'] } }),
    },
  };
}

function tools(providerOptions) {
  return {
    web_search: tool({
      description: 'Search the web for headlines.',
      inputSchema: z.object({ query: z.string() }),
      execute: async (input) => webSearch(input),
      providerOptions,
    }),
    get_price: tool({
      description: 'Get the price of an item.',
      inputSchema: z.object({ item: z.string(), currency: z.string() }),
      execute: async (input) => getPrice(input),
      providerOptions,
    }),
    explode: tool({
      description: 'Try something that does not work.',
      inputSchema: z.object({ reason: z.string() }),
      execute: async (input) => explode(input),
      providerOptions,
    }),
    take_photo: tool({
      description: 'Take a photo.',
      inputSchema: z.object({ subject: z.string() }),
      execute: async (input) => takePhoto(input),
      toModelOutput: ({ output }) => ({
        type: 'content',
        value: [{ type: 'file', mediaType: 'image/png', data: { type: 'data', data: output } }],
      }),
      providerOptions,
    }),
  };
}

const request = { ...wires[wire](), prompt: task, stopWhen: stepCountIs(ROUNDS_MAX) };
if (scenario === 'handoff') {
  request.tools.transfer_to_reporter = tool({
    description: 'Hand over to the reporter.',
    inputSchema: z.object({}),
    execute: async () => 'done',
  });
  // Each step has other tools.
  const active = [['web_search', 'transfer_to_reporter'], ['transfer_to_reporter']];
  request.prepareStep = ({ stepNumber }) => ({ activeTools: active[stepNumber] ?? ['get_price'] });
}
if (scenario === 'last-step') {
  request.prepareStep = ({ stepNumber }) => (stepNumber > 0 ? { toolChoice: 'none' } : {});
}
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
