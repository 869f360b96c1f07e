"""What the Python clients share: the tools, the tasks, the command line and the report."""

import argparse
import json

TASKS = {
    "parallel": "Compare the news of France and Spain",
    "sequential": "What does the headline item cost?",
    "failing": "Try the tool that explodes",
    "thinking": "Think about the news of France and Spain",
    "handoff": "Hand the news of France over",
    "image": "Look at the photo of a cat",
    # The same, by a client that blanks old answers.
    "editing": "What does the headline item cost?",
    # The names of the functions have a prefix.
    "plugin": "Compare the news with the plugin",
    # The one tool is a type, and has to be called.
    "extract": "Write down what the item costs",
    # The user stops the agent while a tool is running.
    "stop": "Write one, then two",
}
ROUNDS_MAX = 20
TOKENS_MAX = 4096

calls = []


def web_search(query: str) -> str:
    """Search the web for headlines."""
    calls.append({"tool": "web_search", "args": {"query": query}})
    return json.dumps([{"title": f"{query} headline 1"}, {"title": f"{query} headline 2"}])


def get_price(item: str, currency: str) -> str:
    """Get the price of an item."""
    calls.append({"tool": "get_price", "args": {"item": item, "currency": currency}})
    return json.dumps({"item": item, "price": 10 * len(item)})


def explode(reason: str) -> str:
    """Try something that does not work."""
    calls.append({"tool": "explode", "args": {"reason": reason}})
    raise RuntimeError(f"tool exploded: {reason}")


# One pixel.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="


def take_photo(subject: str) -> str:
    """Take a photo."""
    calls.append({"tool": "take_photo", "args": {"subject": subject}})
    return PNG


FUNCTIONS = [web_search, get_price, explode]
_DECLARED = [
    {
        "name": function.__name__,
        "description": function.__doc__,
        "parameters": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in parameters},
            "required": parameters,
            "additionalProperties": False,
        },
    }
    for function, parameters in [
        (web_search, ["query"]),
        (get_price, ["item", "currency"]),
        (explode, ["reason"]),
        (take_photo, ["subject"]),
    ]
]
TOOLS = [{"type": "function", "function": tool} for tool in _DECLARED]
RESPONSES_TOOLS = [{"type": "function", "strict": True, **tool} for tool in _DECLARED]
MESSAGES_TOOLS = [
    {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in _DECLARED
]


def run_tool(name: str, arguments: str) -> str:
    """A tool that fails is told to the model; a call that names no tool or is not JSON ends the client."""
    return run_parsed(name, json.loads(arguments))[0]


def run_parsed(name: str, arguments: dict) -> tuple[str, bool]:
    """Also says whether the tool failed."""
    function = {function.__name__: function for function in [*FUNCTIONS, take_photo]}[name]
    try:
        return function(**arguments), False
    except Exception as error:
        return f"Error: {error}", True


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", required=True, help="what the SDK is given, with its /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--scenario", required=True, choices=TASKS)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--wire", choices=["chat", "messages", "responses"], default="chat", help="if it has several")
    parser.add_argument("--explicit", action="store_true", help="declare the provider's own tool for programs")
    args = parser.parse_args()
    args.task = TASKS[args.scenario]
    args.thinking = args.scenario == "thinking"
    # Anthropic's SDKs add the /v1.
    args.origin = args.base_url.removesuffix("/v1")
    return args


def report(answer: str, requests: int) -> None:
    print(json.dumps({"answer": answer, "calls": calls, "requests": requests}, ensure_ascii=False))


def give_up() -> None:
    raise SystemExit(f"no answer after {ROUNDS_MAX} requests; calls: {json.dumps(calls)}")
