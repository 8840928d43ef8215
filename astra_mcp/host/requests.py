"""Idempotency of control requests: a repeated request_id gives the first answer, changing nothing.

Requests that failed are forgotten, since they changed nothing. Two copies of a request in flight
run once; the second waits. Bounded: the oldest answers go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import orjson

from astra_mcp.errors import EpisodeError
from astra_mcp.host.tokens import token_hash

Json = Any
WAIT_S: Final = 120.0
REMEMBERED: Final = 100_000


@dataclass
class _Remembered:
    fingerprint: str
    done: anyio.Event = field(default_factory=anyio.Event)
    result: dict[str, Json] | None = None


class RequestMemory:
    """Answers by request_id."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Remembered] = OrderedDict()

    async def once(
        self,
        request_id: str,
        fingerprint: str,
        run: Callable[[], Awaitable[dict[str, Json]]],
    ) -> dict[str, Json]:
        """Run a mutating request, or give what the same request gave before.

        Raises:
            EpisodeError: the request_id was used for another request, or the request took too long.
        """
        known = self._kept.get(request_id)
        if known is not None:
            if known.fingerprint != fingerprint:
                raise EpisodeError(
                    f"The request_id {request_id[:80]!r} belongs to another request.",
                    "Use a new request_id for every new request.",
                )
            with anyio.move_on_after(WAIT_S):
                await known.done.wait()
            if known.result is not None:
                return known.result
            if not known.done.is_set():
                raise EpisodeError("The same request is still running.", "Send it again later.")
            return await self.once(request_id, fingerprint, run)  # the first copy failed
        return await self._run(request_id, fingerprint, run)

    async def _run(
        self,
        request_id: str,
        fingerprint: str,
        run: Callable[[], Awaitable[dict[str, Json]]],
    ) -> dict[str, Json]:
        mine = self._kept[request_id] = _Remembered(fingerprint)
        try:
            # Shielded: a caller that hangs up must not leave a half-done request behind.
            with anyio.CancelScope(shield=True), anyio.fail_after(WAIT_S):
                result = await run()
            mine.result = result
            return result
        except TimeoutError as error:
            raise EpisodeError(
                f"The request took longer than {WAIT_S:g} s.", "Send it again with its request_id."
            ) from error
        finally:
            if mine.result is None and self._kept.get(request_id) is mine:
                del self._kept[request_id]
            mine.done.set()
            while len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)

    def remember(self, request_id: str, fingerprint: str, result: dict[str, Json]) -> None:
        """Fill in an answer that was given before a restart."""
        kept = self._kept[request_id] = _Remembered(fingerprint, result=result)
        kept.done.set()


def fingerprint(tool: str, *parts: Json) -> str:
    """What makes two requests of one request_id the same request."""
    return token_hash(orjson.dumps([tool, *parts]).decode())
