// An authorization server (oidc-provider) and an MCP server that wants its tokens, for tests of logins. Prints the URL of the
// MCP server. `--ttl SECONDS`: how long access tokens are good.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import Provider from "oidc-provider";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import { InvalidTokenError } from "@modelcontextprotocol/sdk/server/auth/errors.js";

// Nobody reads stdout after the first line, and the provider prints warnings.
console.info = console.warn = console.error;
const express = createRequire(import.meta.url)("express");
const ttl = Number(process.argv[process.argv.indexOf("--ttl") + 1] ?? 3600);
const listen = (server) => new Promise((done) => server.listen(0, "127.0.0.1", () => done(server.address().port)));

const authorization = createServer();
const issuer = `http://127.0.0.1:${await listen(authorization)}`;
const resource = createServer();
const origin = `http://127.0.0.1:${await listen(resource)}`;
const url = `${origin}/mcp`;

const provider = new Provider(issuer, {
  scopes: ["openid", "offline_access", "tools"],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async (_context, client) => client.grantTypeAllowed("refresh_token"),
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => url,
      useGrantedResource: () => true,
      getResourceServerInfo: (_context, audience) => {
        if (audience !== url) throw new Error(`tokens are for ${url}, not for ${audience}`);
        return { scope: "tools", audience, accessTokenFormat: "opaque", accessTokenTTL: ttl };
      },
    },
  },
});
const issued = { access: [], refresh: [] };
provider.on("access_token.saved", (token) => issued.access.push(token));
provider.on("refresh_token.saved", (token) => issued.refresh.push(token));
provider.on("server_error", (_context, error) => console.error(error));
authorization.on("request", provider.callback());

const app = express();
app.use(express.json());
const metadata = { resource: url, authorization_servers: [issuer], scopes_supported: ["tools"] };
app.get("/.well-known/oauth-protected-resource/mcp", (_request, response) => response.json(metadata));
const verifier = {
  async verifyAccessToken(token) {
    const found = await provider.AccessToken.find(token);
    if (!found) throw new InvalidTokenError("unknown or expired");
    const expiresAt = Math.floor(Date.now() / 1000) + found.remainingTTL;
    return { token, clientId: found.clientId, scopes: [...found.scopes], expiresAt, extra: { account: found.accountId } };
  },
};
const resourceMetadataUrl = `${origin}/.well-known/oauth-protected-resource/mcp`;
const authorized = requireBearerAuth({ verifier, requiredScopes: ["tools"], resourceMetadataUrl });
app.post("/mcp", authorized, async (request, response) => {
  const server = new McpServer({ name: "vault", version: "1" });
  const text = (text) => ({ content: [{ type: "text", text }] });
  server.registerTool("who_am_i", { annotations: { readOnlyHint: true } }, () => text(request.auth.extra.account));
  server.registerTool("show_token", { annotations: { readOnlyHint: true } }, () => text(`it is ${request.auth.token}!`));
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
  await server.connect(transport);
  await transport.handleRequest(request, response, request.body);
});
// What only the test may do: end tokens before their time, and count them.
app.post("/control/revoke/:kind", async (request, response) => {
  const kinds = request.params.kind === "all" ? ["access", "refresh"] : [request.params.kind];
  for (const kind of kinds) await Promise.all(issued[kind].map((token) => token.destroy()));
  response.json({});
});
app.get("/control/issued", (_request, response) => {
  response.json({ access: issued.access.length, refresh: issued.refresh.length });
});
resource.on("request", app);
console.log(JSON.stringify({ url, issuer, control: `${origin}/control` }));
process.stdin.on("end", () => process.exit(0)).resume();
