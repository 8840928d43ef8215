"""The servers that `astra bench host` measures beside `astra serve`, each a process of its own.

All offer the same tool, `add(a, b) -> {"sum"}`. Each is what its own documentation tells people to
write: FastMCP as `run(transport="http")` serves it, the SDK's low-level server as its
`streamable_http_app` under uvicorn, this host with a trusted Python object. They listen on a port
that the kernel gives, write {"url", "path"} to a ready file, and end when standard input closes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import anyio

Json = Any
HOST = "127.0.0.1"
WORLD_ID = "bench-sums"


def serve_fastmcp(ready: Path) -> None:
    """FastMCP with its defaults."""
    from fastmcp import FastMCP

    server = FastMCP("bench")

    @server.tool
    def add(a: int, b: int) -> dict[str, int]:
        """Add two whole numbers and return their sum."""
        return {"sum": a + b}

    sock, port = _listening()
    _announce(ready, port, "/mcp")
    server.run(transport="http", host=HOST, port=port, sockets=[sock], show_banner=False)


def serve_sdk(ready: Path) -> None:
    """The SDK's low-level server over its streamable HTTP, without an access log."""
    import mcp_types as types
    import uvicorn
    from mcp.server.lowlevel import Server

    tool = types.Tool(
        name="add",
        description="Add two whole numbers and return their sum.",
        input_schema={
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    )

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        result = {"sum": given["a"] + given["b"]}
        text = types.TextContent(type="text", text=json.dumps(result))
        return types.CallToolResult(content=[text], structured_content=result)

    server: Any = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
    sock, port = _listening()
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    _announce(ready, port, "/mcp")
    uvicorn.Server(config).run(sockets=[sock])


class Sums:
    """The trusted object: what an operator would write."""

    def add(self, a: int, b: int) -> dict[str, int]:
        """Add two whole numbers."""
        return {"sum": a + b}


def serve_trusted(ready: Path, bundle: Path) -> None:
    """This host with a trusted object that has the bundle's own tool list."""
    from astra_mcp.host.run import hosting
    from astra_mcp.host.server import run
    from astra_mcp.host.tokens import new_token
    from astra_mcp.settings import HostSettings
    from astra_mcp.store import load_bundle
    from astra_mcp.trusted import TrustedWorld

    manifest = load_bundle(bundle).manifest
    world = TrustedWorld(f"{WORLD_ID}@1.0.0", manifest.servers, manifest.tools, Sums)

    async def main() -> None:
        settings = HostSettings(unaudited=True)
        async with hosting([], settings, new_token(), {WORLD_ID: world}) as host:
            _write(ready, {"url": host.url, "path": ""})
            await anyio.sleep_forever()

    run(main)


def _listening() -> tuple[socket.socket, int]:
    # The protocol is named, because event loops set TCP_NODELAY only on sockets that name it.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind((HOST, 0))
    sock.listen(2048)
    return sock, int(sock.getsockname()[1])


def _announce(ready: Path, port: int, path: str) -> None:
    _write(ready, {"url": f"http://{HOST}:{port}", "path": path})


def _write(path: Path, value: Json) -> None:
    """Write a file that nobody ever sees half written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value))
    os.replace(temporary, path)


def _end_with_stdin() -> None:
    """Leave as soon as standard input closes, whatever the servers do then."""

    def wait() -> None:
        while os.read(0, 4096):  # not sys.stdin, whose lock a daemon thread would hold at the end
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """`python -m astra_servers.bench_servers fastmcp|sdk|trusted READY_FILE [BUNDLE]`."""
    kind, ready, *rest = sys.argv[1:]
    _end_with_stdin()
    match kind:
        case "fastmcp":
            serve_fastmcp(Path(ready))
        case "sdk":
            serve_sdk(Path(ready))
        case "trusted":
            serve_trusted(Path(ready), Path(rest[0]))
        case _:
            sys.exit(f"There is no server {kind!r} here. Use fastmcp, sdk or trusted.")


if __name__ == "__main__":
    main()
