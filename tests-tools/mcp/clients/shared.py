"""What the Python clients have in common: their arguments, how they answer questions, and their report.

  client.py [--era modern|legacy] [--query TEXT] [--code TEXT] [--call TOOL JSON]... [--elicit accept|decline]
            [--pause DIRECTORY] --http URL | --stdio COMMAND ARGS...

With --pause, whoever is asked something makes a file `asked` in the directory, and answers when there is a file `go`.

One line of JSON goes to stdout: {protocol, server, instructions, tools, search, execute, calls, progress, elicited}.
A call's answer is what the tool returned, or {"error": {code, message}} when the request itself was refused.
"""

import argparse
import asyncio
import json
import pathlib


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--era", choices=["modern", "legacy"], default="modern")
    parser.add_argument("--query")
    parser.add_argument("--code")
    parser.add_argument("--call", nargs=2, action="append", default=[], metavar=("TOOL", "JSON"))
    parser.add_argument("--elicit", choices=["accept", "decline"])
    parser.add_argument("--pause", metavar="DIRECTORY", type=pathlib.Path)
    server = parser.add_mutually_exclusive_group(required=True)
    server.add_argument("--http", metavar="URL")
    server.add_argument("--stdio", nargs=argparse.REMAINDER, metavar="COMMAND")
    return parser.parse_args()


def field_value(schema):
    """What a person in a hurry fills in."""
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if "oneOf" in schema:
        return schema["oneOf"][0]["const"]
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": True, "array": []}.get(kind, "filled in")


def answer_to(requested_schema):
    properties = (requested_schema or {}).get("properties", {})
    return {name: field_value(schema) for name, schema in properties.items()}


class Conversation:
    """Searches, executes, calls, and reports, with whatever an SDK gives to do it."""

    def __init__(self, args):
        self.args = args
        self.progress = []
        self.elicited = []

    async def on_progress(self, progress, total, message):
        self.progress.append({"progress": progress, "total": total, "message": message})

    async def pause(self):
        if self.args.pause is None:
            return
        (self.args.pause / "asked").touch()
        while not (self.args.pause / "go").exists():
            await asyncio.sleep(0.02)

    async def have(self, call):
        """`call(tool, arguments)` answers with a model of the SDK; its failures are MCP errors."""

        async def answer(tool, arguments):
            try:
                result = await call(tool, arguments)
            except Exception as error:
                told = getattr(error, "error", None)
                if told is None:
                    raise
                return {"error": {"code": told.code, "message": told.message}}
            return result.model_dump(mode="json", by_alias=True, exclude_none=True)

        report = {}
        if self.args.query is not None:
            report["search"] = await answer("search", {"query": self.args.query})
        if self.args.code is not None:
            report["execute"] = await answer("execute", {"code": self.args.code})
        report["calls"] = [await answer(tool, json.loads(arguments)) for tool, arguments in self.args.call]
        return report | {"progress": self.progress, "elicited": self.elicited}


def tell(report):
    print(json.dumps(report, ensure_ascii=False))
