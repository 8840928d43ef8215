"""HTTP/1.1 answers read with as little work as is right, and a lean keep-alive connection.

For the benchmark alone, so that the client does not become what is measured: it understands answers
with a content length and chunked ones that end, and nothing else.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from astra_mcp.errors import BenchError

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length:"
_CHUNKED: Final = b"\r\ntransfer-encoding: chunked"
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"


def is_whole(data: bytes) -> bool:
    """Whether `data` is one answer to its end.

    Raises:
        BenchError: the answer says neither how long it is nor that it is chunked.
    """
    end = data.find(_HEAD_END)
    if end < 0:
        return False
    head = data[: end + 2].lower()
    at = head.find(_LENGTH)
    if at >= 0:
        start = at + len(_LENGTH)
        return len(data) >= end + 4 + int(head[start : head.find(b"\r\n", start)])
    if _CHUNKED in head:
        return data.endswith(_LAST_CHUNK)
    raise BenchError("A server sent an answer of unknown length.", "Run the benchmark again.")


def status_of(data: bytes) -> int:
    """The status of an answer, 0 when it has none."""
    return int(data[9:12]) if data[9:12].isdigit() else 0


def body_of(data: bytes) -> bytes:
    """The body of an answer with a content length."""
    return data[data.find(_HEAD_END) + 4 :]


def header_of(data: bytes, name: str) -> str:
    """A header of an answer, "" when it has none of that name."""
    head = data[: data.find(_HEAD_END)].split(b"\r\n")[1:]
    values = (line.partition(b":")[2] for line in head if line.lower().startswith(name.encode()))
    return next(values, b"").strip().decode("latin-1")


class Connection(asyncio.Protocol):
    """One request at a time over one connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._waiting: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio: connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Asyncio: a part of an answer, mostly all of it."""
        self._rest += data
        if self._waiting is not None and not self._waiting.done() and is_whole(self._rest):
            self._waiting.set_result(self._rest)
            self._rest = b""

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio: the server hung up."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionResetError("the server hung up"))

    async def exchange(self, request: bytes, seconds: float = 30.0) -> bytes:
        """The whole answer to a request, head and body; TimeoutError after `seconds`."""
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        async with asyncio.timeout(seconds):
            return await self._waiting

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a request."""
        data = await self.exchange(request)
        return status_of(data), body_of(data)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


async def connect(host: str, port: int) -> Connection:
    """A new connection."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(10):
        _, made = await loop.create_connection(Connection, host, port)
    return cast(Any, made)  # type: ignore[no-any-return]
