"""Does what docs/tour.md says, with the dacapo that is on the PATH, in an empty folder; says where it prints something else.

crates/cli/tests/docs.rs does so for all pages with the binary of the build; this is for machines with nothing but an installed
package: Python's standard library, curl and a shell.
"""

import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

BLOCK = re.compile(r"(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.S | re.M)
READY = "http://127.0.0.1:8787/readyz"


def shown(expected: str) -> re.Pattern:
    """What a page shows; `…` stands for anything."""
    return re.compile(".*".join(re.escape(part) for part in expected.strip().split("…")), re.S)


def wait_for_gateway() -> None:
    for _ in range(200):
        try:
            urllib.request.urlopen(READY)
            return
        except urllib.error.URLError:
            time.sleep(0.05)
    raise SystemExit("the gateway does not become ready")


def main() -> None:
    page = Path(sys.argv[1]).read_text()
    background, printed, done = [], "", 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            for block in BLOCK.finditer(page):
                note, kind, text = block["note"] or "", block["kind"], block["text"]
                if note == "prints":
                    if not shown(text).search(printed):
                        raise SystemExit(f"expected\n{text}\nbut it prints\n{printed}")
                    continue
                if note == "background":
                    background.append(subprocess.Popen(["sh", "-c", f"exec env {text}"], cwd=folder, stderr=subprocess.DEVNULL))
                    wait_for_gateway()
                    continue
                if note.startswith("not run") and "dacapo demo" not in text:
                    continue
                # A block that begins with a prompt shows what its first line prints.
                command, _, expected = text.removeprefix("$ ").partition("\n") if text.startswith("$ ") else (text, "", "")
                program = ["python3", "-c", command] if kind == "python" else ["sh", "-ec", command]
                ran = subprocess.run(program, cwd=folder, capture_output=True, text=True)
                printed = ran.stdout
                if ran.returncode != 0 or expected and not shown(expected).search(printed):
                    raise SystemExit(f"{command}\n{printed}{ran.stderr}\nexpected {expected or 'success'}")
                done += 1
        finally:
            for process in background:
                process.terminate()
                process.wait()
    print(f"tour: {done} blocks did what the page says")


main()
