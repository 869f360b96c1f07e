"""opencode, served without its screen. In one story the user stops it while a tool is running."""

import json
import threading
import urllib.request

from coding_agent import INSTALLED, STOP, TIMEOUT_S, started, task, wait_until, workspace
from shared import command_line, report

OPENCODE = INSTALLED / "opencode-linux-x64/bin/opencode"
TOOLS = """
const run = (command) => bash({ command, description: "A command" });
const look = (filePath) => read({ filePath });
"""


def config(base_url: str, model: str) -> dict:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": base_url, "apiKey": "sk-test"},
        "models": {
            model: {
                "tool_call": True,
                "attachment": True,
                "modalities": {"input": ["text", "image"], "output": ["text"]},
                "limit": {"context": 200_000, "output": 8_000},
            }
        },
    }
    name = f"dacapo/{model}"
    chosen = {"provider": {"dacapo": provider}, "model": name, "small_model": name, "permission": "allow"}
    return {**chosen, "autoupdate": False, "share": "disabled"}


def address(agent) -> str:
    for line in agent.stdout:
        if "listening on" in line:
            # Whatever else it says must not fill the pipe.
            threading.Thread(target=agent.stdout.read, daemon=True).start()
            return line.split()[-1]
    raise SystemExit("opencode did not start")


def request(url: str, body: dict | None = None):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answered:
        return json.load(answered)


def texts(message: dict) -> str:
    return "".join(part.get("text", "") for part in message["parts"])


args = command_line()
environment = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
answers = []
with workspace() as folder:
    (folder / "opencode.json").write_text(json.dumps(config(args.base_url, args.model)))
    with started(folder, [OPENCODE, "serve", "--port", "0"], environment) as opencode:
        server = address(opencode)
        session = f"{server}/session/{request(f'{server}/session', {})['id']}/message"

        def say(text: str) -> threading.Thread:
            body = {"parts": [{"type": "text", "text": text}], "model": {"providerID": "dacapo", "modelID": args.model}}
            thread = threading.Thread(target=lambda: answers.append(texts(request(session, body))), daemon=True)
            thread.start()
            return thread

        said = [say(task(args, TOOLS))]
        if args.scenario == "stop":
            wait_until("the first tool", (folder / "started").exists)
            said.append(say(STOP))
            wait_until("the second message", lambda: any(STOP in texts(message) for message in request(session)))
            (folder / "go").touch()
        for thread in said:
            thread.join(TIMEOUT_S)
        messages = request(session)
report(answers[-1] if answers else "", sum(message["info"]["role"] == "assistant" for message in messages))
