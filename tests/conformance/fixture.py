"""The server that the suite is pointed at: one host with an endpoint for each way to be served.

| URL | served by |
|---|---|
| /both/mcp | our transport, one service for all clients, both eras (as episodes are) |
| /sessions/mcp | our transport, a service per session, 2025 era (as /envs is) |
| /sdk/everything/mcp | the SDK's transport behind this host's checks |

Run as a script it prints its base URL and serves until its standard input closes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from astra_mcp.host import logs
from astra_mcp.host.http import HttpRequest
from astra_mcp.host.router import Route, Router
from astra_mcp.host.sdk import SdkMount
from astra_mcp.host.server import run, serve
from astra_mcp.host.service import McpService
from astra_mcp.host.sessions import Sessions
from astra_mcp.host.transport import Endpoint
from tests.conformance.lean import LeanService
from tests.conformance.sdk_server import Events, everything


async def main() -> None:
    """Serve until standard input closes."""
    both = Endpoint(LeanService(), list_changed=True)
    sessions = Endpoint(sessions=Sessions(_open, _close), eras=frozenset({"2025"}))
    mount = SdkMount(everything(), event_store=Events(), retry_ms=100)
    routes: dict[tuple[str, ...], Route] = {
        ("both", "mcp"): both,
        ("sessions", "mcp"): sessions,
        ("sdk", "everything", "mcp"): mount.route,
    }

    async def resolve(request: HttpRequest) -> Route | None:
        return routes.get(request.segments)

    router = Router(resolve, on_drain=[mount.drain])
    stop = anyio.Event()
    async with mount.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_at_eof, stop)
        await serve(
            router, ready=lambda info: print(info.url, flush=True), shutdown=stop, drain_s=1
        )


async def _open(client: Mapping[str, Any]) -> McpService:
    return LeanService()


async def _close(service: McpService) -> None:
    """Nothing is held."""


async def _stop_at_eof(stop: anyio.Event) -> None:
    await anyio.wait_readable(sys.stdin.fileno())
    while os.read(sys.stdin.fileno(), 4096):
        await anyio.wait_readable(sys.stdin.fileno())
    stop.set()


if __name__ == "__main__":
    logs.configure("WARNING")
    run(main)
