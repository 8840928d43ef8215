"""Requests that real clients sent, byte for byte, and the service that they were sent to.

`python tests/host/recorded.py` visits it with every client again and writes
tests/data/recorded_requests.json: {client: [{"method", "headers", "body"}, ...]} in the order of
arrival. In place of a session's id stands SESSION; headers of the connection are left out. The
visits of clients that live elsewhere are those of tests/foreign.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "foreign")]

from transport_toy import TOOLS, Toy, tool  # noqa: E402

from astra_mcp.host.router import Router  # noqa: E402
from astra_mcp.host.server import ServerInfo, serve  # noqa: E402
from astra_mcp.host.service import CallContext, ToolListing, ToolResult  # noqa: E402
from astra_mcp.host.transport import Endpoint  # noqa: E402

Json = Any
FILE = ROOT / "tests" / "data" / "recorded_requests.json"
SESSION = "{session}"
#: Of the connection, not of the request.
DROPPED = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}
COUNTER = {"type": "object", "properties": {"value": {"type": "integer"}}}


def _counting(name: str, read_only: bool, **properties: Json) -> Json:
    hints = {"readOnlyHint": read_only}
    return {**tool(name, properties), "outputSchema": COUNTER, "annotations": hints}


@dataclass
class Counter(Toy):
    """The toy with the tools of the bundle that tests/foreign visits."""

    instructions: str | None = "Move the counter and read it."
    listing: ToolListing = field(
        default_factory=lambda: ToolListing(
            [
                *TOOLS,
                _counting("increment", False, by={"type": "integer"}),
                _counting("read_counter", True),
            ]
        )
    )

    async def call_tool(
        self, name: str, arguments: Mapping[str, Json], ctx: CallContext
    ) -> ToolResult:
        """Count in steps of 1 to 50 up to 100."""
        if name not in ("increment", "read_counter"):
            return await super().call_tool(name, arguments, ctx)
        by = arguments.get("by", 1) if name == "increment" else 0
        if name == "increment" and not 1 <= by <= 50:
            return ToolResult.error("invalid_arguments", "by is no integer from 1 to 50")
        if self.counter + by > 100:
            return ToolResult.error("limit_reached", "the counter stops at 100")
        self.counter += by
        return ToolResult.ok({"value": self.counter})


@dataclass
class Recorder:
    """An ASGI application that keeps what comes to another one."""

    app: Router
    requests: list[Json] = field(default_factory=list)

    def drain(self) -> None:
        """Pass it on."""
        self.app.drain()

    async def __call__(self, scope: Json, receive: Json, send: Json) -> None:
        """Serve, and keep the request."""
        lines = [(k.decode(), v.decode("latin-1")) for k, v in scope["headers"]]
        headers = {k: SESSION if k == "mcp-session-id" else v for k, v in lines if k not in DROPPED}
        kept = {"method": scope["method"], "headers": headers, "body": ""}
        self.requests.append(kept)

        async def listen() -> Json:
            message = await receive()
            kept["body"] += message.get("body", b"").decode()
            return message

        await self.app(scope, listen, send)


@asynccontextmanager
async def recording() -> Any:
    """A server for one client; gives its URL and what it recorded."""
    endpoint = Endpoint(Counter())

    async def resolve(request: Any) -> Endpoint:
        return endpoint

    recorder = Recorder(Router(resolve))
    ready, stop = anyio.Event(), anyio.Event()
    infos: list[ServerInfo] = []

    def on_ready(info: ServerInfo) -> None:
        infos.append(info)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            lambda: serve(recorder, ready=on_ready, shutdown=stop, catch_signals=False, drain_s=1)
        )
        await ready.wait()
        yield f"{infos[0].url}/mcp", recorder.requests
        stop.set()


async def _python(client_type: Any, url: str, mode: str) -> None:
    """A visit with everything that a client may ask for."""
    from fastmcp.exceptions import FastMCPError
    from mcp.shared.exceptions import MCPError

    async def told(*_: Any) -> None:
        return None

    async with client_type(url, mode=mode) as client:
        await client.list_tools()
        await client.list_resources()
        await client.list_resource_templates()
        await client.read_resource("toy://a")
        await client.call_tool("increment", {"by": 2})
        await client.call_tool("echo", {"text": "é\u2028😀 \\u0000"})
        await client.call_tool("wide", {})
        fast = client_type.__module__.startswith("fastmcp")
        watched = {"progress_handler" if fast else "progress_callback": told}
        await client.call_tool("steps", {"n": 3}, **watched)
        quiet = {"raise_on_error": False} if fast else {}
        await client.call_tool("increment", {"by": 0}, **quiet)
        await client.call_tool("fail", {}, **quiet)
        for ask in (
            lambda: client.call_tool("no_such_tool", {}),
            lambda: client.read_resource("toy://none"),
            lambda: client.list_prompts(),
        ):
            try:
                await ask()
            except (MCPError, FastMCPError):
                continue


async def _script(name: str, url: str, mode: Json) -> None:
    from environments import node, node_folder  # tests/foreign

    from tests.support.installed import clean_env

    command = [str(node()), str(node_folder() / name), json.dumps({"url": url, "mode": mode})]
    with tempfile.TemporaryDirectory() as home:
        await anyio.run_process(command, env=clean_env(Path(home)), stderr=subprocess.STDOUT)


def visits() -> dict[str, Callable[[str], Awaitable[None]]]:
    """How each client is sent to a URL."""
    import fastmcp
    import mcp

    return {
        "mcp 2.3.0, 2026": lambda url: _python(mcp.Client, url, "2026-07-28"),
        "mcp 2.3.0, its choice": lambda url: _python(mcp.Client, url, "auto"),
        "mcp 2.3.0, 2025": lambda url: _python(mcp.Client, url, "legacy"),
        "fastmcp 4.2.3, its choice": lambda url: _python(fastmcp.Client, url, "auto"),
        "fastmcp 4.2.3, 2025": lambda url: _python(fastmcp.Client, url, "legacy"),
        "TypeScript client 2.4.0, its choice": lambda url: _script("ts_v2.mjs", url, "auto"),
        "TypeScript client 2.4.0, 2025": lambda url: _script("ts_v2.mjs", url, "legacy"),
        "TypeScript SDK 1.32.2": lambda url: _script("ts_v1.mjs", url, None),
    }


async def main() -> None:
    """Record all."""
    corpus = {}
    for name, visit in visits().items():
        async with recording() as (url, requests):
            await visit(url)
        corpus[name] = requests
        print(f"{name}: {len(requests)} requests")
    FILE.write_text(json.dumps(corpus, indent=1, ensure_ascii=True) + "\n", "utf-8")


if __name__ == "__main__":
    anyio.run(main)
