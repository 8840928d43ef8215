"""The process that listens: it binds the port itself, serves one application, and drains.

uvicorn runs it on whatever loop there is (`run` gives it uvloop) with connections of our own
(connection.py). What it leaves open is closed here: clients that are slow to ask or to read are
looked for, and signals end `serve` after a drain with a deadline. There is no access log: paths
hold tokens.

Invariant: when `serve` returns, no connection and no task of it is left.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import anyio
import anyio.lowlevel
import uvicorn
from anyio.abc import TaskStatus

from astra_mcp.errors import ListenError
from astra_mcp.host.connection import Connection, Traffic
from astra_mcp.host.http import Receive, Scope, Send

T = TypeVar("T")
logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Where a server listens.

    Attributes:
        url: `http://host:port`, without a final slash.
        host: The address that it bound.
        port: The port that the kernel gave.
        pid: Process id.
    """

    url: str
    host: str
    port: int
    pid: int


class Application(Protocol):
    """What `serve` runs: router.Router is one."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""

    def drain(self) -> None:
        """End streams and refuse new requests: the server is about to stop."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient a server is with its clients.

    Attributes:
        request_s: Longest time in seconds from a request's first byte to its last.
        stalled_s: Longest time in seconds that an answer may stay unread.
        keep_alive_s: Longest time in whole seconds that an idle connection is kept.
        connections: Most connections at a time; 503 beyond it.
        sweep_s: How often slow clients are looked for, in seconds.
    """

    request_s: float = 30.0
    stalled_s: float = 60.0
    keep_alive_s: int = 75
    connections: int = 16_384
    sweep_s: float = 2.0


DEFAULT_LIMITS: Final = Limits()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, saying when it listens."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], None], traffic: Traffic
    ) -> None:
        super().__init__(config)
        self.server_state = traffic
        self._on_ready = on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the caller's: see `serve`."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, give what was cancelled a chance to say so, and cut what is left."""
        await super().shutdown(sockets)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        self.cut()

    def cut(self) -> None:
        """Stop listening and end every task and connection, whatever they are doing."""
        for listener in getattr(self, "servers", ()):
            listener.close()
        for task in list(self.server_state.tasks):
            task.cancel()
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.hang_up()


async def serve(
    app: Application,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Callable[[ServerInfo], None] = lambda info: None,
    *,
    shutdown: anyio.Event | None = None,
    drain_s: float = 5.0,
    catch_signals: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    traffic: Traffic | None = None,
    shared: bool = False,
    also: Sequence[socket.socket] = (),
) -> None:
    """Listen and serve until `shutdown` is set or, with `catch_signals`, SIGTERM or SIGINT comes.

    Args:
        app: The application; its `drain()` is called first when the server stops.
        host: Address or name to bind.
        port: Port; 0 lets the kernel choose.
        ready: Called once, on the event loop, when connections are accepted.
        shutdown: Setting it stops the server.
        drain_s: Requests in flight get so many seconds to end; then they are cancelled.
        catch_signals: Needs the main thread; a second signal ends the drain at once.
        limits: How patient to be with clients.
        traffic: Where connections and answers are counted, for whoever wants to see them.
        shared: Other processes listen at the same address; each gets a part of the connections.
        also: Further bound sockets to serve; closed at the end.

    Raises:
        ListenError: The address cannot be bound.
    """
    sock = bind(host, port, shared=shared)
    info = info_of(sock)
    config = uvicorn.Config(
        app,
        http=Connection,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=limits.keep_alive_s,
        timeout_graceful_shutdown=math.ceil(drain_s),
        limit_concurrency=limits.connections,
    )
    server = _Server(config, lambda: ready(info), traffic or Traffic())
    stop = shutdown or anyio.Event()
    with sock:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_when_set, server, app, stop)
            tasks.start_soon(_sweep, server, limits)
            if catch_signals:
                # Started, not just scheduled: a signal may come as soon as we say that we listen.
                await tasks.start(_stop_on_signal, server, stop)
            try:
                await server.serve(sockets=[sock, *also])
            finally:
                server.cut()
                tasks.cancel_scope.cancel()


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function on the host's event loop: uvloop where it exists."""
    return anyio.run(main, backend_options={"use_uvloop": sys.platform != "win32"})


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket bound to an address, not listening yet.

    Args:
        shared: Others of the same user may bind it, too.

    Raises:
        ListenError: The address cannot be bound.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise ListenError(
            f"Cannot listen on {host} port {port}: {error.strerror or error}.",
            "Choose another --host or --port; --port 0 takes a free one.",
        ) from error
    return sock


def info_of(sock: socket.socket) -> ServerInfo:
    """Where a bound socket is reached."""
    host, port = sock.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    name = f"[{reachable}]" if ":" in reachable else reachable
    return ServerInfo(f"http://{name}:{port}", host, port, os.getpid())


async def _stop_when_set(server: _Server, app: Application, stop: anyio.Event) -> None:
    await stop.wait()
    app.drain()
    server.should_exit = True


async def _stop_on_signal(
    server: _Server, stop: anyio.Event, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            logger.warning("received %s", signal.Signals(number).name)
            server.force_exit = stop.is_set()
            stop.set()


async def _sweep(server: _Server, limits: Limits) -> None:
    """Hang up on slow clients for as long as the server runs."""
    while True:
        await anyio.sleep(limits.sweep_s)
        now = anyio.current_time()
        for connection in list(server.server_state.connections):
            if isinstance(connection, Connection):
                connection.sweep(now, limits.request_s, limits.stalled_s, limits.keep_alive_s)
