"""One HTTP/1.1 request and the answer to it: what an ASGI application is given and gives.

The head of an answer is kept until the first part of its body, so that both are one write. No
header of an answer holds a line break. Order, limits and the socket are the connection's.
"""

from __future__ import annotations

import asyncio
import http
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from astra_mcp.host.http import JSON_TYPE, Header

STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
}
#: What nearly every answer looks like, ready but for date, length and body.
_JSON: Final = [JSON_TYPE]
_JSON_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
)
_BREAK: Final = re.compile(rb"[\r\n]")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Peer(Protocol):
    """The connection, as an exchange sees it."""

    half_closed: bool
    read_paused: bool

    @property
    def write_paused(self) -> bool:
        """Whether the client reads more slowly than it is answered."""

    def write(self, data: bytes) -> None:
        """Send bytes, unless the client is gone."""

    def count(self, status: int) -> None:
        """An answer of that status begins."""

    def date_line(self) -> bytes:
        """Headers that every answer has."""

    def throttle(self) -> None:
        """Read on if there is room again."""

    def finished(self, exchange: Exchange) -> None:
        """The answer is complete."""

    async def writable(self) -> None:
        """Return once the client has caught up, or is gone."""


class Exchange:
    """One request and the answer to it."""

    __slots__ = (
        "_connection",
        "_event",
        "_given",
        "_head",
        "_waits_for_100",
        "announced",
        "answered",
        "body",
        "chunked",
        "done",
        "keep_alive",
        "lost",
        "scope",
        "whole",
    )

    def __init__(self, connection: Peer, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.body: bytes | bytearray = b""
        self.whole = False
        self.announced = False
        self.keep_alive = True
        self.answered = False
        self.done = False
        self.lost = False
        self.chunked = False
        self._connection = connection
        self._head: tuple[int, Sequence[Header]] | None = None
        self._event: asyncio.Event | None = None
        self._given = False
        self._waits_for_100 = False

    def wait_for_100(self) -> None:
        """The client sends its body only once it is told to."""
        self._waits_for_100 = True

    def wake(self) -> None:
        """Something happened that `receive` may wait for."""
        if self._event is not None:
            self._event.set()

    async def receive(self) -> Mapping[str, Any]:
        """ASGI: the body, then that the client is gone or has its answer."""
        if self._waits_for_100 and not self.answered:
            self._waits_for_100 = False
            self._connection.write(_CONTINUE)
        while not (self._given or self.whole or self.body or self.lost or self.done):
            await self._wait()
        if self._given or self.lost or self.done:
            while not (self.lost or self.done or self._connection.half_closed):
                await self._wait()
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        self._given = self.whole
        if self._connection.read_paused:
            self._connection.throttle()
        return {"type": "http.request", "body": bytes(body), "more_body": not self.whole}

    async def _wait(self) -> None:
        if self._event is None:
            self._event = asyncio.Event()
        self._event.clear()
        await self._event.wait()

    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """The whole answer at once: what `send` of a head and of the only part of a body does."""
        if self.done or self.lost:
            return
        if status == 200 and list(headers) == _JSON and self._is_plain:
            self.answered = True
            self._connection.count(status)
            self._connection.write(_JSON_ANSWER % (self._connection.date_line(), len(body), body))
        else:
            self._head = status, headers
            self._start(body, more=False)
        self.done = True
        self._connection.finished(self)

    @property
    def _is_plain(self) -> bool:
        """Whether the answer has a body and the connection goes on after it."""
        return self.keep_alive and self.scope["method"] != "HEAD"

    async def send(self, message: Mapping[str, Any]) -> None:
        """ASGI: the head is kept until the first part of the body, so that both go out at once."""
        if self.done or self.lost:
            return
        if message["type"] == "http.response.start":
            self._head = message["status"], message.get("headers", ())
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if not self.answered:
            self._start(body, more=more)
        elif body or not more:
            self._connection.write(self._part(body, more))
        if not more:
            self.done = True
            self._connection.finished(self)
        elif self._connection.write_paused:
            await self._connection.writable()

    def _start(self, body: bytes, *, more: bool) -> None:
        if self._head is None:
            raise RuntimeError("An answer has a body before its head. Send the head first.")
        status, headers = self._head
        bodiless = self.scope["method"] == "HEAD" or status in (204, 304)
        sized, closes = bodiless, False
        parts = [STATUS_LINES[status], self._connection.date_line()]
        for name, value in headers:
            if _BREAK.search(name) or _BREAK.search(value):
                raise RuntimeError("A header of an answer holds a line break. Remove it.")
            parts += (name, b": ", value, b"\r\n")
            lower = name.lower()
            sized = sized or lower == b"content-length"
            if lower == b"connection" and value.lower() == b"close":
                self.keep_alive, closes = False, True
        if not sized:
            if not more:
                parts.append(b"content-length: %d\r\n" % len(body))
            elif self.scope["http_version"] == "1.1":
                self.chunked = True
                parts.append(b"transfer-encoding: chunked\r\n")
        if not (self.keep_alive or closes):
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        self.answered = True
        self._connection.count(status)
        self._connection.write(b"".join(parts) + (b"" if bodiless else self._part(body, more)))

    def _part(self, body: bytes, more: bool) -> bytes:
        if not self.chunked:
            return body
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk if more else chunk + _LAST_CHUNK
