"""anthropic-python: a loop over `beta.messages.thread()`, which sends only what is new if the server keeps the rest."""

from anthropic import Anthropic

from shared import MESSAGES_TOOLS, ROUNDS_MAX, TOKENS_MAX, command_line, give_up, report, run_parsed

args = command_line()
client = Anthropic(base_url=args.origin, api_key="sk-test")
asked = {"thinking": {"type": "enabled", "budget_tokens": TOKENS_MAX // 2}} if args.thinking else {}
thread = client.beta.messages.thread(model=args.model, max_tokens=TOKENS_MAX, tools=MESSAGES_TOOLS, **asked)


def send(message):
    if not args.stream:
        return thread.send(message)
    with thread.stream(message) as stream:
        return stream.get_final_message()


content = args.task
for round in range(1, ROUNDS_MAX + 1):
    message = send({"role": "user", "content": content})
    if message.stop_reason == "end_turn":
        report("".join(block.text for block in message.content if block.type == "text"), round)
        break
    assert message.stop_reason == "tool_use", message.stop_reason
    content = []
    for block in message.content:
        if block.type == "tool_use":
            text, failed = run_parsed(block.name, block.input)
            content.append({"type": "tool_result", "tool_use_id": block.id, "content": text, "is_error": failed})
else:
    give_up()
