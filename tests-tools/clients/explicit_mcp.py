"""Explicit clients of both providers' SDKs, behind which a gateway executes calls of MCP servers.

Every event and every item is checked against the SDK's own types. Prints what was shown of MCP, then the answer, then the
answer to a second question that is asked with all of that in its history.
"""

import argparse
import json

from pydantic import TypeAdapter

parser = argparse.ArgumentParser()
parser.add_argument("--base-url", required=True)
parser.add_argument("--question", required=True)
parser.add_argument("--wire", choices=["responses", "messages"], required=True)
parser.add_argument("--stream", action="store_true")
args = parser.parse_args()


def answers():
    if args.wire == "responses":
        from openai import OpenAI
        from openai.types.responses import Response, ResponseStreamEvent

        client = OpenAI(base_url=args.base_url, api_key="sk-test")
        event_type, response_type = TypeAdapter(ResponseStreamEvent), TypeAdapter(Response)
        history = []
        for question in [args.question, "Hello"]:
            history.append({"role": "user", "content": question})
            tools = [{"type": "programmatic_tool_calling"}]
            request = {"model": "gpt-scripted", "input": history, "tools": tools, "store": False}
            if args.stream:
                with client.responses.stream(**request) as stream:
                    for event in stream:
                        event_type.validate_python(event.to_dict())
                        if event.type.startswith("response.mcp"):
                            print("event", event.type.removeprefix("response."))
                    response = stream.get_final_response()
            else:
                response = client.responses.create(**request)
            response = response_type.validate_python(response.to_dict())
            for item in response.output:
                if item.type == "mcp_list_tools":
                    print("list", item.server_label, " ".join(tool.name for tool in item.tools))
                if item.type == "mcp_call":
                    print(item.status, f"{item.server_label}.{item.name}", item.arguments, item.output)
            history += [item.to_dict() for item in response.output]
            yield response.output_text
    else:
        from anthropic import Anthropic
        from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent

        client = Anthropic(base_url=args.base_url.removesuffix("/v1"), api_key="sk-test")
        event_type, message_type = TypeAdapter(BetaRawMessageStreamEvent), TypeAdapter(BetaMessage)
        history = []
        for question in [args.question, "Hello"]:
            history.append({"role": "user", "content": question})
            tools = [{"type": "code_execution_20260120", "name": "code_execution"}]
            request = {"model": "gpt-scripted", "max_tokens": 1000, "messages": history, "tools": tools}
            if args.stream:
                with client.beta.messages.stream(**request) as stream:
                    for event in stream:
                        if event.type in ["message_start", "content_block_start", "content_block_delta"]:
                            event_type.validate_python(event.to_dict())
                    message = stream.get_final_message()
            else:
                message = client.beta.messages.create(**request)
            content = message_type.validate_python(message.to_dict()).content
            for block in content:
                if block.type == "mcp_tool_use":
                    print("use", f"{block.server_name}.{block.name}", json.dumps(block.input, separators=(",", ":")))
                if block.type == "mcp_tool_result":
                    print("error" if block.is_error else "result", "".join(part.text for part in block.content))
            history.append({"role": "assistant", "content": [block.to_dict() for block in content]})
            yield "".join(block.text for block in content if block.type == "text")


for answer in answers():
    print("answer", answer)
