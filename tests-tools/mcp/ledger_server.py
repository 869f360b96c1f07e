"""An MCP server that notes every call it executes in a file, so that a test can count them.

LEDGER names the file. Every line of it is one call: tool, arguments and idempotency key, as JSON. With START_DELAY it
reads its first message so many seconds late, and then answers all that has come meanwhile. With --http it prints the port
that it listens on, and notes every HTTP request in a file beside the other. It repeats the headers of a request in its
answers to calls at /echo, in an error to calls at /fail, and in an error of HTTP to everything at /broken. It kills
whoever has started it at the point that a third file beside the ledger names: {"tool", "number", "at"}, the first call of
that tool being number 1, and `at` being "received" or "executed".
"""

import json
import collections
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
        "name": "get_chart",
        "description": "A picture of somebody's payments.",
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


def paid(to):
    """How much somebody was paid so far."""
    try:
        with open(os.environ["LEDGER"]) as ledger:
            calls = [json.loads(line) for line in ledger if json.dumps(to) in line]
    except FileNotFoundError:
        return 0
    return sum(call["args"]["amount"] for call in calls if call["tool"] == "pay" and call["args"]["to"] == to)


calls_of = collections.Counter()


def kill_parent(name, number, at):
    """If this is the point that the file names. It happens once."""
    file = os.environ["LEDGER"] + ".kill"
    try:
        with open(file) as text:
            is_point = json.load(text) == {"tool": name, "number": number, "at": at}
    except FileNotFoundError:
        return
    if is_point:
        os.remove(file)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(1)


def execute(name, arguments, meta):
    with lock:
        calls_of[name] += 1
        number = calls_of[name]
    kill_parent(name, number, "received")
    time.sleep(arguments.get("after_ms", 0) / 1000)
    balance = paid(arguments["of"]) if name == "get_balance" else None
    with lock, open(os.environ["LEDGER"], "a") as ledger:
        key = next((value for key, value in meta.items() if "idempotency" in key.lower()), None)
        ledger.write(json.dumps({"tool": name, "args": arguments, "key": key}) + "\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    kill_parent(name, number, "executed")
    if name == "pay":
        return {"receipt": f"{arguments['amount']} to {arguments['to']}"}
    if name == "get_balance":
        return {"balance": balance}
    if name == "get_statement":
        return {"text": f"{arguments['of']} " * 2000, "lines": 2000}
    return {"closed": arguments["of"]}


def call(params):
    result = execute(params["name"], params.get("arguments", {}), params.get("_meta", {}))
    if params["name"] == "get_chart":
        return {"content": [{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]}
    return {"content": [{"type": "text", "text": json.dumps(result)}], "structuredContent": result}


def answer(message):
    """The response to a message; none to a notification."""
    method, number = message.get("method"), message.get("id")
    if number is None:
        return None
    if method == "initialize":
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "ledger", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        result = call(message["params"])
    elif method == "ping":
        result = {}
    else:
        return {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": f"there is no method {method}"}}
    return {"jsonrpc": "2.0", "id": number, "result": result}


def hear(message):
    response = answer(message)
    if response is not None:
        send(response)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with lock, open(os.environ["LEDGER"] + ".requests", "a") as requests:
            headers = {name: self.headers.get(name) for name in ["authorization", "x-team"]}
            requests.write(json.dumps({"path": self.path, **headers}) + "\n")
        response = None if self.path == "/elsewhere" else answer(message)
        if message.get("method") == "tools/call" and self.path in ("/echo", "/fail"):
            content = [{"type": "text", "text": json.dumps({"receipt": str(self.headers)})}]
            response["result"] = {"content": content, "isError": self.path == "/fail"}
        body = b"" if response is None else json.dumps(response).encode()
        if self.path == "/broken":
            body = str(self.headers).encode()
        self.send_response({"/elsewhere": 307, "/broken": 500}.get(self.path, 200 if body else 202))
        self.send_header("location", f"http://localhost:{self.server.server_port}/mcp")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if sys.argv[1:] == ["--http"]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()

time.sleep(float(os.environ.get("START_DELAY", "0")))
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "tools/call":
        threading.Thread(target=hear, args=(message,), daemon=True).start()
    else:
        hear(message)
