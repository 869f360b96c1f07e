"""anthropic-python without any tools of its own: one question."""

import argparse

from anthropic import Anthropic

parser = argparse.ArgumentParser()
parser.add_argument("--base-url", required=True)
parser.add_argument("--question", required=True)
parser.add_argument("--stream", action="store_true")
args = parser.parse_args()
client = Anthropic(base_url=args.base_url.removesuffix("/v1"), api_key="sk-test")
request = {"model": "gpt-scripted", "max_tokens": 1000, "messages": [{"role": "user", "content": args.question}]}

if args.stream:
    with client.messages.stream(**request) as stream:
        print("".join(stream.text_stream))
else:
    message = client.messages.create(**request)
    assert message.stop_reason == "end_turn", message.stop_reason
    print("".join(block.text for block in message.content if block.type == "text"))
