"""What the coding agents share: a workspace with the tools as commands, and what the model does with them.

The agents have a shell instead of functions, so this file is also what the commands run.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import shared

INSTALLED = Path("target/test-tools/agents/node_modules").absolute()
COMMANDS = {function.__name__: function for function in [*shared.FUNCTIONS, shared.take_photo]}
STOP = "Stop. Write nothing more."
TIMEOUT_S = 120

# With the agent's `run`, which gives what a command printed, and `look`, which gives an image.
PROGRAMS = {
    "parallel": """
const [france, spain] = await Promise.all(["France", "Spain"].map((query) => run(`./web_search ${query}`)));
return { france: france[0].title, spain: spain[1].title };""",
    "sequential": """
const [first] = await run("./web_search item");
const { price } = await run(`./get_price '${first.title}' EUR`);
return { item: first.title, price };""",
    "image": """
await run("./take_photo 'a cat' | base64 -d > photo.png");
return await look("photo.png");""",
    # The first command waits until the user has said more, or the workspace is gone.
    "stop": """
await run("touch started; while [ -e started ] && [ ! -e go ]; do sleep 0.1; done; echo one >> written");
await run("echo two >> written");
return "both";""",
}


def task(args, tools: str) -> str:
    """What the user says, with the program that the model writes then. The tools are `run` and `look`."""
    return f"{args.task}, with this program:\n```js\n{tools.strip()}{PROGRAMS[args.scenario]}\n```"


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """A folder that ends with the run. What commands did in it becomes the calls of the report."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "home").mkdir()
        for command in COMMANDS:
            path = folder / command
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).absolute()}" {command} "$@"\n')
            path.chmod(0o755)
        yield folder
        shared.calls.extend(json.loads(line) for line in lines(folder / "calls"))
        shared.calls.extend({"tool": "bash", "args": {"writes": line}} for line in lines(folder / "written"))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@contextlib.contextmanager
def started(folder: Path, argv: list, environment: dict[str, str]) -> Iterator[subprocess.Popen]:
    """The agent, with a home and settings of its own and no way to other machines. It ends when it takes too long."""
    home = {f"XDG_{kind}_HOME": str(folder / "home" / kind.lower()) for kind in ["CONFIG", "DATA", "CACHE", "STATE"]}
    nowhere = {name: "http://127.0.0.1:9" for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"]}
    local = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    agent = subprocess.Popen(
        argv,
        cwd=folder,
        env={**home, **nowhere, **local, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    ends = threading.Timer(TIMEOUT_S, agent.kill)
    ends.start()
    try:
        yield agent
    finally:
        ends.cancel()
        agent.kill()
        agent.wait()


def send(agent: subprocess.Popen, message: dict) -> None:
    agent.stdin.write(json.dumps(message) + "\n")
    agent.stdin.flush()


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > ends:
            raise SystemExit(f"{what} took too long")
        time.sleep(0.05)


if __name__ == "__main__":
    printed = COMMANDS[sys.argv[1]](*sys.argv[2:])
    with open("calls", "a") as calls:
        calls.write(json.dumps(shared.calls[-1]) + "\n")
    print(printed)
