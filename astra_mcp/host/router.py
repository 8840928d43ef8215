"""The ASGI application: from a path to an MCP endpoint or a plain handler, by one function.

The host writes that function; it looks the first segments up in dictionaries, so that ten thousand
environments cost a request no more than one. Every answer to a failure is JSON with a remedy; what
nobody foresaw is logged without its text, which could name data, and answered with 500.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from astra_mcp.errors import AstraError, HttpError
from astra_mcp.host.http import (
    INTERNAL_ERROR,
    Disconnected,
    HttpRequest,
    Receive,
    Scope,
    Security,
    Send,
    as_http_error,
    method_not_allowed,
    respond_error,
)
from astra_mcp.host.transport import Endpoint, McpTransport

Handler = Callable[[HttpRequest], Awaitable[None]]
logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plain:
    """A route that is not MCP: `handler` answers with `respond_json` and raises AstraErrors.

    Attributes:
        methods: What it takes; GET implies HEAD, and OPTIONS is answered for it.
    """

    handler: Handler
    methods: tuple[str, ...] = ("GET",)


Route = Endpoint | Plain
#: Finds what serves a request by its segments and headers. None is 404; AuthError is 401,
#: BusyError 503, HttpError what it says, any other AstraError 400.
Resolve = Callable[[HttpRequest], Awaitable[Route | None]]


@dataclass(slots=True)
class Router:
    """The application that a server runs.

    Attributes:
        resolve: Finds the route.
        transport: Serves the endpoints.
        security: Which Host and Origin headers are let in.
        on_drain: Called once the server stops, to end streams that the transport does not know.
    """

    resolve: Resolve
    transport: McpTransport = field(default_factory=McpTransport)
    security: Security = field(default_factory=Security)
    on_drain: Sequence[Callable[[], None]] = ()
    _draining: bool = False

    def drain(self) -> None:
        """End all streams and refuse new requests with 503: the host is stopping."""
        self._draining = True
        self.transport.streams.close_all()
        for end in self.on_drain:
            end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http":
            return await self._http(HttpRequest(scope, receive, send))
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        await send({"type": "websocket.close", "code": 1003})

    async def _http(self, request: HttpRequest) -> None:
        try:
            _one_of_each(request)
            self.security.check(request.headers)
            if self._draining:
                raise _stopping()
            route = await self.resolve(request)
            if isinstance(route, Endpoint):
                await self.transport.handle(request, route)
            elif route is not None:
                await _plain(request, route)
            else:
                raise _not_found()
        except Disconnected:
            return
        except AstraError as error:
            await _fail(request, as_http_error(error))
        except Exception:
            logger.exception("a request failed")
            await _fail(request, _internal())


async def _plain(request: HttpRequest, route: Plain) -> None:
    allowed = (*route.methods, *(("HEAD",) if "GET" in route.methods else ()))
    if request.method in allowed:
        await route.handler(request)
    elif request.method == "OPTIONS":
        await request.respond(204, headers=[(b"allow", ", ".join(allowed).encode())])
    else:
        raise method_not_allowed(*allowed)


async def _fail(request: HttpRequest, error: HttpError) -> None:
    if request.answered:
        # A body that stops short is all that can still be said on this connection.
        raise ConnectionAbortedError("An answer failed after it had begun.")
    await respond_error(request, error)


def _one_of_each(request: HttpRequest) -> None:
    """Refuse two Host or Origin headers: which of them counts would be anybody's guess."""
    names = [name for name, _ in request.scope["headers"] if name in (b"host", b"origin")]
    if len(names) != len(set(names)):
        raise HttpError(
            400, "The request has two Host or Origin headers.", "Send each of them once."
        )


def _not_found() -> HttpError:
    return HttpError(
        404,
        "Nothing is served at this URL.",
        "Use a URL that the server gave out; an episode's URL dies with the episode.",
    )


def _stopping() -> HttpError:
    headers = [(b"retry-after", b"5"), (b"connection", b"close")]
    return HttpError(503, "The server is stopping.", "Try again after its restart.", headers)


def _internal() -> HttpError:
    return HttpError(
        500,
        "Internal server error",
        "Look into the server's log.",
        rpc_code=INTERNAL_ERROR,
    )


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
