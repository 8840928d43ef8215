"""Requests from one process of a host to another: HTTP/1.1 over a Unix socket, one at a time.

The sockets lie in a folder of mode 0700. Reaching one gives nothing: whoever serves it checks
tokens as for any client. Connections are kept and used again. Answers go on as they come, streams
included; a client's departure is passed on as the end of our side, which the owner of the request
sees as it would see the client's.

Invariants: every wait has a deadline; a peer that is not there, or goes away, gives 503 with
Retry-After; what is not read by the client is not read from the peer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import httptools

from astra_mcp.errors import HttpError
from astra_mcp.host.http import INTERNAL_ERROR, Disconnected, Header, HttpRequest

CONNECT_S: Final = 5.0
#: Longest silence of a peer; longer than any call may take (transport.Endpoint.call_deadline_s).
SILENCE_S: Final = 330.0
#: Longest answer time of a peer to a question of ours, such as /healthz.
ASK_S: Final = 5.0
#: An idle connection is not used again after so many seconds: the peer is about to close it.
IDLE_S: Final = 30.0
IDLE_MOST: Final = 64
#: After so many seconds it is worth looking whether the client is still there.
PATIENCE_S: Final = 0.05
#: Most bytes of an answer that wait for the client.
AHEAD: Final = 256 * 1024
#: Most bytes of an answer to a question of ours.
ANSWER_BYTES: Final = 64 << 20

_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade",
     b"expect", b"content-length", b"proxy-connection"}
)  # fmt: skip
#: Of an answer: what the server gives to every answer anew.
_OURS: Final = frozenset({b"date", b"connection", b"transfer-encoding", b"keep-alive"})


def socket_path(folder: Path, shard: int) -> Path:
    """Where a shard listens for its peers."""
    return folder / f"{shard}.sock"


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A bound socket for peers; its file is there as long as the block runs."""
    path.unlink(missing_ok=True)  # of a process that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))
        path.chmod(0o600)
        try:
            yield sock
        finally:
            path.unlink(missing_ok=True)


def gone(acted: bool = False) -> HttpError:
    """The peer is not there; with `acted`, it may have acted on the request before it went."""
    if acted:
        what = "The process that keeps this went away during the request."
        remedy = "Send it again in 1 s, with the same request_id or call id."
    else:
        what, remedy = "The process that keeps this is being restarted.", "Try again in 1 s."
    return HttpError(503, what, remedy, [(b"retry-after", b"1")], INTERNAL_ERROR)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    headers: list[Header]
    body: bytes


class _Link(asyncio.Protocol):
    """One connection to a peer, for one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self.idle_since = 0.0
        self.on_lost: _Idle | None = None
        self._woken: asyncio.Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self.parts: list[bytes] = []
        self.size = 0
        self.whole = False
        self.keep = False
        self.bodiless = False
        self._reading = True
        self._parser = httptools.HttpResponseParser(self)

    def ask(self, head: bytes, *, bodiless: bool) -> None:
        """Send a request."""
        self._begin()
        self.bodiless = bodiless
        if self.transport is not None:
            self.transport.write(head)

    # ---- asyncio and httptools ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is of another class

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.abort()
        if self.size > AHEAD and self._reading and not self.whole and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.on_lost is not None:
            self.on_lost.forget(self)
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.keep = self._parser.should_keep_alive() and not self.bodiless
        if self.bodiless:  # the parser would wait for the body that the length announces
            self.whole = True

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)
        self.size += len(body)

    def on_message_complete(self) -> None:
        self.whole = True

    # ---- the one that asks --------------------------------------------------------------

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def more(self, silence_s: float) -> None:
        """Wait until more of the answer has come, or all, or the connection is lost."""
        if self.lost or self.whole:
            return
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        timer = loop.call_later(silence_s, self.abort)
        try:
            await self._woken
        finally:
            timer.cancel()
            self._woken = None

    def take(self) -> bytes:
        """What has come of the body since the last time."""
        body = b"".join(self.parts)
        self.parts.clear()
        self.size = 0
        if not self._reading and self.transport is not None and not self.lost:
            self._reading = True
            self.transport.resume_reading()
        return body

    def half_close(self) -> None:
        """Say that nothing more will be asked: the client is gone, or says so."""
        if self.transport is not None and not self.lost and self.transport.can_write_eof():
            self.transport.write_eof()
            self.keep = False

    def abort(self) -> None:
        """Hang up at once."""
        if self.transport is not None:
            self.transport.abort()
        self.lost = True
        self._wake()


class _Idle:
    """Connections to one peer that wait to be used again."""

    def __init__(self) -> None:
        self._links: list[_Link] = []

    def take(self, now: float) -> _Link | None:
        while self._links:
            link = self._links.pop()
            link.on_lost = None
            if not link.lost and now - link.idle_since < IDLE_S:
                return link
            link.abort()
        return None

    def put(self, link: _Link, now: float) -> None:
        if len(self._links) >= IDLE_MOST:
            link.abort()
            return
        link.idle_since = now
        link.on_lost = self
        self._links.append(link)

    def forget(self, link: _Link) -> None:
        if link in self._links:
            self._links.remove(link)

    def close(self) -> None:
        while self._links:
            self._links.pop().abort()


class Peer:
    """One of the processes of this host, as the others reach it.

    Args:
        path: Its socket.

    Attributes:
        sent: Requests of clients that were handed to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._idle = _Idle()
        self.sent = 0

    def close(self) -> None:
        """Hang up every idle connection."""
        self._idle.close()

    async def forward(self, request: HttpRequest, body: bytes) -> None:
        """Have the peer answer a client's request, whose body was read.

        Raises:
            HttpError: 503, it is not there or went away before it answered.
            Disconnected: it or the client went away in the middle of an answer.
        """
        self.sent += 1
        link = await self._link()
        loop = asyncio.get_running_loop()
        watchers: list[asyncio.Task[None]] = []
        patience = loop.call_later(
            PATIENCE_S, lambda: watchers.append(loop.create_task(_watch(request, link)))
        )
        try:
            scope = request.scope
            target = scope["raw_path"]
            if query := scope["query_string"]:
                target += b"?" + query
            link.ask(
                _head(request.method, target, scope["headers"], body),
                bodiless=request.method == "HEAD",
            )
            await _pass_on(link, request)
        finally:
            patience.cancel()
            for watcher in watchers:
                watcher.cancel()
            self._let_go(link)

    async def ask(
        self, method: str, target: bytes, headers: Sequence[Header], body: bytes = b""
    ) -> Reply:
        """A question of ours and its whole answer.

        Raises:
            HttpError: 503, it is not there, went away, or takes longer than `ASK_S`.
        """
        link = await self._link()
        try:
            async with asyncio.timeout(ASK_S):
                link.ask(_head(method, target, headers, body), bodiless=False)
                parts = bytearray()
                while not (link.whole or link.lost):
                    await link.more(ASK_S)
                    parts += link.take()
                    if len(parts) > ANSWER_BYTES:
                        raise gone(acted=True)
                parts += link.take()
        except TimeoutError as error:
            raise gone(acted=True) from error
        finally:
            self._let_go(link)
        if not link.whole:
            raise gone(acted=True)
        return Reply(link.status, _kept(link.headers), bytes(parts))

    async def _link(self) -> _Link:
        loop = asyncio.get_running_loop()
        link = self._idle.take(loop.time())
        if link is not None:
            return link
        try:
            async with asyncio.timeout(CONNECT_S):
                _, link = await loop.create_unix_connection(_Link, self._path)
        except (OSError, TimeoutError) as error:
            raise gone() from error
        return link

    def _let_go(self, link: _Link) -> None:
        if link.whole and link.keep and not link.lost:
            self._idle.put(link, asyncio.get_running_loop().time())
        else:
            link.abort()


async def _watch(request: HttpRequest, link: _Link) -> None:
    await request.wait_disconnect()
    link.half_close()


async def _pass_on(link: _Link, request: HttpRequest) -> None:
    """Give the client the peer's answer as it comes."""
    while not (link.status or link.lost):
        await link.more(SILENCE_S)
    if not link.status:
        raise gone(acted=True)
    headers = _kept(link.headers)
    if link.whole:
        return await request.respond(link.status, link.take(), _unsized(headers, link.bodiless))
    await request.start(link.status, headers)
    while True:
        if body := link.take():
            await request.chunk(body)
        if link.whole:
            return await request.chunk(link.take(), last=True)
        if link.lost:
            raise Disconnected
        await link.more(SILENCE_S)


def _kept(headers: Sequence[Header]) -> list[Header]:
    return [pair for pair in headers if pair[0] not in _OURS]


def _unsized(headers: list[Header], bodiless: bool) -> list[Header]:
    """Without the length, which is counted again, except where there is no body to count."""
    return headers if bodiless else [pair for pair in headers if pair[0] != b"content-length"]


def _head(method: str, target: bytes, headers: Sequence[Header], body: bytes) -> bytes:
    """A request as bytes. Names and values came out of a parser: none holds a line break."""
    parts = [method.encode("ascii"), b" ", target, b" HTTP/1.1\r\n"]
    for name, value in headers:
        if name not in _HOP:
            parts += (name, b": ", value, b"\r\n")
    if body or method == "POST":
        parts.append(b"content-length: %d\r\n" % len(body))
    parts += (b"\r\n", body)
    return b"".join(parts)
