"""HTTP without a framework: one request, its checks, its answer, and the errors of this layer.

Every error body has one shape, that of a JSON-RPC error with a null id, so that an MCP client can
show it and a person can read it: `{"jsonrpc", "id": null, "error": {"code", "message",
"data": {"remedy"}}}`. No body, header or log line repeats a path or a token.

It does not route (router.py), speak MCP (transport.py), or bound how slowly bytes may arrive: the
connection does that (server.py).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import anyio
import orjson

from astra_mcp.errors import AstraError, AuthError, BusyError, HttpError

Json = Any
Header = tuple[bytes, bytes]
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

JSON_TYPE: Final[Header] = (b"content-type", b"application/json")
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603
#: A larger body is refused with 413: arguments of a tool call are small.
BODY_LIMIT: Final = 1 << 20
#: How much of a body that is too large is read on, in bytes and seconds, before it is refused.
DRAIN_LIMIT: Final = 32 << 20
DRAIN_S: Final = 1.0
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Disconnected(Exception):
    """The client went away before its request was complete; there is nobody to answer."""


class HttpRequest:
    """One request of the ASGI server, and the way to answer it.

    Attributes:
        method: Upper-case HTTP method.
        headers: Lower-case name to value; of a repeated header the first value.
        segments: The decoded path split at "/": `/envs/a/mcp` is `("envs", "a", "mcp")`.
        answered: Whether the response has started.
    """

    __slots__ = ("_receive", "_send", "answered", "headers", "method", "scope", "segments")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.segments: tuple[str, ...] = tuple(scope["path"].split("/")[1:])
        self.answered = False
        self._receive = receive
        self._send = send

    async def body(self, limit: int = BODY_LIMIT) -> bytes:
        """The whole body, at most `limit` bytes whatever `Content-Length` says.

        Raises:
            HttpError: 413, as soon as more than `limit` bytes are announced or have come.
            Disconnected: The client went away first.
        """
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and (len(announced) > 18 or int(announced) > limit):
            await self._drain()
            raise _too_large(limit)
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            return _within(message["body"], limit)
        parts = bytearray()
        while message["type"] == "http.request":
            parts += message.get("body", b"")
            if len(parts) > limit:
                await self._drain()
                raise _too_large(limit)
            if not message.get("more_body"):
                return bytes(parts)
            message = await self._receive()
        raise Disconnected

    async def _drain(self) -> None:
        """Read on for a while, so that a client hears the refusal instead of a reset."""
        left = DRAIN_LIMIT
        with anyio.move_on_after(DRAIN_S):
            while left > 0:
                message = await self._receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                left -= len(message.get("body", b""))

    async def receive(self) -> Mapping[str, Any]:
        """The next ASGI message from the client, for an application that this one hands on to."""
        return await self._receive()

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send an ASGI message of such an application as it is."""
        self.answered = True
        await self._send(message)

    async def wait_disconnect(self) -> None:
        """Return once the client has gone; only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def respond(self, status: int, body: bytes = b"", headers: Sequence[Header] = ()) -> None:
        """Send a whole response.

        An owner of `send` that can answer at once does (connection.py); what wraps `send` to see
        every message has no such owner and gets them.
        """
        answer = getattr(getattr(self._send, "__self__", None), "answer", None)
        if answer is not None:
            self.answered = True
            answer(status, headers, body)
            return
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self._send({"type": "http.response.body", "body": body})

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        """Send status and headers; `chunk` follows."""
        self.answered = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def chunk(self, body: bytes, *, last: bool = False) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})


def _within(body: bytes | bytearray, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body if isinstance(body, bytes) else b""


def _too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        f"The request body is larger than {limit} bytes.",
        "Send a smaller body.",
        [(b"connection", b"close")],
    )


# ---- errors on the wire ---------------------------------------------------------------------


def error_body(message: str, remedy: str = "", rpc_code: int = INVALID_REQUEST) -> bytes:
    """The one shape of an error of this layer."""
    error: dict[str, Json] = {"code": rpc_code, "message": message}
    if remedy:
        error["data"] = {"remedy": remedy}
    return orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error})


def as_http_error(error: AstraError) -> HttpError:
    """An error of any layer as an HTTP answer: 401, 503 with Retry-After, else 400."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, AuthError):
        challenge = [(b"www-authenticate", b"Bearer")]
        return HttpError(401, error.message, error.remedy, challenge)
    if isinstance(error, BusyError):
        wait = [(b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s)))]
        return HttpError(503, error.message, error.remedy, wait, INTERNAL_ERROR)
    return HttpError(400, error.message, error.remedy)


async def respond_error(request: HttpRequest, error: HttpError) -> None:
    """Answer with an error."""
    body = error_body(error.message, error.remedy, error.rpc_code)
    await request.respond(error.status, body, [JSON_TYPE, *error.headers])


async def respond_json(request: HttpRequest, value: Json, status: int = 200) -> None:
    """Answer with a JSON value."""
    await request.respond(status, orjson.dumps(value), [JSON_TYPE])


def method_not_allowed(*allowed: str) -> HttpError:
    """405 with its `Allow` header."""
    names = ", ".join(allowed)
    return HttpError(
        405,
        "The method is not allowed here.",
        f"Use {names}.",
        [(b"allow", names.encode())],
    )


# ---- checks of headers ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Security:
    """Which Host and Origin headers are let in: the guard against DNS rebinding.

    Attributes:
        hosts: Host names without port, lower case; "*" lets every host in (behind a proxy that
            checks, or on a network of one's own). Pages of these hosts are let in, too.
        origins: Further origins as browsers send them, `https://example.org`; without a port they
            mean any port. Loopback origins are always let in.
    """

    hosts: frozenset[str] = LOOPBACK
    origins: frozenset[str] = frozenset()

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise HttpError 421 for a foreign Host and 403 for a foreign Origin."""
        if "*" not in self.hosts and _host_name(headers.get(b"host", b"")) not in self.hosts:
            raise HttpError(
                421,
                "This server does not answer for the Host that the request names.",
                "Use the URL that the server printed, or start it with --allow-host NAME.",
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._knows(origin):
            raise HttpError(
                403,
                "Requests from this Origin are refused.",
                "Start the server with --allow-origin ORIGIN to let a web page in.",
            )

    def _knows(self, origin: bytes) -> bool:
        text = origin.decode("latin-1").lower()
        scheme, separator, host = text.partition("://")
        bare = _host_name(host.encode("latin-1"))
        return bool(separator) and (
            bare in LOOPBACK
            or bare in self.hosts
            or text in self.origins
            or f"{scheme}://{bare}" in self.origins
        )


@lru_cache(maxsize=256)
def _host_name(host: bytes) -> str:
    """A Host header's name without its port; "" when it is no host."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        name, bracket, port = text.partition("]")
        name += bracket
    else:
        name, _, port = text.partition(":")
        port = f":{port}" if port else port
    return name if not port or (port[0] == ":" and port[1:].isdigit()) else ""


@dataclass(frozen=True, slots=True)
class Accepts:
    """Which of the two media types of MCP a client takes."""

    json: bool
    sse: bool


@lru_cache(maxsize=256)
def accepts(header: bytes) -> Accepts:
    """Read an `Accept` header; `*/*`, `application/*` and `text/*` count."""
    types = {part.split(b";")[0].strip().lower() for part in header.split(b",")}
    return Accepts(
        json=bool(types & {b"*/*", b"application/*", b"application/json"}),
        sse=bool(types & {b"*/*", b"text/*", b"text/event-stream"}),
    )


@lru_cache(maxsize=256)
def is_json_type(header: bytes) -> bool:
    """Whether a `Content-Type` names JSON, with or without parameters."""
    return header.split(b";")[0].strip().lower() == b"application/json"


def bearer_token(headers: Mapping[bytes, bytes]) -> str | None:
    """The token of `Authorization: Bearer <token>`, or None; tokens.py compares it."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    token = token.strip()
    return token.decode("latin-1") if scheme.lower() == b"bearer" and token else None
