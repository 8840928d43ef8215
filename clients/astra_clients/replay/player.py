"""One recording sent to a host again, each answer compared with the recorded one.

The recorded bytes go out in the recorded order, one exchange at a time; event streams are opened
where they were and end where they ended. Nothing is retried, every wait has a deadline, and a
difference does not stop the replay: what follows from it is seen, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import anyio
import orjson
from anyio.abc import TaskGroup
from yarl import URL

from astra_clients.replay.filling import Filling, frames, operation, plain
from astra_mcp.errors import RecordingError
from astra_mcp.host.recording import answer_headers
from astra_mcp.host.tape import Exchange, Pair, Recording

Json = Any
EXCHANGE_S: Final = 120.0
#: Longest wait for the end of a stream, or for an event that was recorded of it.
STREAM_S: Final = 10.0
_AUTOMATIC: Final = ("accept", "accept-encoding", "content-type", "user-agent")
_AROUND: Final = 60
_FAILED: Final = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer is not the recorded one.

    Attributes:
        exchange: Number in the recording, from 0.
        request: What was asked.
        what: `status`, `headers`, `body`, `stream`, or `far distractors`.
        at: First byte that differs, in a body.
        recorded, now: Both, around that byte.
    """

    exchange: int
    request: str
    what: str
    at: int | None
    recorded: str
    now: str


@dataclass(slots=True)
class _Reply:
    """What came back, as it would have been recorded."""

    status: int | None = None
    headers: list[Pair] = field(default_factory=list)
    body: bytes = b""
    failure: str = ""


@dataclass(slots=True)
class _Stream:
    """A stream that is being listened to."""

    exchange: Exchange
    reply: _Reply = field(default_factory=_Reply)
    begun: anyio.Event = field(default_factory=anyio.Event)
    enough: anyio.Event = field(default_factory=anyio.Event)
    """Set when as many events have come as were recorded."""
    over: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Player:
    """Plays one recording.

    Args:
        pool: A session made by `new_pool`.
        origin: The host's address.
        control_token: Its control token.
        recording: What to play.
        filling: Holds what is known to differ; the player adds what it learns.
    """

    def __init__(
        self,
        pool: aiohttp.ClientSession,
        origin: str,
        control_token: str,
        recording: Recording,
        filling: Filling,
    ) -> None:
        self._pool = pool
        self._origin = origin
        self._recording = recording
        self._filling = filling
        self._names = {role: name for name, (role, _) in recording.header["replaced"].items()}
        filling.add(self._names["control"], control_token)
        # Answered like any other token that is not the right one.
        filling.add(self._names["other"], "some-other-token")
        self.differences: list[Difference] = []
        self.compared = 0
        self.skipped = 0
        self.episode_id = ""

    async def run(self) -> None:
        """Play all of it.

        Raises:
            RecordingError: it does not begin with the opening of its episode.
        """
        exchanges = self._recording.exchanges
        if not exchanges or operation(exchanges[0])[1] != "open_episode":
            raise RecordingError(
                "The recording does not begin with the opening of its episode.",
                "Replay recordings of episodes that were opened while the host recorded.",
            )
        streams: dict[int, _Stream] = {}
        async with anyio.create_task_group() as tasks:
            for number, exchange in enumerate(exchanges):
                for later in range(number, len(exchanges)):
                    if exchanges[later].streamed and exchanges[later].after == number:
                        streams[later] = await self._listen(tasks, exchanges[later])
                if exchange.status is None:
                    self.skipped += 1  # its client left before the host had understood it
                elif number in streams:
                    await self._end(number, streams[number])
                else:
                    reply = await self._send(exchange)
                    self._learn(exchange, reply)
                    self._compare(number, exchange, reply)
            tasks.cancel_scope.cancel()

    # ---- sending ------------------------------------------------------------------------

    async def _send(self, exchange: Exchange) -> _Reply:
        reply = _Reply()
        try:
            async with self._request(exchange) as response:
                reply.status = response.status
                reply.headers = self._headers(response)
                reply.body = await response.read()
        except _FAILED as error:
            reply.failure = type(error).__name__
        return reply

    def _request(self, exchange: Exchange) -> Any:
        fill = self._filling.fill
        url = URL(self._origin + fill(exchange.path.encode()).decode())
        if not exchange.path.startswith("/") or url.origin() != URL(self._origin).origin():
            # A file from elsewhere must not decide where this host's token is sent.
            raise RecordingError("a request of the recording leads to another host")
        return self._pool.request(
            exchange.method,
            url,
            data=fill(exchange.body) or None,
            headers=[(name, fill(value.encode()).decode()) for name, value in exchange.headers],
            skip_auto_headers=_AUTOMATIC,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=EXCHANGE_S),
        )

    def _headers(self, response: aiohttp.ClientResponse) -> list[Pair]:
        session = response.headers.get("mcp-session-id")
        if session is not None:
            self._filling.add(self._names["session"], session)
        return answer_headers(response.raw_headers, self._names["session"])

    async def _listen(self, tasks: TaskGroup, exchange: Exchange) -> _Stream:
        stream = _Stream(exchange)
        wanted = len(frames(exchange.answer))

        async def listen() -> None:
            with stream.scope:
                try:
                    async with self._request(exchange) as response:
                        stream.reply.status = response.status
                        stream.reply.headers = self._headers(response)
                        stream.begun.set()
                        async for part in response.content.iter_any():
                            stream.reply.body += part
                            if len(frames(stream.reply.body)) >= wanted:
                                stream.enough.set()
                except _FAILED as error:
                    stream.reply.failure = type(error).__name__
            for event in (stream.begun, stream.enough, stream.over):
                event.set()

        tasks.start_soon(listen)
        with anyio.move_on_after(EXCHANGE_S):
            await stream.begun.wait()
        return stream

    async def _end(self, number: int, stream: _Stream) -> None:
        """Wait for the stream's end, or for all that was recorded of it, and compare."""
        by_host = stream.exchange.ended == "host"
        with anyio.move_on_after(STREAM_S):
            await (stream.over if by_host else stream.enough).wait()
        stream.scope.cancel()
        await stream.over.wait()
        self._compare(number, stream.exchange, stream.reply)

    def _learn(self, exchange: Exchange, reply: _Reply) -> None:
        """The live episode's id and token, from the answer that opened it."""
        if operation(exchange)[1] != "open_episode":
            return
        then, now = _opened(exchange.answer), _opened(reply.body)
        self.episode_id = str(now.get("episode_id", ""))
        self._filling.add(str(then.get("token", "")), str(now.get("token", "")))
        self._filling.add(str(then.get("episode_id", "")), self.episode_id)
        origin = str(then.get("endpoint", "")).partition("/episodes/")[0]
        self._filling.add(origin, self._origin)

    # ---- comparing ----------------------------------------------------------------------

    def _compare(self, number: int, exchange: Exchange, reply: _Reply) -> None:
        self.compared += 1
        what, then, now = self._parts(exchange, reply)
        if what:
            self._differs(number, exchange, what, then, now)

    def _parts(self, exchange: Exchange, reply: _Reply) -> tuple[str, bytes, bytes]:
        """What differs first, and both; "" when nothing does."""
        if exchange.status != reply.status:
            now = reply.failure or str(reply.status)
            return "status", str(exchange.status).encode(), now.encode()
        headers = [(name, self._filling.blank(v.encode()).decode()) for name, v in reply.headers]
        if list(exchange.answer_headers) != headers:
            return "headers", orjson.dumps(exchange.answer_headers), orjson.dumps(headers)
        body = self._filling.blank(reply.body)
        if exchange.streamed:
            wanted, got = frames(exchange.answer), frames(body)
            if exchange.ended == "client":
                got = got[: len(wanted)]
            return "" if got == wanted else "stream", b"\n\n".join(wanted), b"\n\n".join(got)
        then, now_ = plain(exchange, exchange.answer), plain(exchange, body)
        return "" if then == now_ else "body", then, now_

    def _differs(self, number: int, exchange: Exchange, what: str, then: bytes, now: bytes) -> None:
        at = next(
            (i for i, (a, b) in enumerate(zip(then, now, strict=False)) if a != b),
            min(len(then), len(now)),
        )
        start = max(0, at - _AROUND)
        self.differences.append(
            Difference(
                exchange=number,
                request=" ".join(part for part in (exchange.method, *operation(exchange)) if part),
                what=what,
                at=at if what in ("body", "stream") else None,
                recorded=_text(then[start : at + _AROUND]),
                now=_text(now[start : at + _AROUND]),
            )
        )

    def far_differ(self, then: Sequence[str], now: Sequence[str]) -> None:
        """Note that other far distractors were drawn."""
        self.differences.insert(
            0,
            Difference(0, "open_episode", "far distractors", None, ", ".join(then), ", ".join(now)),
        )


def _opened(answer: bytes) -> Mapping[str, Json]:
    try:
        found = orjson.loads(answer)["result"]["structuredContent"]
    except (KeyError, TypeError, ValueError):
        return {}  # refused: the comparison shows it
    return found if isinstance(found, dict) else {}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
