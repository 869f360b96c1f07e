"""Agno's agent with a chat completions model. It replaces ids that are longer than 40 characters, so that the gateway needs
a `[store]`."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat

from shared import FUNCTIONS, command_line, report

args = command_line()
model = OpenAIChat(id=args.model, base_url=args.base_url, api_key="sk-test")
agent = Agent(model=model, tools=list(FUNCTIONS), telemetry=False)
if args.stream:
    pieces = agent.run(args.task, stream=True)
    answer = "".join(event.content for event in pieces if event.event == "RunContent" and event.content)
else:
    answer = agent.run(args.task).content
report(answer, 0)
