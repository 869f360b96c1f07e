"""Haystack's Agent with a chat completions model."""

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from shared import FUNCTIONS, ROUNDS_MAX, command_line, report

args = command_line()
callback = (lambda chunk: None) if args.stream else None
model = OpenAIChatGenerator(
    model=args.model, api_base_url=args.base_url, api_key=Secret.from_token("sk-test"), streaming_callback=callback
)
agent = Agent(
    chat_generator=model,
    tools=[create_tool_from_function(function) for function in FUNCTIONS],
    max_agent_steps=ROUNDS_MAX,
    raise_on_tool_invocation_failure=False,
)
result = agent.run(messages=[ChatMessage.from_user(args.task)])
report(result["messages"][-1].text, 0)
