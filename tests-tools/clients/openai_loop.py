"""openai-python: the loop its documentation shows, whole messages or streamed."""

from openai import OpenAI

from shared import PNG, ROUNDS_MAX, TOOLS, command_line, give_up, report, run_tool

args = command_line()
client = OpenAI(base_url=args.base_url, api_key="sk-test")
messages = [{"role": "user", "content": args.task}]


def whole_message():
    completion = client.chat.completions.create(model=args.model, messages=messages, tools=TOOLS)
    return completion.choices[0].message


def streamed_message():
    content = ""
    tool_calls = {}
    stream = client.chat.completions.create(model=args.model, messages=messages, tools=TOOLS, stream=True)
    for chunk in stream:
        delta = chunk.choices[0].delta
        content += delta.content or ""
        # As the documentation has it: arguments in the delta that opens a call would be counted twice.
        for tool_call in delta.tool_calls or []:
            if tool_call.index not in tool_calls:
                tool_calls[tool_call.index] = tool_call
            tool_calls[tool_call.index].function.arguments += tool_call.function.arguments
    return content, list(tool_calls.values())


for round in range(1, ROUNDS_MAX + 1):
    if args.stream:
        content, tool_calls = streamed_message()
        message = {"role": "assistant", "content": content or None}
        if tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in tool_calls
            ]
    else:
        message = whole_message()
        content, tool_calls = message.content, message.tool_calls
    messages.append(message)
    if not tool_calls:
        report(content, round)
        break
    for call in tool_calls:
        result = run_tool(call.function.name, call.function.arguments)
        if result == PNG:
            result = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
else:
    give_up()
