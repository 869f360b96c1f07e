"""LangChain's chat models without any tools: one question, on each of the providers' APIs."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--base-url", required=True)
parser.add_argument("--question", required=True)
parser.add_argument("--wire", choices=["chat", "responses", "messages"], default="chat")
parser.add_argument("--stream", action="store_true")
args = parser.parse_args()

if args.wire == "messages":
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model="gpt-scripted", base_url=args.base_url.removesuffix("/v1"), api_key="sk-test", max_tokens=1000)
else:
    from langchain_openai import ChatOpenAI

    is_responses = args.wire == "responses"
    model = ChatOpenAI(model="gpt-scripted", base_url=args.base_url, api_key="sk-test", use_responses_api=is_responses)

if args.stream:
    print("".join(chunk.text for chunk in model.stream(args.question)))
else:
    message = model.invoke(args.question)
    assert not message.tool_calls
    print(message.text)
