"""openai-python without any tools of its own: one question, on either of its APIs."""

import argparse

from openai import OpenAI

parser = argparse.ArgumentParser()
parser.add_argument("--base-url", required=True)
parser.add_argument("--question", required=True)
parser.add_argument("--wire", choices=["chat", "responses"], default="chat")
parser.add_argument("--stream", action="store_true")
args = parser.parse_args()
client = OpenAI(base_url=args.base_url, api_key="sk-test")

if args.wire == "responses" and args.stream:
    with client.responses.stream(model="gpt-scripted", input=args.question) as stream:
        stream.until_done()
        print(stream.get_final_response().output_text)
elif args.wire == "responses":
    print(client.responses.create(model="gpt-scripted", input=args.question).output_text)
else:
    messages = [{"role": "user", "content": args.question}]
    if args.stream:
        chunks = client.chat.completions.create(model="gpt-scripted", messages=messages, stream=True)
        print("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))
    else:
        completion = client.chat.completions.create(model="gpt-scripted", messages=messages)
        assert not completion.choices[0].message.tool_calls
        print(completion.choices[0].message.content)
