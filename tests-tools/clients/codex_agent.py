"""Codex without its screen, as editors run it. In one story the user stops it while a tool is running."""

import json
import subprocess

from coding_agent import INSTALLED, STOP, send, started, task, wait_until, workspace
from shared import command_line, report

CODEX = INSTALLED / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
# Before what a command printed, it says how long that took. A command may take 30 s before others are run beside it.
TOOLS = """
const run = async (cmd) => {
  const printed = (await exec_command({ cmd, yield_time_ms: 30000 })).split("Output:\\n")[1];
  return printed && JSON.parse(printed);
};
const look = (path) => view_image({ path });
"""
CONFIG = """
model_provider = "dacapo"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
analytics.enabled = false
features = {{ apps = false, plugins = false }}

[model_providers.dacapo]
name = "dacapo"
base_url = "{base_url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""


class Connection:
    """Requests, answers and notifications, each in a line."""

    def __init__(self, codex: subprocess.Popen):
        self.codex = codex
        self.requests = 0
        self.answer = ""

    def read_until(self, is_last) -> dict:
        for line in self.codex.stdout:
            message = json.loads(line)
            item = message.get("params", {}).get("item", {})
            if message.get("method") == "item/completed" and item["type"] == "agentMessage":
                self.answer = item["text"]
            if is_last(message):
                return message
        raise SystemExit("Codex ended")

    def request(self, method: str, params: dict) -> dict:
        self.requests += 1
        send(self.codex, {"id": self.requests, "method": method, "params": params})
        answer = self.read_until(lambda message: message.get("id") == self.requests and "method" not in message)
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']}")
        return answer["result"]


args = command_line()
with workspace() as folder:
    home = folder / "home/codex"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG.format(base_url=args.base_url))
    with started(folder, [CODEX, "app-server"], {"CODEX_HOME": str(home), "OPENAI_API_KEY": "sk-test"}) as codex:
        connection = Connection(codex)
        connection.request("initialize", {"clientInfo": {"name": "dacapo-tests", "version": "1"}})
        send(codex, {"method": "initialized"})
        thread = connection.request("thread/start", {"cwd": str(folder), "model": args.model})["thread"]["id"]

        def said(text: str) -> dict:
            return {"threadId": thread, "input": [{"type": "text", "text": text}]}

        turn = connection.request("turn/start", said(task(args, TOOLS)))["turn"]["id"]
        if args.scenario == "stop":
            wait_until("the first tool", (folder / "started").exists)
            connection.request("turn/steer", {**said(STOP), "expectedTurnId": turn})
            (folder / "go").touch()
        connection.read_until(lambda message: message.get("method") == "turn/completed")
report(connection.answer, connection.requests)
