"""AutoGen's AssistantAgent with a chat completions model."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

from shared import FUNCTIONS, ROUNDS_MAX, command_line, report

args = command_line()
info = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown", "structured_output": False}
model = OpenAIChatCompletionClient(model=args.model, base_url=args.base_url, api_key="sk-test", model_info=info)
agent = AssistantAgent(
    "assistant",
    model_client=model,
    tools=list(FUNCTIONS),
    model_client_stream=args.stream,
    max_tool_iterations=ROUNDS_MAX,
    system_message="Be brief.",
)


async def run():
    result = await agent.run(task=args.task)
    return result.messages[-1].content


report(asyncio.run(run()), 0)
