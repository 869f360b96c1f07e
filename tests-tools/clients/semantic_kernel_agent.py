"""Semantic Kernel: `ChatCompletionAgent` with a plugin, whose name comes before those of its functions."""

import asyncio

from openai import AsyncOpenAI
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function

from shared import FUNCTIONS, command_line, report

args = command_line()
kernel = Kernel()
for function in FUNCTIONS:
    kernel.add_function("news", kernel_function(function, name=function.__name__, description=function.__doc__))
client = AsyncOpenAI(base_url=args.base_url, api_key="sk-test")
agent = ChatCompletionAgent(kernel=kernel, service=OpenAIChatCompletion(ai_model_id=args.model, async_client=client))


async def answer() -> str:
    if not args.stream:
        return str(await agent.get_response(args.task))
    return "".join([str(piece.message) async for piece in agent.invoke_stream(args.task)])


report(asyncio.run(answer()), 0)
