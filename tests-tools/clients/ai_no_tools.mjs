// AI SDK without any tools of its own: one question, on each of its providers' APIs.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    'base-url': { type: 'string' },
    question: { type: 'string' },
    wire: { type: 'string', default: 'chat' },
    stream: { type: 'boolean', default: false },
  },
});
const settings = { name: 'gateway', baseURL: values['base-url'], apiKey: 'sk-test' };
const providers = { chat: createOpenAICompatible, messages: createAnthropic, responses: createOpenAI };
const request = { model: providers[values.wire](settings)('gpt-scripted'), prompt: values.question };
if (values.stream) {
  const { textStream } = streamText(request);
  for await (const text of textStream) process.stdout.write(text);
} else {
  const { text, toolCalls } = await generateText(request);
  if (toolCalls.length) throw new Error('a client without tools got calls');
  process.stdout.write(text);
}
