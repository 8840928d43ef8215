"""The host's end of a line to a jailed process.

One request is outstanding at a time and only its answer may arrive: anything unsolicited, wrongly
tagged or too large is a breach, after which the line is dead and the owner kills the process. The
other side is hostile: nothing it sends is buffered beyond `limit` bytes or trusted beyond its
framing.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import cast

from astra_mcp.sandbox import wire


class LineClosed(Exception):
    """The other side is gone."""


class LineBreach(Exception):
    """The other side sent what it must not."""


class Line(asyncio.Protocol):
    """Requests and answers over one stream socket.

    Until `harden` is called, frames may come before they are expected: a process reports that it is
    ready. `stale_ok` is for fork servers, whose answer may come when nobody waits for it any more.
    """

    def __init__(self, limit: int, *, stale_ok: bool = False) -> None:
        self.limit = limit
        self.closed = False
        self.breached = False
        self._stale_ok = stale_ok
        self._strict = False
        self._buffer = bytearray()
        self._tag = wire.NO_TAG
        self._waiting: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        # Asked for once: in Python 3.11 finding the running loop costs a system call.
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: the line is up."""
        # uvloop's transports are no asyncio.Transport, only shaped like one.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio: the line is down."""
        self.closed = True
        self._fail(LineBreach() if self.breached else LineClosed())

    def data_received(self, data: bytes) -> None:
        """Asyncio: bytes came."""
        self._buffer += data
        if self._waiting is not None:
            self._take_frame()
        elif self._strict or len(self._buffer) > self.limit + wire.HEADER.size:
            self._breach()

    def harden(self) -> None:
        """From here on nothing may come unless it is awaited."""
        self._strict = True
        if self._buffer:
            self._breach()

    def _take_frame(self) -> None:
        while self._waiting is not None and len(self._buffer) >= wire.HEADER.size:
            size, tag = wire.HEADER.unpack_from(self._buffer)
            if size > self.limit or not (tag == self._tag or self._stale_ok):
                self._breach()
                return
            end = wire.HEADER.size + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[wire.HEADER.size : end])
            del self._buffer[:end]
            if self._buffer and self._strict:
                self._breach()
                return
            if tag == self._tag:
                waiting, self._waiting = self._waiting, None
                if not waiting.done():
                    waiting.set_result(body)

    def _breach(self) -> None:
        self.breached = True
        self._buffer.clear()
        self._fail(LineBreach())
        self.close()

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def send(self, body: bytes, tag: bytes = wire.NO_TAG) -> None:
        """Send a frame.

        Raises:
            LineClosed: the other side is gone.
        """
        if self.closed or self._transport is None:
            raise LineClosed
        self._transport.write(wire.frame(tag, body))

    def expect(self, tag: bytes = wire.NO_TAG) -> asyncio.Future[bytes]:
        """The next frame, which must carry `tag`; the future fails with LineBreach or LineClosed.

        Raises:
            LineBreach: it sent what it must not already.
            LineClosed: the other side is gone.
        """
        if self.breached:
            raise LineBreach
        if self.closed and not self._buffer:
            raise LineClosed
        waiting = self._loop.create_future()
        self._tag, self._waiting = tag, waiting
        if self._buffer:
            self._take_frame()
        if self.closed and not waiting.done():
            self._fail(LineClosed())
        return waiting

    def request(self, body: bytes) -> asyncio.Future[bytes]:
        """Send a frame under a fresh tag and await the answer to it."""
        tag = secrets.token_bytes(wire.TAG_BYTES)
        answer = self.expect(tag)
        if not self.closed:
            self.send(body, tag)
        return answer

    def close(self) -> None:
        """Drop the line at once."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
