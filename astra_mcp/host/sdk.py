"""An operator's own SDK server on this host: everything of MCP that our transport does not speak.

A trusted `mcp` Server or MCPServer, or a FastMCP server, is served with the SDK's transport, in
both eras: prompts, completion, logging, elicitation, sampling, subscriptions. It costs what the SDK
costs, ten times the host's own transport per call, so bundles never go this way.

The host's checks stand in front of it: Host and Origin (router.py), the size of a body, a deadline
for every request, and the drain, which ends event streams at once. What the server asks of its
clients (its `auth` settings) is checked by itself. It runs in the host's process: never mount code
that a bundle brings.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Mapping, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from astra_mcp.errors import BusyError, HttpError, UsageError
from astra_mcp.host.http import BODY_LIMIT, HttpRequest
from astra_mcp.host.protocol import INTERNAL_ERROR, METHOD_HEADER, VERSION_HEADER, era_of
from astra_mcp.host.router import Plain

if TYPE_CHECKING:
    from mcp.server.streamable_http import EventStore
    from starlette.applications import Starlette

_PATH: Final = "/mcp"


class SdkServer(Protocol):
    """What can be mounted: `mcp.server.lowlevel.Server` and `mcp.server.mcpserver.MCPServer`.

    A FastMCP server, which has `http_app` instead, is taken, too.
    """

    def streamable_http_app(self, *, streamable_http_path: str = ...) -> Starlette:
        """The server as an ASGI application."""


class SdkMount:
    """One SDK server and its requests in flight.

    Args:
        server: The server; it is started by `running` and must not be run elsewhere.
        body_limit: Largest request body in bytes.
        idle_s: A session of the 2025 era without a request for this long ends.
        limit: Most event streams at a time, and most sessions where the server can bound them
            (FastMCP cannot: its sessions end by `idle_s`).
        deadline_s: A request that has not ended after so many seconds is stopped; event streams
            (GET, `subscriptions/listen`) last as long as their client.
        event_store: Keeps events, so that a client can take up a broken stream (SDK option).
        retry_ms: When such a client comes back, in milliseconds (SDK option).

    Attributes:
        route: What a router's `resolve` returns.
        deadline_s: As given; requests that come later have it.

    Raises:
        UsageError: `server` is no SDK server.
    """

    def __init__(
        self,
        server: SdkServer | Any,
        *,
        body_limit: int = BODY_LIMIT,
        idle_s: float = 1800.0,
        limit: int = 256,
        deadline_s: float = 300.0,
        event_store: EventStore | None = None,
        retry_ms: int | None = None,
    ) -> None:
        self._app = _application(server, body_limit, idle_s, limit, event_store, retry_ms)
        self._body_limit = body_limit
        self._limit = limit
        self.deadline_s = deadline_s
        self._streams: set[anyio.CancelScope] = set()
        self._running = False
        self.route = Plain(self._handle, ("GET", "POST", "DELETE"))

    def __len__(self) -> int:
        return len(self._streams)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The server's lifespan; requests are served inside it. A mount runs once."""
        async with self._app.router.lifespan_context(self._app):
            self._running = True
            try:
                yield
            finally:
                self._running = False

    def drain(self) -> None:
        """End every event stream; other requests in flight go on."""
        for scope in list(self._streams):
            scope.cancel()

    async def _handle(self, request: HttpRequest) -> None:
        if not self._running:
            raise HttpError(503, "This server is not running.", "Try again later.")
        body = await request.body(self._body_limit) if request.method == "POST" else None
        streams = _is_stream(request)
        if streams and len(self._streams) >= self._limit:
            raise BusyError(
                "As many event streams are open here as the server allows.",
                "Try again later, or go on without one.",
            )
        exchange = _Exchange(request, body)
        scope = anyio.CancelScope()
        if streams:
            self._streams.add(scope)
        else:
            scope.deadline = anyio.current_time() + self.deadline_s
        try:
            with scope:
                path = {"path": _PATH, "raw_path": _PATH.encode(), "root_path": ""}
                await self._app({**request.scope, **path}, exchange.receive, exchange.send)
        finally:
            self._streams.discard(scope)
        if scope.cancelled_caught:
            await exchange.finish(_stopped(self.deadline_s))


@asynccontextmanager
async def all_running(mounts: Iterable[SdkMount]) -> AsyncIterator[None]:
    """Run several mounts; one that does not start ends those that did."""
    async with AsyncExitStack() as stack:
        for mount in mounts:
            await stack.enter_async_context(mount.running())
        yield


class _Exchange:
    """One request on its way through the SDK's application, with the body that was read before."""

    __slots__ = ("_body", "_request", "ended")

    def __init__(self, request: HttpRequest, body: bytes | None) -> None:
        self._request = request
        self._body = body
        self.ended = False

    async def receive(self) -> MutableMapping[str, Any]:
        if self._body is None:
            return dict(await self._request.receive())
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Mapping[str, Any]) -> None:
        await self._request.send(message)
        if message["type"] == "http.response.body":
            self.ended = not message.get("more_body")
        elif any(
            name.lower() == b"content-type" and value.startswith(b"text/event-stream")
            for name, value in message.get("headers", ())
        ):
            # An ASGI server may keep the head until the first part of the body, and a stream's
            # first event may be long in coming.
            await self._request.chunk(b"")

    async def finish(self, failure: HttpError) -> None:
        """End an answer that was stopped: with its last chunk, or as a failure."""
        if not self._request.answered:
            raise failure
        if not self.ended:
            await self._request.chunk(b"", last=True)


def _is_stream(request: HttpRequest) -> bool:
    """Whether its answer has no end; the 2026 era's header is compared with the body by the SDK."""
    modern = era_of(request.headers.get(VERSION_HEADER)) == "2026"
    listens = modern and request.headers.get(METHOD_HEADER) == b"subscriptions/listen"
    return request.method == "GET" or (request.method == "POST" and listens)


def _stopped(deadline_s: float) -> HttpError:
    return HttpError(
        504,
        f"The request was stopped, after {deadline_s:g} seconds at the latest.",
        "Ask for less at a time, or send it again.",
        rpc_code=INTERNAL_ERROR,
    )


def _application(
    server: Any,
    body_limit: int,
    idle_s: float,
    limit: int,
    event_store: EventStore | None,
    retry_ms: int | None,
) -> Starlette:
    """The SDK's own application: with its authentication, without its checks of Host and Origin."""
    from mcp.server.transport_security import TransportSecuritySettings

    if not (math.isfinite(idle_s) and idle_s > 0):
        raise UsageError("idle_s is no positive number of seconds.", "Give one, such as 600.")
    if hasattr(server, "streamable_http_app"):
        app: Starlette = server.streamable_http_app(
            streamable_http_path=_PATH,
            event_store=event_store,
            retry_interval=retry_ms,
            max_request_body_size=body_limit,
            session_idle_timeout=idle_s,
            max_sessions=limit,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
    elif hasattr(server, "http_app"):
        app = server.http_app(
            path=_PATH,
            event_store=event_store,
            retry_interval=retry_ms,
            session_idle_timeout=idle_s,
            host_origin_protection=False,
        )
    else:
        raise UsageError(
            f"A {type(server).__name__} cannot be mounted.",
            "Mount an mcp Server or MCPServer, or a FastMCP server.",
        )
    return app
