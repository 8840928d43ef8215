"""Sessions of the 2025 era that each have a service of their own, as /envs/<id>/mcp needs.

A session starts with `initialize`, and ends with DELETE, with its idle lease, or with the host; its
service is closed exactly once. A request or stream in flight holds the lease. The id is a
capability: 128 random bits.

The host calls `sweep` now and then; nothing here runs by itself.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from astra_mcp.errors import BusyError
from astra_mcp.host.service import McpService

Json = Any
Clock = Callable[[], float]


@dataclass(slots=True)
class Session:
    """One client's connection in the 2025 era.

    Attributes:
        id: What the client sends as `Mcp-Session-Id`.
        client_info: What it said about itself in `initialize`.
        in_flight: Requests and streams that are being served.
        last_used: Clock seconds when the last of them ended.
    """

    id: str
    service: McpService
    client_info: Mapping[str, Json]
    last_used: float
    in_flight: int = 0


class Sessions:
    """The open sessions of one endpoint.

    Args:
        open_service: Makes a fresh service for a client; may raise BusyError.
        close_service: Ends a service; called once for each that was opened.
        idle_s: Seconds without a request after which `sweep` ends a session.
        limit: Most sessions at a time; `initialize` is refused with BusyError beyond it.
        clock: Seconds, monotonic.
        mark: What ids begin with, before their random bits (shards.py).
    """

    def __init__(
        self,
        open_service: Callable[[Mapping[str, Json]], Awaitable[McpService]],
        close_service: Callable[[McpService], Awaitable[None]],
        *,
        idle_s: float = 600.0,
        limit: int = 256,
        clock: Clock = time.monotonic,
        mark: str = "",
    ) -> None:
        self._open_service = open_service
        self._close_service = close_service
        self._idle_s = idle_s
        self._limit = limit
        self._clock = clock
        self._mark = mark
        self._opening = 0
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(self, client_info: Mapping[str, Json]) -> Session:
        """A new session with a fresh service.

        Raises:
            BusyError: There are `limit` sessions already.
        """
        if len(self._sessions) + self._opening >= self._limit:
            raise BusyError(
                "There are as many sessions here as the server keeps.",
                "Try again later, or end a session with DELETE.",
            )
        self._opening += 1
        try:
            service = await self._open_service(client_info)
        finally:
            self._opening -= 1
        session_id = self._mark + secrets.token_hex(16)
        session = Session(session_id, service, client_info, self._clock())
        self._sessions[session.id] = session
        return session

    def enter(self, session_id: str) -> Session | None:
        """The session, held until `leave`; None when there is no such one."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.in_flight += 1
        return session

    def leave(self, session: Session) -> None:
        """A request of this session is over: its lease starts anew."""
        session.in_flight -= 1
        session.last_used = self._clock()

    async def close(self, session_id: str) -> Session | None:
        """End a session, whatever is in flight; None when there is no such one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await self._close_service(session.service)
        return session

    async def sweep(self) -> list[Session]:
        """End every session whose lease is over; returns them."""
        before = self._clock() - self._idle_s
        idle = [s for s in self._sessions.values() if not s.in_flight and s.last_used <= before]
        return [session for session in idle if await self.close(session.id)]

    async def aclose(self) -> None:
        """End all sessions."""
        for session_id in list(self._sessions):
            await self.close(session_id)
