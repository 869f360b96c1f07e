"""Mistral's SDK, pointed at another server."""

import json

from mistralai.client import Mistral

from shared import ROUNDS_MAX, TOOLS, command_line, give_up, report, run_tool

args = command_line()
client = Mistral(api_key="sk-test", server_url=args.base_url.removesuffix("/v1"))
messages = [{"role": "user", "content": args.task}]


def whole_message():
    message = client.chat.complete(model=args.model, messages=messages, tools=TOOLS).choices[0].message
    return message.content, message.tool_calls or []


def streamed_message():
    content = ""
    tool_calls = {}
    with client.chat.stream(model=args.model, messages=messages, tools=TOOLS) as events:
        for event in events:
            delta = event.data.choices[0].delta
            content += delta.content or ""
            # Mistral's own server sends every call whole; its types also allow a call in pieces, if each has a name.
            for piece in delta.tool_calls or []:
                call = tool_calls.setdefault(piece.index, piece)
                if call is not piece:
                    call.function.arguments += piece.function.arguments
    return content, list(tool_calls.values())


for round in range(1, ROUNDS_MAX + 1):
    content, tool_calls = streamed_message() if args.stream else whole_message()
    if not tool_calls:
        report(content, round)
        break
    messages.append({"role": "assistant", "content": content, "tool_calls": tool_calls})
    for call in tool_calls:
        arguments = call.function.arguments
        result = run_tool(call.function.name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": result})
else:
    give_up()
