"""OpenAI Agents SDK with a chat completions model."""

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from shared import FUNCTIONS, ROUNDS_MAX, command_line, report

set_tracing_disabled(True)
args = command_line()
client = AsyncOpenAI(base_url=args.base_url, api_key="sk-test")
agent = Agent(
    name="Assistant",
    model=OpenAIChatCompletionsModel(model=args.model, openai_client=client),
    tools=[function_tool(function) for function in FUNCTIONS],
)


async def run():
    if not args.stream:
        return await Runner.run(agent, args.task, max_turns=ROUNDS_MAX)
    result = Runner.run_streamed(agent, args.task, max_turns=ROUNDS_MAX)
    async for event in result.stream_events():
        pass
    return result


result = asyncio.run(run())
report(result.final_output, len(result.raw_responses))
