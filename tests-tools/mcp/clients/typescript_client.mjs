// The official TypeScript SDK, version 2: both eras.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Conversation, readArguments, tell } from "./shared.mjs";

const args = readArguments();
const conversation = new Conversation(args);
const client = new Client(
  { name: "typescript-client", version: "2" },
  {
    capabilities: args.elicit ? { elicitation: { form: {} } } : {},
    versionNegotiation: { mode: args.era === "legacy" ? "legacy" : { pin: "2026-07-28" } },
  },
);
if (args.elicit) client.setRequestHandler("elicitation/create", conversation.onElicitation);
await client.connect(
  args.http
    ? new StreamableHTTPClientTransport(new URL(args.http))
    : new StdioClientTransport({ command: args.stdio[0], args: args.stdio.slice(1) }),
);
const { tools } = await client.listTools();
const report = await conversation.have((name, values, options) => client.callTool({ name, arguments: values }, options));
tell({
  protocol: client.getNegotiatedProtocolVersion(),
  server: client.getServerVersion()?.name,
  instructions: client.getInstructions(),
  tools,
  ...report,
});
await client.close();
