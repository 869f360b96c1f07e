"""The official Python SDK, version 1: the old era only."""

from contextlib import asynccontextmanager

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult
from shared import Conversation, answer_to, arguments, tell


@asynccontextmanager
async def streams(args):
    if args.http:
        async with streamable_http_client(args.http) as (read, write, _):
            yield read, write
    else:
        async with stdio_client(StdioServerParameters(command=args.stdio[0], args=args.stdio[1:])) as (read, write):
            yield read, write


async def main():
    args = arguments()
    if args.era != "legacy":
        raise SystemExit("version 1 of the SDK knows only --era legacy")
    conversation = Conversation(args)

    async def on_elicitation(_context, params):
        conversation.elicited.append(params.message)
        await conversation.pause()
        if args.elicit == "decline":
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=answer_to(getattr(params, "requestedSchema", None)))

    callback = on_elicitation if args.elicit else None
    async with streams(args) as (read, write), ClientSession(read, write, elicitation_callback=callback) as session:
        hello = await session.initialize()
        listed = await session.list_tools()
        report = await conversation.have(
            lambda tool, values: session.call_tool(tool, values, progress_callback=conversation.on_progress)
        )
        tell(
            {
                "protocol": hello.protocolVersion,
                "server": hello.serverInfo.name,
                "instructions": hello.instructions,
                "tools": [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools],
            }
            | report
        )


anyio.run(main)
