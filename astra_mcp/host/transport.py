"""MCP over streamable HTTP in both eras: from an HTTP request at an endpoint to its answer.

It checks headers and message, finds the session, and hands on: tool calls to calls.py, streams to
streams.py, the rest to dispatch.py. Everything runs in the request's own task; nothing is queued.
JSON answers, except where a stream is asked for or a tool reports progress.

State never hangs on the protocol: it lives in the endpoint's service (an episode), or, for
endpoints of the 2025 era alone, in a service per session. An endpoint that has one service and
announces changes still issues a session id, which nobody checks: the SDK's client opens its
stream of notifications only where it was given one.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from astra_mcp.errors import AstraError, HttpError
from astra_mcp.host.calls import Answer, Caller, Calls
from astra_mcp.host.dispatch import (
    CacheScope,
    Dispatcher,
    check_initialize,
    initialize_result,
)
from astra_mcp.host.http import (
    BODY_LIMIT,
    JSON_TYPE,
    Header,
    HttpRequest,
    accepts,
    is_json_type,
    method_not_allowed,
)
from astra_mcp.host.protocol import (
    CLIENT_KEY,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    SESSION_HEADER,
    VERSION_HEADER,
    VERSION_KEY,
    VERSIONS,
    Message,
    Notification,
    Request,
    Response,
    RpcError,
    check_modern,
    era_of,
    error_bytes,
    meta_of,
    parse,
    result_bytes,
    unsupported_version,
)
from astra_mcp.host.service import Era, McpService
from astra_mcp.host.sessions import Session, Sessions
from astra_mcp.host.streams import Streams

Json = Any
logger: Final = logging.getLogger(__name__)
BOTH_ERAS: Final[frozenset[Era]] = frozenset({"2025", "2026"})
_MODERN_HEADERS: Final = frozenset(version.encode() for version in VERSIONS["2026"])
_NO_RESPONSES: Final = "Body must be a single JSON-RPC request or notification object"
_UNNAMED_VERSION: Final = "2025-03-26"  # what a request without the header speaks


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one MCP server is reached. Exactly one of `service` and `sessions` is given.

    Attributes:
        service: The one service of all clients here: an episode, or the control plane.
        sessions: Each session of the 2025 era has its own service; no 2026 era here.
        eras: Which eras are served; the other is told so with error -32022.
        list_changed: Whether changes of the tool list are announced, by GET and
            `subscriptions/listen`; without it both are refused.
        ttl_ms: How long a 2026-era client may reuse a list, in milliseconds.
        cache_scope: Whether it may share it with other clients.
        call_deadline_s: A call that has not ended after so many seconds is stopped. A last resort:
            services have shorter limits of their own.
    """

    service: McpService | None = None
    sessions: Sessions | None = None
    eras: frozenset[Era] = BOTH_ERAS
    list_changed: bool = True
    ttl_ms: int = 0
    cache_scope: CacheScope = "private"
    call_deadline_s: float = 300.0
    dispatchers: Mapping[Era, Dispatcher] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (self.service is None) == (self.sessions is None):
            raise ValueError("An endpoint needs a service or sessions. Give exactly one of them.")
        if self.sessions is not None and "2026" in self.eras:
            raise ValueError("Sessions exist in the 2025 era only. Set eras to {'2025'}.")
        made = {
            era: Dispatcher(
                era,
                list_changed=self.list_changed,
                ttl_ms=self.ttl_ms,
                cache_scope=self.cache_scope,
            )
            for era in self.eras
        }
        object.__setattr__(self, "dispatchers", made)


@dataclass(slots=True)
class McpTransport:
    """The transport of a host; one for all endpoints.

    Attributes:
        streams: Open event streams.
        calls: Tool calls in flight.
        body_limit: Largest request body in bytes.
    """

    streams: Streams = field(default_factory=Streams)
    calls: Calls = field(default_factory=Calls)
    body_limit: int = BODY_LIMIT

    async def handle(self, request: HttpRequest, endpoint: Endpoint) -> None:
        """Answer one HTTP request at an endpoint.

        Raises:
            HttpError: It is refused before it became a JSON-RPC message.
            AstraError: A session cannot be opened, because the host is full, say.
            Disconnected: The client went before its request was complete.
        """
        match request.method:
            case "POST":
                await self._post(request, endpoint)
            case "GET" if endpoint.list_changed and "2025" in endpoint.eras:
                await self._get(request, endpoint)
            case "DELETE" if "2025" in endpoint.eras:
                await self._delete(request, endpoint)
            case "OPTIONS":
                await request.respond(
                    204, headers=[(b"allow", ", ".join(_allowed(endpoint)).encode())]
                )
            case _:
                raise method_not_allowed(*_allowed(endpoint))

    # ---- POST -------------------------------------------------------------------------------

    async def _post(self, request: HttpRequest, endpoint: Endpoint) -> None:
        _check_media(request.headers)
        body = await request.body(self.body_limit)
        era = era_of(request.headers.get(VERSION_HEADER))
        message = None
        headers: list[Header] = [JSON_TYPE]
        try:
            message = parse(body)
            if not isinstance(message, Request):
                self._one_way(request, endpoint, era, message)
                return await request.respond(202)
            answer = await self._request(request, endpoint, era, message, headers)
        except RpcError as error:
            message_id = message.id if isinstance(message, Request) else None
            answer = Answer(error.http_status(era), error_bytes(message_id, error))
        if answer is not None:
            await request.respond(answer.status, answer.body, headers)

    async def _request(
        self,
        request: HttpRequest,
        endpoint: Endpoint,
        era: Era,
        message: Request,
        headers: list[Header],
    ) -> Answer | None:
        """Find out who asks what of which service; `headers` gets a new session's id."""
        _check_era(endpoint, era, request, message)
        if era == "2025" and message.method == "initialize":
            return await _initialize(request, endpoint, message, headers)
        if (service := endpoint.service) is not None:
            if era == "2026":
                meta = check_modern(message, request.headers, request.scope["headers"])
                client = meta.get(CLIENT_KEY)
            else:
                meta, client = meta_of(message.params), None
            who = Caller(service, era, client, id(service), meta)
            return await self._serve(request, endpoint, message, who)
        sessions, session = _enter(endpoint, request)
        try:
            meta = meta_of(message.params)
            who = Caller(session.service, era, session.client_info, session.id, meta)
            return await self._serve(request, endpoint, message, who)
        finally:
            sessions.leave(session)

    async def _serve(
        self, request: HttpRequest, endpoint: Endpoint, message: Request, who: Caller
    ) -> Answer | None:
        if message.method == "tools/call":
            return await self.calls.run(request, message, who, endpoint.call_deadline_s)
        if message.method == "subscriptions/listen" and who.era == "2026" and endpoint.list_changed:
            _check_takes_events(request)
            await self.streams.serve_listen(request, who.service, message)
            return None
        try:
            body = await endpoint.dispatchers[who.era].answer(who.service, message)
        except RpcError:
            raise
        except AstraError as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from error
        except Exception as error:
            logger.exception("a service failed in %s", message.method)
            raise RpcError(INTERNAL_ERROR, "Internal server error") from error
        return Answer(200, body)

    def _one_way(
        self, request: HttpRequest, endpoint: Endpoint, era: Era, message: Notification | Response
    ) -> None:
        """Take a message that is owed no answer."""
        _check_era(endpoint, era, request, message)
        if era == "2026":
            version = request.headers[VERSION_HEADER]
            if version not in _MODERN_HEADERS:
                raise unsupported_version(version.decode("latin-1"), VERSIONS["2026"])
            if isinstance(message, Response):
                raise RpcError(INVALID_REQUEST, _NO_RESPONSES, status=400)
            return  # this era cancels by closing the connection, and knows no other notification
        owner: Hashable = id(endpoint.service)
        if endpoint.sessions is not None:
            sessions, session = _enter(endpoint, request)
            sessions.leave(session)
            owner = session.id
        if isinstance(message, Notification) and message.method == "notifications/cancelled":
            self.calls.cancel(owner, (message.params or {}).get("requestId"))

    # ---- GET and DELETE ---------------------------------------------------------------------

    async def _get(self, request: HttpRequest, endpoint: Endpoint) -> None:
        if era_of(request.headers.get(VERSION_HEADER)) == "2026":
            raise method_not_allowed("POST")
        _check_takes_events(request)
        if endpoint.service is not None:
            return await self.streams.serve_get(request, endpoint.service)
        sessions, session = _enter(endpoint, request)
        try:
            await self.streams.serve_get(request, session.service)
        finally:
            sessions.leave(session)

    async def _delete(self, request: HttpRequest, endpoint: Endpoint) -> None:
        if endpoint.sessions is not None:
            sessions, session = _enter(endpoint, request)
            self.streams.close(session.service)
            await sessions.close(session.id)
        await request.respond(200)


# ---- checks and small parts -----------------------------------------------------------------


def _allowed(endpoint: Endpoint) -> tuple[str, ...]:
    if "2025" not in endpoint.eras:
        return ("POST",)
    return ("GET", "POST", "DELETE") if endpoint.list_changed else ("POST", "DELETE")


def _check_media(headers: Mapping[bytes, bytes]) -> None:
    if not accepts(headers.get(b"accept", b"")).json:
        raise HttpError(
            406,
            "The client does not accept JSON.",
            "Send `Accept: application/json, text/event-stream`.",
        )
    if not is_json_type(headers.get(b"content-type", b"")):
        raise HttpError(
            415,
            "The request body is not declared as JSON.",
            "Send `Content-Type: application/json`.",
        )


def _check_takes_events(request: HttpRequest) -> None:
    if not accepts(request.headers.get(b"accept", b"")).sse:
        raise HttpError(
            406, "The client does not accept an event stream.", "Send `Accept: text/event-stream`."
        )


def _check_era(endpoint: Endpoint, era: Era, request: HttpRequest, message: Message) -> None:
    """Refuse the era that the endpoint does not serve, naming what it serves instead."""
    named = request.headers.get(VERSION_HEADER)
    params = getattr(message, "params", None) or {}
    if era in endpoint.eras:
        if endpoint.sessions is None or named is not None or SESSION_HEADER in request.headers:
            return
        meta = params.get("_meta")
        requested = meta.get(VERSION_KEY) if type(meta) is dict else None
        if requested is None:
            return
    elif named is not None:
        requested = named.decode("latin-1")
    else:
        requested = params.get("protocolVersion", _UNNAMED_VERSION)
    raise unsupported_version(requested, VERSIONS["2026" if "2026" in endpoint.eras else "2025"])


async def _initialize(
    request: HttpRequest, endpoint: Endpoint, message: Request, headers: list[Header]
) -> Answer:
    version, client = check_initialize(message.params)
    service = endpoint.service
    if endpoint.sessions is not None:
        if SESSION_HEADER in request.headers:
            sessions, session = _enter(endpoint, request)
            sessions.leave(session)
        else:
            session = await endpoint.sessions.open(client)
        service, session_id = session.service, session.id
    else:
        session_id = secrets.token_hex(16) if endpoint.list_changed else ""
    if session_id:
        headers.append((SESSION_HEADER, session_id.encode()))
    assert service is not None  # an Endpoint has a service or sessions
    result = initialize_result(service, version, endpoint.list_changed)
    return Answer(200, result_bytes(message.id, result))


def _session_id(request: HttpRequest) -> str:
    value = request.headers.get(SESSION_HEADER)
    if not value:
        raise HttpError(
            400, "The request has no Mcp-Session-Id.", "Send `initialize` first, then its id."
        )
    return value.decode("latin-1")


def _enter(endpoint: Endpoint, request: HttpRequest) -> tuple[Sessions, Session]:
    """Hold the session that the request names, at an endpoint with sessions."""
    sessions = endpoint.sessions
    assert sessions is not None  # callers look first
    session = sessions.enter(_session_id(request))
    if session is None:
        raise _no_session()
    return sessions, session


def _no_session() -> HttpError:
    return HttpError(
        404, "Session not found: it ended or never was.", "Start a new one with `initialize`."
    )
