"""Ungraded episodes for clients that speak only the 2026 era: a world behind a token, no task.

The 2026 era has no sessions, so state needs a handle: POST /play/<id> gives a URL with a token. It
lives until its lease ends; nothing of it is recorded or graded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from astra_mcp.concurrency import within
from astra_mcp.episode_data import now_s
from astra_mcp.errors import BusyError
from astra_mcp.host.catalog import Catalog, Held
from astra_mcp.host.planes import WorldService
from astra_mcp.host.shards import mark
from astra_mcp.host.tokens import new_token, token_hash
from astra_mcp.host.transport import Endpoint
from astra_mcp.settings import LOAD_S, HostSettings
from astra_mcp.world import Environment


@dataclass
class _Play:
    held: Held
    environment: Environment
    opened: float
    last_seen: float
    endpoints: dict[str | None, Endpoint] = field(default_factory=dict)


class Plays:
    """Open plays by the hash of their token."""

    def __init__(self, catalog: Catalog, settings: HostSettings) -> None:
        self._catalog = catalog
        self._settings = settings
        self._plays: dict[str, _Play] = {}
        self._opening = 0

    def __len__(self) -> int:
        return len(self._plays)

    async def open(self, bundle_id: str) -> str:
        """A fresh world; returns its token.

        Raises:
            BusyError: there are as many as the host keeps.
        """
        if len(self._plays) + self._opening >= self._settings.max_env_sessions:
            raise BusyError(
                f"This host keeps {self._settings.max_env_sessions} plays.", "Try again later."
            )
        self._opening += 1
        try:
            held = await self._catalog.hold(bundle_id)
            try:
                with within(LOAD_S, "Opening a world"):
                    environment = await held.world.open()
            except BaseException:
                held.release()
                raise
        finally:
            self._opening -= 1
        token, now = new_token(mark(self._settings)), now_s()
        self._plays[token_hash(token)] = _Play(held, environment, now, now)
        return token

    def endpoint(self, token: str, server: str | None) -> Endpoint | None:
        """The endpoint of a play, whole or of one server; None for every other token."""
        play = self._plays.get(token_hash(token))
        if play is None:
            return None
        play.last_seen = now_s()
        world = play.held.world
        if server is not None and server not in {s.name for s in world.servers}:
            return None
        if server not in play.endpoints:
            service = WorldService(world, play.held.title, play.environment, server)
            play.endpoints[server] = Endpoint(service=service, list_changed=False)
        return play.endpoints[server]

    async def sweep(self) -> None:
        """End every play whose lease is over."""
        now, settings = now_s(), self._settings
        for key, play in list(self._plays.items()):
            if now - play.last_seen > settings.idle_s or now - play.opened > settings.total_s:
                await self._end(key)

    async def aclose(self) -> None:
        """End all."""
        for key in list(self._plays):
            await self._end(key)

    async def _end(self, key: str) -> None:
        play = self._plays.pop(key, None)
        if play is not None:
            await play.environment.aclose()
            play.held.release()
