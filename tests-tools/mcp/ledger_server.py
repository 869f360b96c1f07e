"""An MCP server that notes every call it executes in a file, so that a test can count them.

LEDGER names the file. Every line of it is one call: tool, arguments and idempotency key, as JSON. With START_DELAY it
reads its first message so many seconds late, and then answers all that has come meanwhile.
"""

import json
import os
import sys
import threading
import time

TOOLS = [
    {
        "name": "pay",
        "description": "Pays an amount to somebody.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "to": {"type": "string"},
                "amount": {"type": "number"},
                "after_ms": {"type": "number", "description": "How long it takes."},
            },
            "required": ["to", "amount"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {"receipt": {"type": "string"}},
            "required": ["receipt"],
        },
    },
    {
        "name": "get_balance",
        "description": "How much somebody was paid so far.",
        "inputSchema": {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "get_statement",
        "description": "A long text about somebody.",
        "inputSchema": {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "close_account",
        "description": "Closes somebody's account for ever.",
        "inputSchema": {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]},
        "annotations": {"readOnlyHint": False, "destructiveHint": True},
    },
]

lock = threading.Lock()


def send(message):
    with lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def calls():
    try:
        with open(os.environ["LEDGER"]) as ledger:
            return [json.loads(line) for line in ledger]
    except FileNotFoundError:
        return []


def execute(name, arguments, meta):
    time.sleep(arguments.get("after_ms", 0) / 1000)
    before = calls()
    with lock, open(os.environ["LEDGER"], "a") as ledger:
        key = next((value for key, value in meta.items() if "idempotency" in key.lower()), None)
        ledger.write(json.dumps({"tool": name, "args": arguments, "key": key}) + "\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    if name == "pay":
        return {"receipt": f"{arguments['amount']} to {arguments['to']}"}
    if name == "get_balance":
        paid = [call["args"] for call in before if call["tool"] == "pay"]
        return {"balance": sum(args["amount"] for args in paid if args["to"] == arguments["of"])}
    if name == "get_statement":
        return {"text": f"{arguments['of']} " * 2000, "lines": 2000}
    return {"closed": arguments["of"]}


def call(message):
    params = message["params"]
    result = execute(params["name"], params.get("arguments", {}), params.get("_meta", {}))
    content = [{"type": "text", "text": json.dumps(result)}]
    send({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content, "structuredContent": result}})


def hear(message):
    method, number = message.get("method"), message.get("id")
    if number is None:
        return
    if method == "initialize":
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "ledger", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        threading.Thread(target=call, args=(message,), daemon=True).start()
        return
    elif method == "ping":
        result = {}
    else:
        error = {"code": -32601, "message": f"there is no method {method}"}
        send({"jsonrpc": "2.0", "id": number, "error": error})
        return
    send({"jsonrpc": "2.0", "id": number, "result": result})


time.sleep(float(os.environ.get("START_DELAY", "0")))
for line in sys.stdin:
    hear(json.loads(line))
