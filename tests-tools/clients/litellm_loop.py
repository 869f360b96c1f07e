"""LiteLLM: the loop of its documentation, whole messages or streamed."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no download when it is imported

import litellm

from shared import ROUNDS_MAX, TOKENS_MAX, TOOLS, command_line, give_up, report, run_tool

litellm.suppress_debug_info = True  # it would go to stdout
args = command_line()
request = {"model": f"openai/{args.model}", "api_base": args.base_url}
if args.wire == "messages":
    request = {"model": f"anthropic/{args.model}", "api_base": args.origin, "max_tokens": TOKENS_MAX}
    if args.thinking:
        request["thinking"] = {"type": "enabled", "budget_tokens": TOKENS_MAX // 2}
        request["allowed_openai_params"] = ["thinking"]  # it knows which models think by their names
messages = [{"role": "user", "content": args.task}]
for round in range(1, ROUNDS_MAX + 1):
    response = litellm.completion(
        **request,
        api_key="sk-test",
        messages=messages,
        tools=TOOLS,
        stream=args.stream,
    )
    if args.stream:
        response = litellm.stream_chunk_builder(list(response), messages=messages)
    message = response.choices[0].message
    messages.append(message)
    if not message.tool_calls:
        report(message.content, round)
        break
    for call in message.tool_calls:
        result = run_tool(call.function.name, call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": result})
else:
    give_up()
