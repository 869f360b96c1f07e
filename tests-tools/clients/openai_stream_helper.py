"""openai-python: `chat.completions.stream()`, which assembles the message itself."""

from openai import OpenAI

from shared import ROUNDS_MAX, TOOLS, command_line, give_up, report, run_tool

args = command_line()
client = OpenAI(base_url=args.base_url, api_key="sk-test")
messages = [{"role": "user", "content": args.task}]
tools = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]

for round in range(1, ROUNDS_MAX + 1):
    with client.chat.completions.stream(model=args.model, messages=messages, tools=tools) as stream:
        for event in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    messages.append(message)
    if not message.tool_calls:
        report(message.content, round)
        break
    for call in message.tool_calls:
        result = run_tool(call.function.name, call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
else:
    give_up()
