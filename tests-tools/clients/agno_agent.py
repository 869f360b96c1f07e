"""Agno's agent with a chat completions model. It replaces ids that are longer than 40 characters, so that the gateway needs
a `[store]`."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat

from shared import FUNCTIONS, command_line, report

args = command_line()
model = OpenAIChat(id=args.model, base_url=args.base_url, api_key="sk-test")
agent = Agent(model=model, tools=list(FUNCTIONS), telemetry=False)
# Its own answer is all text of the run; what the model says before its calls is not part of what is checked.
answer = ""
if args.stream:
    for event in agent.run(args.task, stream=True, stream_events=True):
        if event.event.startswith("ToolCall"):
            answer = ""
        elif event.event == "RunContent" and event.content:
            answer += event.content
else:
    answer = agent.run(args.task).messages[-1].content
report(answer, 0)
