"""anthropic-python: `tool_runner()`, which calls the functions itself, in a thread that the server may keep."""

from anthropic import Anthropic, beta_tool, omit

from shared import FUNCTIONS, ROUNDS_MAX, TOKENS_MAX, command_line, report

args = command_line()
client = Anthropic(base_url=args.origin, api_key="sk-test")
runner = client.beta.messages.tool_runner(
    model=args.model,
    max_tokens=TOKENS_MAX,
    messages=[{"role": "user", "content": args.task}],
    tools=[beta_tool(function) for function in FUNCTIONS],
    thinking={"type": "enabled", "budget_tokens": TOKENS_MAX // 2} if args.thinking else omit,
    max_iterations=ROUNDS_MAX,
    stream=args.stream,
)
messages = [turn.get_final_message() if args.stream else turn for turn in runner]
report("".join(block.text for block in messages[-1].content if block.type == "text"), len(messages))
