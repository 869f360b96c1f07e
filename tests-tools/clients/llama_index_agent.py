"""LlamaIndex' FunctionAgent with a chat completions model."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

from shared import FUNCTIONS, command_line, report

args = command_line()
model = OpenAILike(
    model=args.model,
    api_base=args.base_url,
    api_key="sk-test",
    is_chat_model=True,
    is_function_calling_model=True,
)
agent = FunctionAgent(tools=list(FUNCTIONS), llm=model, streaming=args.stream)


async def run():
    return str(await agent.run(args.task))


report(asyncio.run(run()), 0)
