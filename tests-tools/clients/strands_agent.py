"""Strands' agent with a chat completions model. It always streams."""

from shared import FUNCTIONS, command_line, report
from strands import Agent, tool
from strands.models.openai import OpenAIModel

args = command_line()
model = OpenAIModel(client_args={"base_url": args.base_url, "api_key": "sk-test"}, model_id=args.model)
agent = Agent(model=model, tools=[tool(function) for function in FUNCTIONS], callback_handler=None)
result = agent(args.task)
report("".join(block.get("text", "") for block in result.message["content"]), result.metrics.cycle_count)
