"""OpenAI Agents SDK with a chat completions model or a Responses model.

With --explicit nothing but programs may call the tools.
"""

import asyncio

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    ProgrammaticToolCallingTool,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.shared import Reasoning

from shared import FUNCTIONS, ROUNDS_MAX, command_line, report

set_tracing_disabled(True)
args = command_line()
models = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
settings = ModelSettings()
if args.explicit:
    settings.store = False
if args.thinking and args.wire == "responses":
    settings.reasoning = Reasoning(effort="medium", summary="auto")
    settings.response_include = ["reasoning.encrypted_content"]
if args.explicit:
    tools = [function_tool(function, allowed_callers=["programmatic"]) for function in FUNCTIONS]
    tools.append(ProgrammaticToolCallingTool())
else:
    tools = [function_tool(function) for function in FUNCTIONS]
client = AsyncOpenAI(base_url=args.base_url, api_key="sk-test")
model = models[args.wire](model=args.model, openai_client=client)
agent = Agent(name="Assistant", model=model, model_settings=settings, tools=tools)
if args.scenario == "handoff":
    # The agents have no tool in common.
    reporter = Agent(name="Reporter", model=model, model_settings=settings, tools=tools[1:])
    agent = Agent(name="Assistant", model=model, model_settings=settings, tools=tools[:1], handoffs=[reporter])


async def run():
    if not args.stream:
        return await Runner.run(agent, args.task, max_turns=ROUNDS_MAX)
    result = Runner.run_streamed(agent, args.task, max_turns=ROUNDS_MAX)
    async for event in result.stream_events():
        pass
    return result


result = asyncio.run(run())
report(result.final_output, len(result.raw_responses))
