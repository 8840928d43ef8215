"""One HTTP/1.1 connection of the host: bytes to ASGI calls and back, with limits on slowness.

uvicorn runs the server (sockets, draining), this is its protocol class: a request that came whole
is one task and one write, without a timer or an event. An application is started once its request's
body has come, or when the body is large or the client waits to be told to send it. Requests of one
connection are answered in order, one at a time.

Invariants: a head has a largest size, and so have trailers, which are dropped; nothing is buffered
beyond one read and `BUFFER` bytes of body; a client that is slow to ask or to read is hung up on by
`sweep`; no answer carries a line break in a header.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.server import ServerState

from astra_mcp.host.exchange import STATUS_LINES, Exchange
from astra_mcp.host.http import INTERNAL_ERROR, Header, error_body

#: Most bytes of request line and headers.
HEAD_LIMIT: Final = 32 * 1024
#: A body up to this size is gathered before the application is started.
BUFFER: Final = 64 * 1024
#: Most headers of a request, parts of its body in one read, and requests behind one another: the
#: parser's calls for a read full of the smallest ones would hold up everybody for a tenth of a
#: second.
MOST_HEADERS: Final = 1000
MOST_PARTS: Final = 4096
MOST_PIPELINED: Final = 512
logger: Final = logging.getLogger(__name__)


class Traffic(ServerState):
    """uvicorn's state of a server, and its answers by the first digit of their status."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = [0] * 6


class Connection(asyncio.Protocol):
    """What uvicorn makes for every connection; its arguments are uvicorn's."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: Mapping[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._app = config.loaded_app
        self._loop = _loop or asyncio.get_running_loop()
        self._limit = config.limit_concurrency
        self._state = server_state
        self._answers = server_state.answers if isinstance(server_state, Traffic) else [0] * 6
        self._app_state = app_state
        self._parser = httptools.HttpRequestParser(self)
        # A request behind one that closes the connection must not spoil the answer to that one.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._asgi = {"version": "3.0", "spec_version": "2.3"}
        self._active: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._parsing: Exchange | None = None
        self.half_closed = False
        self._closing = False
        self.read_paused = False
        self._client: Any = None
        self._server: Any = None
        self._dated: tuple[Any, bytes] = (None, b"")
        self._writable: asyncio.Event | None = None
        self._url = b""
        self._headers: list[Header] = []
        self._expects = False
        self._head_bytes = 0
        self._unfinished = 0
        self._reading = 0
        self._in_head = False
        self._parts = 0
        self._began: float | None = None
        self._idle: float | None = None
        self._paused: float | None = None

    # ---- asyncio: the connection --------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock: a client that connects has to send a request."""
        self._transport = cast(asyncio.Transport, transport)
        self._client = transport.get_extra_info("peername")
        self._server = transport.get_extra_info("sockname")
        self._state.connections.add(cast(Any, self))
        self._began = self._loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits for this client."""
        self._state.connections.discard(cast(Any, self))
        for exchange in (self._active, self._parsing, *self._queue):
            if exchange is not None:
                exchange.lost = not exchange.done
                exchange.wake()
        self._queue.clear()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and refuse a head that grows without an end."""
        self._reading = len(data)
        self._parts = 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._closing = True  # answered as a plain request; what follows it is not HTTP
        except httptools.HttpParserError:
            self._refuse()
            return
        if self._in_head or (not self._parts and self._parsing is not None):
            self._unfinished += self._reading
            if self._unfinished > HEAD_LIMIT:
                self._refuse()

    def eof_received(self) -> bool:
        """The client says no more, and may be gone: what is under way is answered all the same."""
        if self._active is None and not self._queue:
            return False
        self.half_closed = self._closing = True
        if self._active is not None:
            self._active.wake()
        return True

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered: start the clock."""
        self._paused = self._loop.time()

    def resume_writing(self) -> None:
        """The client has caught up, or is gone."""
        self._paused = None
        if self._writable is not None:
            self._writable.set()
        self._run_next()

    # ---- httptools: the request ---------------------------------------------------------

    def on_message_begin(self) -> None:
        """Start the clock of one request."""
        self._began, self._idle = self._loop.time(), None
        self._url = b""
        self._headers = []
        self._expects = False
        self._head_bytes = self._unfinished = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, without the white space around its value, which the parser leaves behind."""
        name, value = name.lower(), value.strip(b" \t")
        if not self._in_head:  # a trailer: nobody asks for one, and it must not pass for a header
            self._head_bytes += len(name) + len(value)
            if self._head_bytes > HEAD_LIMIT:
                raise ValueError("The request's trailers are too long.")
            return
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects = True
        if len(self._headers) >= MOST_HEADERS:
            self._head_bytes = HEAD_LIMIT + 1
            raise ValueError("The request has too many headers.")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head has ended in time."""
        self._in_head = False
        self._check_head()
        if len(self._queue) >= MOST_PIPELINED:
            raise ValueError("Too many requests came before the first was answered.")
        version = self._parser.get_http_version()
        raw, query = _split(self._url)
        path = raw.decode("ascii")
        scope = {
            "type": "http",
            "asgi": self._asgi,
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": self._client,
            "server": self._server,
            "state": self._app_state,
        }
        exchange = self._parsing = Exchange(self, scope)
        exchange.keep_alive = version != "1.0" and self._parser.should_keep_alive()
        if self._expects:
            exchange.wait_for_100()
            self._announce(exchange)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._parts, self._unfinished = self._parts + 1, 0
        if self._parts > MOST_PARTS:
            raise ValueError("The parts of a body are too small.")
        exchange = self._parsing
        if exchange is None or exchange.done:
            return
        if not exchange.body:
            exchange.body = body
        else:  # in place: a body may come in a hundred thousand parts
            if type(exchange.body) is bytes:
                exchange.body = bytearray(exchange.body)
            exchange.body += body
        if len(exchange.body) > BUFFER:
            self._announce(exchange)
            self.throttle()
        exchange.wake()

    def on_message_complete(self) -> None:
        """The request has come in time."""
        self._began = None
        exchange, self._parsing = self._parsing, None
        if exchange is not None:
            exchange.whole = True
            exchange.wake()
            self._announce(exchange)

    def _check_head(self) -> None:
        """Refuse a head that is too long; a short read cannot have held one."""
        if self._unfinished + self._reading <= HEAD_LIMIT:
            return
        self._head_bytes = len(self._url) + sum(len(n) + len(v) for n, v in self._headers)
        if self._head_bytes > HEAD_LIMIT:
            raise ValueError("The request's head is too long.")

    # ---- requests in order --------------------------------------------------------------

    def _announce(self, exchange: Exchange) -> None:
        """Start the application, now or after the requests before it."""
        if exchange.announced:
            return
        exchange.announced = True
        if self._active is None and self._paused is None:
            self._run(exchange)
        else:
            self._queue.append(exchange)
            self.throttle()

    def _run_next(self) -> None:
        """Go on with the next request, unless the client does not read what it was given."""
        if self._active is None and self._paused is None and self._queue:
            self._run(self._queue.popleft())
            self.throttle()

    def _run(self, exchange: Exchange) -> None:
        self._active = exchange
        tasks = self._state.tasks
        task = self._loop.create_task(self._serve(exchange))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _serve(self, exchange: Exchange) -> None:
        try:
            if self._crowded:
                await _say(exchange, 503, "The server is busy.", "Try again in 1 s.")
            else:
                await self._app(
                    cast(Any, exchange.scope), exchange.receive, cast(Any, exchange.send)
                )
            if not (exchange.done or exchange.lost or self.half_closed):
                raise RuntimeError("A request was not answered to its end.")
            if not exchange.done:
                self._transport.close()
        except Exception:
            logger.exception("a request failed")
            if exchange.answered or exchange.lost:
                self._transport.close()  # a body that stops short is all that can still be said
            else:
                await _say(exchange, 500, "Internal server error", "Look into the server's log.")
        except asyncio.CancelledError:
            self._transport.close()
            raise

    @property
    def _crowded(self) -> bool:
        state, limit = self._state, self._limit
        return limit is not None and max(len(state.connections), len(state.tasks)) > limit

    def finished(self, exchange: Exchange) -> None:
        """An answer is complete: go on with the next request, or wait for one."""
        self._state.total_requests += 1
        self._active = None
        exchange.wake()
        if not exchange.keep_alive:
            self._queue.clear()
            self._transport.close()
        elif self._queue:
            self._run_next()
        elif self._closing:
            self._transport.close()
        else:
            self._idle = self._loop.time()
            if self.read_paused:
                self.throttle()

    def throttle(self) -> None:
        """Read from the client only while there is room for what it sends."""
        active = self._active
        full = active is not None and not active.done and len(active.body) > BUFFER
        if (full or bool(self._queue)) == self.read_paused or self._transport.is_closing():
            return
        self.read_paused = not self.read_paused
        if self.read_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # ---- bytes out ----------------------------------------------------------------------

    def count(self, status: int) -> None:
        """An answer of that status begins."""
        self._answers[status // 100] += 1

    def write(self, data: bytes) -> None:
        """Send bytes, unless the client is gone."""
        if not self._transport.is_closing():
            self._transport.write(data)

    @property
    def write_paused(self) -> bool:
        """Whether the client reads more slowly than it is answered."""
        return self._paused is not None

    async def writable(self) -> None:
        """Return once the client has caught up, or is gone."""
        self._writable = asyncio.Event()
        await self._writable.wait()

    def date_line(self) -> bytes:
        """Headers that the server gives to every answer: the date, renewed every second."""
        headers = self._state.default_headers
        if headers is not self._dated[0]:
            self._dated = headers, b"".join(b"%b: %b\r\n" % pair for pair in headers)
        return self._dated[1]

    def _refuse(self) -> None:
        """Answer what is no HTTP, or has too long a head, in the host's own shape, and hang up."""
        active = self._active
        busy = active is not None and (active is not self._parsing or active.answered)
        if busy or self._queue:
            self._closing = True  # the answers under way come first, and then nothing more
            return
        if self._transport.is_closing():
            return
        if max(self._head_bytes, self._unfinished) > HEAD_LIMIT:
            status, text = 431, "The request's head is too long."
        else:
            status, text = 400, "This is not an HTTP/1.1 request."
        if active is not None:  # it waits for a body that cannot come any more
            active.lost = True
            active.wake()
        self.count(status)
        body = error_body(text, "Send a well-formed request with fewer and shorter headers.")
        self.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (STATUS_LINES[status], len(body), body)
        )
        self._transport.close()

    # ---- ending -------------------------------------------------------------------------

    def shutdown(self) -> None:
        """uvicorn: the server stops; hang up once what is under way is answered."""
        self._closing = True
        if self._active is None and not self._queue:
            self._transport.close()

    def hang_up(self) -> None:
        """Close the connection: at once when its client does not read, else after the last byte."""
        if self._paused is None:
            self._transport.close()
        else:
            self._transport.abort()

    def sweep(self, now: float, request_s: float, stalled_s: float, idle_s: float) -> None:
        """Hang up when the client is later than allowed, or idle for long; all in loop seconds."""
        stalled = self._paused is not None and now - self._paused > stalled_s
        late = self._began is not None and now - self._began > request_s
        idle = self._idle is not None and now - self._idle > idle_s
        if stalled or ((late or idle) and self._paused is None):
            self.hang_up()


def _split(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request line's target."""
    if url.startswith(b"/") and b"?" not in url and b"#" not in url:
        return url, b""
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""


async def _say(exchange: Exchange, status: int, message: str, remedy: str) -> None:
    body = error_body(message, remedy, INTERNAL_ERROR)
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
    kept = headers if status == 503 else headers[:1]
    await exchange.send({"type": "http.response.start", "status": status, "headers": kept})
    await exchange.send({"type": "http.response.body", "body": body})
