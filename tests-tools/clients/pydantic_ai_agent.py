"""Pydantic AI: `run_sync` and `run_stream`."""

import asyncio
import base64

from pydantic_ai import Agent, BinaryContent, ModelRetry, ToolReturn
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import shared

args = shared.command_line()
settings = {}
if args.stream:
    # `run_stream` takes the first text for the answer, also if calls follow it.
    settings["extra_headers"] = {"x-dacapo-hold-text-chars": "300"}
if args.wire == "messages":
    provider = AnthropicProvider(base_url=args.origin, api_key="sk-test")
    model = AnthropicModel(args.model, provider=provider)
    settings["max_tokens"] = shared.TOKENS_MAX
    if args.thinking:
        settings["anthropic_thinking"] = {"type": "enabled", "budget_tokens": shared.TOKENS_MAX // 2}
else:
    provider = OpenAIProvider(base_url=args.base_url, api_key="sk-test")
    model = (OpenAIResponsesModel if args.wire == "responses" else OpenAIChatModel)(args.model, provider=provider)
    if args.wire == "responses" and args.thinking:
        settings["openai_reasoning_effort"] = "medium"
        settings["openai_reasoning_summary"] = "auto"
agent = Agent(model, model_settings=settings, tools=[shared.web_search, shared.get_price])


@agent.tool_plain
def explode(reason: str) -> str:
    """Try something that does not work."""
    try:
        return shared.explode(reason)
    except RuntimeError as error:
        # Any other exception ends the agent.
        raise ModelRetry(str(error)) from error


@agent.tool_plain
def take_photo(subject: str):
    """Take a photo."""
    photo = BinaryContent(data=base64.b64decode(shared.take_photo(subject)), media_type="image/png")
    # The photo is the result, or stands beside it in a message of the user.
    return ToolReturn(return_value="Here it is.", content=[photo]) if args.stream else photo


async def streamed():
    async with agent.run_stream(args.task) as result:
        answer = ""
        async for piece in result.stream_text(delta=True):
            answer += piece
        return answer, result.usage


if args.stream:
    answer, usage = asyncio.run(streamed())
else:
    result = agent.run_sync(args.task)
    answer, usage = result.output, result.usage
shared.report(answer, usage.requests)
