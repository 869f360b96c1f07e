"""The official Python SDK, version 2: both eras."""

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult
from shared import Conversation, answer_to, arguments, tell


async def main():
    args = arguments()
    conversation = Conversation(args)

    async def on_elicitation(_context, params):
        conversation.elicited.append(params.message)
        await conversation.pause()
        if args.elicit == "decline":
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=answer_to(getattr(params, "requested_schema", None)))

    server = args.http or StdioServerParameters(command=args.stdio[0], args=args.stdio[1:])
    async with Client(
        server,
        # Not a pinned version: with one, the SDK asks the server for no instructions.
        mode="legacy" if args.era == "legacy" else "auto",
        elicitation_callback=on_elicitation if args.elicit else None,
    ) as client:
        listed = await client.list_tools()
        report = await conversation.have(
            lambda tool, values: client.call_tool(tool, values, progress_callback=conversation.on_progress)
        )
        tell(
            {
                "protocol": client.protocol_version,
                "server": client.server_info.name if client.server_info else None,
                "instructions": client.instructions,
                "tools": [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools],
            }
            | report
        )


anyio.run(main)
