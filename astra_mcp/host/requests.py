"""Idempotency of control requests: a repeated request_id gives the first answer, changing nothing.

Requests that failed are forgotten, since they changed nothing. Two copies of a request in flight
run once; the second waits. Each episode has a memory of its own, which lives as long as the episode
is in memory and is filled again from its journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import orjson

from astra_mcp.errors import EpisodeError
from astra_mcp.host.tokens import token_hash

Json = Any
WAIT_S: Final = 120.0
Run = Callable[[], Awaitable[dict[str, Json]]]


@dataclass
class _Remembered:
    fingerprint: str
    done: anyio.Event | None = field(default_factory=anyio.Event)
    result: bytes | None = None


class RequestMemory:
    """Answers by request_id."""

    def __init__(self) -> None:
        self._kept: dict[str, _Remembered] = {}

    async def once(self, request_id: str, fingerprint: str, run: Run) -> dict[str, Json]:
        """Run a mutating request, or give what the same request gave before.

        Raises:
            EpisodeError: the request_id was used for another request, or the request took too long.
        """
        while (known := self._kept.get(request_id)) is not None:
            if known.fingerprint != fingerprint:
                raise reused(request_id)
            if known.result is None and known.done is not None:
                with anyio.move_on_after(WAIT_S) as waiting:
                    await known.done.wait()
                if waiting.cancelled_caught:
                    raise EpisodeError("The same request is still running.", "Send it again later.")
            if known.result is not None:
                answer: dict[str, Json] = orjson.loads(known.result)
                return answer
        return await self._run(request_id, fingerprint, run)

    async def _run(self, request_id: str, fingerprint: str, run: Run) -> dict[str, Json]:
        mine = self._kept[request_id] = _Remembered(fingerprint)
        done = mine.done
        try:
            # Shielded: a caller that hangs up must not leave a half-done request behind.
            with anyio.CancelScope(shield=True), anyio.fail_after(WAIT_S):
                result = await run()
            mine.result, mine.done = orjson.dumps(result), None
            return result
        except TimeoutError as error:
            raise EpisodeError(
                f"The request took longer than {WAIT_S:g} s.", "Send it again with its request_id."
            ) from error
        finally:
            if mine.result is None:
                self.forget(request_id)
            if done is not None:
                done.set()

    def remember(self, request_id: str, fingerprint: str, result: dict[str, Json]) -> None:
        """Fill in an answer that was given before a restart."""
        self._kept[request_id] = _Remembered(fingerprint, None, orjson.dumps(result))

    def forget(self, request_id: str) -> None:
        """Let the request run again."""
        self._kept.pop(request_id, None)


def fingerprint(tool: str, *parts: Json) -> str:
    """What makes two requests of one request_id the same request."""
    return token_hash(orjson.dumps([tool, *parts]).decode())


def reused(request_id: str) -> EpisodeError:
    """The request_id belongs to another request."""
    return EpisodeError(
        f"The request_id {request_id[:80]!r} belongs to another request.",
        "Use a new request_id for every new request.",
    )
