"""Serves one bundle alone over HTTP at /mcp of this machine, through the host's own transport.

Promises what /envs/<id>/mcp of a host does: each 2025-era session has its own fresh state, a
2026-era request is told which versions are served, sessions end with their lease. Only loopback is
listened on; other addresses, episodes, the control plane and grades are `astra serve`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import anyio

from astra_mcp.host.http import HttpRequest, Security
from astra_mcp.host.logs import configure
from astra_mcp.host.planes import WorldService
from astra_mcp.host.router import Route, Router
from astra_mcp.host.server import ServerInfo, serve
from astra_mcp.host.service import McpService
from astra_mcp.host.sessions import Sessions
from astra_mcp.host.transport import Endpoint
from astra_mcp.settings import HostSettings
from astra_servers.bundle_server import Served

SWEEP_S = 1.0


async def serve_http(served: Served, port: int) -> None:
    """Serve until SIGTERM or SIGINT; says on stderr where.

    Raises:
        SandboxUnavailable, LoadError: the world cannot be started.
        ListenError: the address cannot be listened on.
    """
    configure()
    settings = HostSettings()
    async with served.world() as world:

        async def open_service(_client: Mapping[str, Any]) -> McpService:
            return served.service(world, await world.open())

        sessions = Sessions(
            open_service, _close, idle_s=settings.idle_s, limit=settings.max_env_sessions
        )
        endpoint = Endpoint(sessions=sessions, eras=frozenset({"2025"}), list_changed=False)

        async def resolve(request: HttpRequest) -> Route | None:
            return endpoint if request.segments == ("mcp",) else None

        await (await world.open()).aclose()  # a bundle that does not load is told now
        router = Router(resolve, security=Security())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_sweep, sessions)
            await serve(router, port=port, ready=_announce, drain_s=settings.drain_s)
            tasks.cancel_scope.cancel()
        await sessions.aclose()


async def _close(service: McpService) -> None:
    assert isinstance(service, WorldService)  # open_service makes no other
    await service.aclose()


async def _sweep(sessions: Sessions) -> None:
    """End what nobody uses any more, until cancelled."""
    while True:
        await anyio.sleep(SWEEP_S)
        await sessions.sweep()


def _announce(info: ServerInfo) -> None:
    print(f"listening on {info.url}/mcp", file=sys.stderr, flush=True)
