"""Claude Code without its screen. In one story the user stops it while a tool is running."""

import json

from coding_agent import INSTALLED, STOP, send, started, task, wait_until, workspace
from shared import command_line, report

CLAUDE = INSTALLED / "@anthropic-ai/claude-code-linux-x64/claude"
TOOLS = """
const run = (command) => Bash({ command, description: "A command" });
const look = (file_path) => Read({ file_path });
"""

args = command_line()
argv = [CLAUDE, "-p", "--model", args.model, "--dangerously-skip-permissions", "--verbose"]
argv += ["--input-format", "stream-json", "--output-format", "stream-json"]
environment = {
    "ANTHROPIC_BASE_URL": args.origin,
    "ANTHROPIC_API_KEY": "sk-test",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # As root it runs no commands unasked otherwise.
    "IS_SANDBOX": "1",
}


def said(text: str) -> dict:
    return {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}


with workspace() as folder, started(folder, argv, environment) as claude:
    send(claude, said(task(args, TOOLS)))
    if args.scenario == "stop":
        wait_until("the first tool", (folder / "started").exists)
        send(claude, said(STOP))
        # It reads what it is told in order, and answers this at once.
        request = {"subtype": "set_permission_mode", "mode": "bypassPermissions"}
        send(claude, {"type": "control_request", "request_id": "read", "request": request})
        if not any(json.loads(line)["type"] == "control_response" for line in claude.stdout):
            raise SystemExit("Claude Code ended")
        (folder / "go").touch()
    claude.stdin.close()
    output = claude.stdout.read()
results = [event for event in map(json.loads, output.splitlines()) if event["type"] == "result"]
if not results:
    raise SystemExit(f"Claude Code gave no result: {output}")
report(results[-1]["result"], results[-1]["num_turns"])
