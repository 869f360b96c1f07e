"""anthropic-python: the loop its documentation shows, whole messages or `messages.stream()`.

With --explicit it declares code execution and lets nothing but programs call the tools.
"""

from anthropic import Anthropic, omit

from shared import MESSAGES_TOOLS, PNG, ROUNDS_MAX, TOKENS_MAX, command_line, give_up, report, run_parsed

CODE_EXECUTION = "code_execution_20260120"

args = command_line()
client = Anthropic(base_url=args.origin, api_key="sk-test")
messages = [{"role": "user", "content": args.task}]
tools = MESSAGES_TOOLS
if args.explicit:
    tools = [{"type": CODE_EXECUTION, "name": "code_execution"}]
    tools += [{**tool, "allowed_callers": [CODE_EXECUTION]} for tool in MESSAGES_TOOLS]
container = omit
thinking = {"type": "enabled", "budget_tokens": TOKENS_MAX // 2} if args.thinking else omit


def next_message():
    request = {
        "model": args.model,
        "max_tokens": TOKENS_MAX,
        "messages": messages,
        "tools": tools,
        "container": container,
        "thinking": thinking,
    }
    if not args.stream:
        return client.messages.create(**request)
    with client.messages.stream(**request) as stream:
        for event in stream:
            pass
        return stream.get_final_message()


for round in range(1, ROUNDS_MAX + 1):
    message = next_message()
    messages.append({"role": "assistant", "content": message.content})
    if message.container:
        container = message.container.id
    if message.stop_reason == "end_turn":
        report("".join(block.text for block in message.content if block.type == "text"), round)
        break
    if message.stop_reason == "pause_turn":
        continue
    assert message.stop_reason == "tool_use", message.stop_reason
    results = []
    for block in message.content:
        if block.type == "tool_use":
            if args.explicit:
                assert block.caller and block.caller.type == CODE_EXECUTION, block
            content, failed = run_parsed(block.name, block.input)
            if content == PNG:
                source = {"type": "base64", "media_type": "image/png", "data": PNG}
                content = [{"type": "image", "source": source}]
            results.append({"type": "tool_result", "tool_use_id": block.id, "content": content, "is_error": failed})
    messages.append({"role": "user", "content": results})
else:
    give_up()
