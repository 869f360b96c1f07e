"""opencode, served without its screen. The user stops it while a tool is running."""

import json
import os
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from shared import calls, command_line, report

OPENCODE = Path("target/test-tools/agents/node_modules/opencode-linux-x64/bin/opencode").absolute()
STOP = "Stop. Write nothing more."
TIMEOUT_S = 120


def start(workspace: Path, base_url: str, model: str) -> tuple[subprocess.Popen, str]:
    """Starts the agent in an empty workspace, with a home of its own. Returns its address too."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": base_url, "apiKey": "sk-test"},
        "models": {model: {"tool_call": True, "limit": {"context": 200_000, "output": 8_000}}},
    }
    name = f"dacapo/{model}"
    config = {"provider": {"dacapo": provider}, "model": name, "small_model": name, "permission": "allow"}
    (workspace / "opencode.json").write_text(json.dumps({**config, "autoupdate": False, "share": "disabled"}))
    home = {"HOME": str(workspace / "home"), "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    for kind in ["CONFIG", "DATA", "CACHE", "STATE"]:
        home[f"XDG_{kind}_HOME"] = str(workspace / "home" / kind.lower())
    (workspace / "home").mkdir()
    agent = subprocess.Popen(
        [OPENCODE, "serve", "--port", "0"],
        cwd=workspace,
        env={**os.environ, **home},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in agent.stdout:
        if "listening on" in line:
            threading.Thread(target=agent.stdout.read, daemon=True).start()
            return agent, line.split()[-1]
    raise SystemExit("opencode did not start")


def request(url: str, body: dict | None = None):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answered:
        return json.load(answered)


def wait_until(what: str, condition) -> None:
    ends = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > ends:
            raise SystemExit(f"{what} took too long")
        time.sleep(0.05)


def texts(message: dict) -> str:
    return "".join(part.get("text", "") for part in message["parts"])


args = command_line()
with tempfile.TemporaryDirectory() as folder:
    workspace = Path(folder)
    agent, address = start(workspace, args.base_url, args.model)
    try:
        session = f"{address}/session/{request(f'{address}/session', {})['id']}/message"
        answers = []

        def say(text: str) -> threading.Thread:
            body = {"parts": [{"type": "text", "text": text}], "model": {"providerID": "dacapo", "modelID": args.model}}
            thread = threading.Thread(target=lambda: answers.append(texts(request(session, body))), daemon=True)
            thread.start()
            return thread

        said = [say(args.task)]
        wait_until("the first tool", (workspace / "started").exists)
        said.append(say(STOP))
        wait_until("the second message", lambda: any(STOP in texts(message) for message in request(session)))
        (workspace / "go").touch()
        for thread in said:
            thread.join(TIMEOUT_S)
        messages = request(session)
    finally:
        agent.kill()
    written = workspace / "written"
    for line in written.read_text().split() if written.exists() else []:
        calls.append({"tool": "bash", "args": {"writes": line}})
report(answers[-1] if answers else "", sum(message["info"]["role"] == "assistant" for message in messages))
