// The official TypeScript SDK, version 1: the old era only.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { Conversation, readArguments, tell } from "./shared.mjs";

const args = readArguments();
if (args.era !== "legacy") throw new Error("version 1 of the SDK knows only --era legacy");
const conversation = new Conversation(args);
const client = new Client(
  { name: "typescript1-client", version: "1" },
  { capabilities: args.elicit ? { elicitation: {} } : {} },
);
if (args.elicit) client.setRequestHandler(ElicitRequestSchema, conversation.onElicitation);
const transport = args.http
  ? new StreamableHTTPClientTransport(new URL(args.http))
  : new StdioClientTransport({ command: args.stdio[0], args: args.stdio.slice(1) });
let protocol;
transport.setProtocolVersion = (version) => (protocol = version);
await client.connect(transport);
const { tools } = await client.listTools();
const report = await conversation.have((name, values, options) =>
  client.callTool({ name, arguments: values }, undefined, options),
);
tell({
  protocol,
  server: client.getServerVersion()?.name,
  instructions: client.getInstructions(),
  tools,
  ...report,
});
await client.close();
