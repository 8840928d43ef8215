// The TypeScript 2.x client; {"mode": "legacy" | "auto" | {"pin": version}} chooses the era.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { target, tell, walk } from "./walk.mjs";

const client = new Client(
  { name: "ts-v2", version: "1.0.0" },
  { versionNegotiation: { mode: target.mode } },
);
const transport = target.url
  ? new StreamableHTTPClientTransport(new URL(target.url))
  : new StdioClientTransport({ command: target.command[0], args: target.command.slice(1) });
try {
  await client.connect(transport);
} catch (error) {
  await tell({ refused_to_connect: String(error.message), code: error.code ?? null });
  process.exit(0);
}
const report = await walk(client);
report.protocol = client.getNegotiatedProtocolVersion();
report.session = transport.sessionId !== undefined;
if (target.url && report.session) await transport.terminateSession();
await client.close();
await tell(report);
