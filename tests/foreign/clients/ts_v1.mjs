// The TypeScript SDK 1.x client: 2025-era sessions only.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { target, tell, walk } from "./walk.mjs";

const client = new Client({ name: "ts-v1", version: "1.0.0" });
const transport = target.url
  ? new StreamableHTTPClientTransport(new URL(target.url))
  : new StdioClientTransport({ command: target.command[0], args: target.command.slice(1) });
let sent;
if (target.url) {
  const remember = transport.setProtocolVersion.bind(transport);
  transport.setProtocolVersion = (version) => remember((sent = version));
}
await client.connect(transport);
const report = await walk(client);
report.protocol = sent ?? null;
report.session = transport.sessionId !== undefined;
if (target.url && report.session) await transport.terminateSession();
await client.close();
await tell(report);
