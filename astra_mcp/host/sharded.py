"""One process of several behind one port: what is its own it serves, the rest it hands on.

A wrapper around the application of a process; a host of one process does not have it. Whose a
request is stands in the request (shards.py), so the processes share no state and no lock. What a
peer hands on is served here with every check that a client's own request gets: the wrapper only
decides where. Host, Origin and the size of the body are checked before anything is handed on.

Asked for /healthz or /metrics, any process answers for all of them: sums, and every sample with a
label `shard`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import anyio
import orjson

from astra_mcp.errors import AstraError, HttpError
from astra_mcp.host.exposition import CONTENT_TYPE, Family, render
from astra_mcp.host.http import (
    Disconnected,
    HttpRequest,
    Receive,
    Scope,
    Security,
    Send,
    as_http_error,
    bearer_token,
    respond_error,
    respond_json,
)
from astra_mcp.host.pages import merge
from astra_mcp.host.peers import Peer, Reply
from astra_mcp.host.protocol import SESSION_HEADER
from astra_mcp.host.server import Application
from astra_mcp.host.shards import Owner, Whose, by_episode, by_mark, by_operation
from astra_mcp.host.tokens import same_token
from astra_mcp.settings import HostSettings

Json = Any
Handler = Callable[[HttpRequest], Awaitable[None]]
#: Counts of /healthz that make sense as a sum.
_SUMMED: Final = ("episodes", "sessions", "plays", "waiting")


class Sharded:
    """The application of one process of several.

    Args:
        app: What serves this process's own.
        settings: How many processes there are, and which of them this is.
        security: Which Host and Origin headers are let in.
        hashes: Hashes of the control token and of the token of /metrics.
        peers: Every process by its number, this one too.
        health: What this process says at /healthz.
    """

    def __init__(
        self,
        app: Application,
        settings: HostSettings,
        security: Security,
        hashes: tuple[str, str],
        peers: Sequence[Peer],
        health: Callable[[], Mapping[str, Json]],
    ) -> None:
        self._app = app
        self._shard = settings.shard
        self._count = settings.processes
        self._limit = settings.body_bytes
        self._security = security
        self._hashes = hashes
        self._peers = peers
        self._health = health
        self._received = 0
        self._draining = False

    def drain(self) -> None:
        """Hand nothing on any more, and drain what serves."""
        self._draining = True
        self._app.drain()

    def close(self) -> None:
        """Hang up on the peers."""
        for peer in self._peers:
            peer.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http" or self._draining:
            return await self._app(scope, receive, send)
        # Peers come through the Unix socket, whose own name is no pair of address and port.
        if not isinstance(scope["server"], tuple):
            return await self._from_peer(scope, receive, send)
        request = HttpRequest(scope, receive, send)
        handler = self._handler(request, send)
        if handler is None:
            return await self._app(scope, receive, send)
        try:
            self._security.check(request.headers)
            await handler(request)
        except Disconnected as error:
            if request.answered:
                raise ConnectionAbortedError("A peer's answer stopped short.") from error
        except AstraError as error:
            if request.answered:
                raise ConnectionAbortedError("An answer failed after it had begun.") from error
            await respond_error(request, as_http_error(error))

    async def _from_peer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._received += 1
        if scope["path"] == "/healthz":
            return await respond_json(HttpRequest(scope, receive, send), self._own_health())
        await self._app(scope, receive, send)

    # ---- whose is it --------------------------------------------------------------------

    def _handler(self, request: HttpRequest, send: Send) -> Handler | None:
        """Who answers, or None: this process does, as if it were the only one."""
        headers, count = request.headers, self._count
        owner: Owner = Whose.ANYBODY
        match request.segments:
            case ("episodes", token, "mcp") | ("episodes", token, _, "mcp"):
                owner = by_mark(token, count)
            case ("agent", "mcp"):
                owner = by_mark(bearer_token(headers) or "", count)
            case ("envs", *_):
                owner = by_mark(headers.get(SESSION_HEADER, b"").decode("latin-1"), count)
            case ("control", "mcp") if request.method == "POST":
                if same_token(bearer_token(headers), self._hashes[0]):
                    return lambda asked: self._operation(asked, send)
            case ("healthz",) if request.method == "GET":
                return self._all_health
            case ("metrics",) if request.method == "GET":
                shown = bearer_token(headers)
                if any(same_token(shown, kept) for kept in self._hashes):
                    return self._all_metrics
        if isinstance(owner, Whose) or owner == self._shard:
            return None
        peer = self._peers[owner]

        async def hand_on(request: HttpRequest) -> None:
            await peer.forward(request, await request.body(self._limit))

        return hand_on

    async def _operation(self, request: HttpRequest, send: Send) -> None:
        """A message to the control plane, by whoever holds its token."""
        body = await request.body(self._limit)
        owner = by_operation(body, self._count)
        if owner is Whose.HEARTBEAT:
            return await self._heartbeat(request, body)
        if owner is Whose.CANCEL:
            await self._everywhere(request, body)
        elif isinstance(owner, int) and owner != self._shard:
            return await self._peers[owner].forward(request, body)
        await self._app(request.scope, _unread(request, body), send)

    # ---- for all of them ----------------------------------------------------------------

    async def _everywhere(self, request: HttpRequest, body: bytes) -> None:
        """Tell the others what may concern any of them; it is owed no answer."""
        others = [shard for shard in range(self._count) if shard != self._shard]
        await self._ask(request, "POST", b"/control/mcp", dict.fromkeys(others, body))

    async def _heartbeat(self, request: HttpRequest, body: bytes) -> None:
        """Give each its episodes, and one answer for all.

        Raises:
            HttpError: 503, one is not there; the others have had theirs.
        """
        message = orjson.loads(body)
        ids = message["params"]["arguments"]["episode_ids"]
        by_shard: dict[int, list[str]] = {}
        for key in ids:
            owner = by_episode(key, self._count)
            shard = self._shard if isinstance(owner, Whose) else owner
            by_shard.setdefault(shard, []).append(key)
        bodies = {}
        for shard, keys in by_shard.items():
            message["params"]["arguments"]["episode_ids"] = keys
            bodies[shard] = orjson.dumps(message)
        answers = await self._ask(request, "POST", b"/control/mcp", bodies)
        replies = [_there(answers[shard]) for shard in by_shard]
        wrong = next((r for r in replies if r.status != 200 or not _ok(r.body)), None)
        last = wrong or replies[-1]
        if wrong is None:
            last = Reply(200, last.headers, _joined(ids, [r.body for r in replies]))
        headers = [pair for pair in last.headers if pair[0] != b"content-length"]
        await request.respond(last.status, last.body, headers)

    async def _all_health(self, request: HttpRequest) -> None:
        every = range(self._count)
        found = await self._ask(request, "GET", b"/healthz", dict.fromkeys(every, b""))
        seen = {
            shard: orjson.loads(reply.body)
            for shard, reply in found.items()
            if reply is not None and reply.status == 200
        }
        shown = dict(self._own_health())
        shown["status"] = "ok" if len(seen) == self._count else "degraded"
        for name in _SUMMED:
            shown[name] = sum(one[name] for one in seen.values())
        for name in ("pid", "shard", "handed_on", "received"):
            del shown[name]
        keys = ("pid", *_SUMMED, "handed_on", "received")
        shown["answered_by"] = self._shard
        shown["processes"] = [
            {"shard": n, "up": n in seen} | {key: seen[n][key] for key in keys if n in seen}
            for n in every
        ]
        await respond_json(request, shown)

    def _own_health(self) -> Mapping[str, Json]:
        place = {"pid": os.getpid(), "shard": self._shard}
        handed_on = sum(peer.sent for peer in self._peers)
        return {**self._health(), **place, "handed_on": handed_on, "received": self._received}

    async def _all_metrics(self, request: HttpRequest) -> None:
        every = range(self._count)
        found = await self._ask(request, "GET", b"/metrics", dict.fromkeys(every, b""))
        pages = {
            str(shard): reply.body.decode()
            for shard, reply in found.items()
            if reply is not None and reply.status == 200
        }
        lines = [f'astra_shard_up{{shard="{i}"}} {int(str(i) in pages)}' for i in every]
        up = Family("astra_shard_up", "gauge", "Whether a process of the host answers.", lines)
        page = merge("shard", pages) + render([up])
        await request.respond(200, page, [(b"content-type", CONTENT_TYPE)])

    async def _ask(
        self, request: HttpRequest, method: str, target: bytes, bodies: Mapping[int, bytes]
    ) -> dict[int, Reply | None]:
        """Ask several at once with the request's own headers; None for one that is not there."""
        found: dict[int, Reply | None] = dict.fromkeys(bodies)
        headers = request.scope["headers"]

        async def one(shard: int) -> None:
            try:
                found[shard] = await self._peers[shard].ask(method, target, headers, bodies[shard])
            except HttpError:
                found[shard] = None

        async with anyio.create_task_group() as tasks:
            for shard in bodies:
                tasks.start_soon(one, shard)
        return found


def _there(reply: Reply | None) -> Reply:
    if reply is None:
        raise HttpError(
            503,
            "A process of this host is being restarted.",
            "Try again in 1 s.",
            [(b"retry-after", b"1")],
        )
    return reply


def _ok(body: bytes) -> bool:
    result = orjson.loads(body).get("result")
    return isinstance(result, dict) and not result.get("isError")


def _joined(asked: Sequence[str], bodies: Sequence[bytes]) -> bytes:
    """One answer to a heartbeat: those that are open, in the order asked."""
    answers = [orjson.loads(body) for body in bodies]
    alive = {key for answer in answers for key in answer["result"]["structuredContent"]["open"]}
    value = {"open": [key for key in asked if key in alive]}
    joined = answers[-1]
    joined["result"]["structuredContent"] = value
    joined["result"]["content"] = [{"type": "text", "text": orjson.dumps(value).decode()}]
    return orjson.dumps(joined)


def _unread(request: HttpRequest, body: bytes) -> Receive:
    """The request's messages, with a body that has been read already."""
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Mapping[str, Json]:
        return unread.pop() if unread else await request.receive()

    return receive
