"""openai-python: the loop over `responses.create()` that its documentation shows, whole or streamed.

With --explicit it stores nothing, declares programmatic tool calling and lets nothing but programs call the tools.
"""

from openai import OpenAI

from shared import PNG, RESPONSES_TOOLS, ROUNDS_MAX, command_line, give_up, report, run_tool

args = command_line()
client = OpenAI(base_url=args.base_url, api_key="sk-test")
request = {"model": args.model, "tools": RESPONSES_TOOLS}
if args.explicit:
    request["store"] = False
    request["tools"] = [{"type": "programmatic_tool_calling"}]
    request["tools"] += [{**tool, "allowed_callers": ["programmatic"]} for tool in RESPONSES_TOOLS]
if args.thinking:
    request["reasoning"] = {"effort": "medium", "summary": "auto"}
    request["include"] = ["reasoning.encrypted_content"]
items = [{"role": "user", "content": args.task}]


def next_response():
    if not args.stream:
        return client.responses.create(input=items, **request)
    response = None
    for event in client.responses.create(input=items, stream=True, **request):
        if event.type == "response.completed":
            response = event.response
    return response


for round in range(1, ROUNDS_MAX + 1):
    response = next_response()
    assert response.status == "completed", response.status
    items += response.output
    calls = [item for item in response.output if item.type == "function_call"]
    if not calls and response.output_text:
        report(response.output_text, round)
        break
    for call in calls:
        result = run_tool(call.name, call.arguments)
        if result == PNG:
            result = [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": result}
        if args.explicit:
            assert call.caller and call.caller.type == "program", call
            output["caller"] = call.caller
        items.append(output)
else:
    give_up()
