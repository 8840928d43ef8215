"""Recording: every exchange of every episode, byte-exact, one file per episode (tape.py).

A wrapper around the application that a server runs; a host that does not record does not have it.
It looks at ASGI messages only and never changes one. A line is written before the last byte of its
answer goes out, so that what a client did next stands after it.

Tokens, session ids and the control token are replaced wherever they stand, by placeholders that
hold a number drawn per file: nothing that an agent writes can be taken for one. The files hold user
turns and grades: they are private records (mode 0600, the canary in the header). Left out: what the
host refused before it reached the episode (401, 403, 421, 429, 503), other operations of the
control plane, and plays. Recording that fails is logged, never the request's failure.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from astra_mcp import __version__
from astra_mcp.errors import AstraError
from astra_mcp.host.episodes import Episodes, Live
from astra_mcp.host.http import Header, Receive, Scope, Send, bearer_token
from astra_mcp.host.server import Application
from astra_mcp.host.tape import SCHEMA, SUFFIX, Exchange, Pair, Plane, TapeFile, read_recording
from astra_mcp.host.tokens import same_token

Json = Any
log = logging.getLogger("astra_mcp.host")

#: Most bytes held of an exchange that is under way; one that outgrows it is recorded without.
BUFFER_BYTES: Final = 4 * 1024 * 1024
#: Episodes kept in mind; the file of another one is read again when it goes on.
KEPT: Final = 4096
REFUSED: Final = frozenset({401, 403, 421, 429, 503})
REQUEST_HEADERS: Final = frozenset({b"accept", b"content-type", b"last-event-id"})
ANSWER_HEADERS: Final = frozenset(
    {b"content-type", b"cache-control", b"allow", b"retry-after", b"www-authenticate"}
)
SESSION: Final = b"mcp-session-id"
_MEANINGS: Final = {
    "token": "the episode's token, in paths, headers and bodies",
    "control": "the control token",
    "session": "the MCP session id that the host gave the client; nothing depends on it",
    "other": "a bearer token that is neither of these",
}


@dataclass
class _Tape:
    """One episode's file and what is replaced in it."""

    file: TapeFile
    began: float
    count: int
    names: Mapping[str, str]
    """Role to placeholder."""
    tokens: set[bytes] = field(default_factory=set)
    broken: bool = False

    def hide(self, data: bytes, control: bytes | None = None) -> bytes:
        """`data` with every token replaced."""
        for token in self.tokens:
            data = data.replace(token, self.names["token"].encode())
        return data if control is None else data.replace(control, self.names["control"].encode())


@dataclass
class _Heard:
    """One exchange under way."""

    scope: Scope
    plane: Plane
    live: Live | None
    bearer: bytes | None
    token: bytes | None
    began: float = field(default_factory=time.monotonic)
    body: list[bytes] = field(default_factory=list)
    status: int | None = None
    headers: Sequence[Header] = ()
    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    after: int = 0
    held: int = 0
    cut: str | None = None
    done: bool = False

    def keep(self, data: bytes) -> bool:
        """Whether there is room for `data` as long as the exchange goes on."""
        self.held += len(data)
        if self.held > BUFFER_BYTES and self.cut is None:
            self.cut = f"it is larger than {BUFFER_BYTES} bytes"
            self.body.clear()
            self.chunks.clear()
        return self.cut is None


class Recorder:
    """The application around a host's router.

    Args:
        app: What serves.
        folder: Where the files go; made with mode 0700.
        episodes: Tells whose a token is.
        control_hash: Hash of the control token.
    """

    def __init__(
        self, app: Application, folder: Path, episodes: Episodes, control_hash: str
    ) -> None:
        self._app = app
        self._folder = folder
        self._episodes = episodes
        self._control_hash = control_hash
        self._tapes: OrderedDict[str, _Tape] = OrderedDict()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def drain(self) -> None:
        """Drain what serves."""
        self._app.drain()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope, and record it when it is an episode's."""
        heard = self._heard(scope)
        if heard is None:
            return await self._app(scope, receive, send)

        async def hear() -> Mapping[str, Json]:
            message = await receive()
            if message["type"] == "http.request" and heard.keep(message.get("body", b"")):
                heard.body.append(message.get("body", b""))
            return message

        async def say(message: Mapping[str, Json]) -> None:
            self._said(heard, message)
            await send(message)

        try:
            await self._app(scope, hear, say)
        finally:
            self._close(heard, "client")

    # ---- who is it ----------------------------------------------------------------------

    def _heard(self, scope: Scope) -> _Heard | None:
        if scope["type"] != "http":
            return None
        bearer = bearer_token(dict(reversed(scope["headers"])))
        shown = None if bearer is None else bearer.encode("latin-1")
        match scope["path"].split("/")[1:]:
            case ["episodes", token, "mcp"] | ["episodes", token, _, "mcp"]:
                return self._agent(scope, token, shown)
            case ["agent", "mcp"]:
                return self._agent(scope, bearer or "", shown)
            case ["control", "mcp"] if same_token(bearer, self._control_hash):
                return _Heard(scope, "control", None, shown, None)
        return None

    def _agent(self, scope: Scope, token: str, shown: bytes | None) -> _Heard | None:
        # A dead token still gets the answer to its submission, when that is asked for again.
        live = self._episodes.by_token(token) or self._episodes.submitted_by(token)
        if live is None:
            return None
        return _Heard(scope, "agent", live, shown, token.encode())

    # ---- what is said -------------------------------------------------------------------

    def _said(self, heard: _Heard, message: Mapping[str, Json]) -> None:
        if message["type"] == "http.response.start":
            heard.status, heard.headers = message["status"], list(message["headers"])
            if heard.live is not None:
                tape = self._tapes.get(heard.live.episode.spec.episode_id)
                heard.after = tape.count if tape is not None else 0
        elif message["type"] == "http.response.body":
            body = message.get("body", b"")
            last = not message.get("more_body", False)
            # The last part is on its way out anyway: holding it costs nothing.
            if body and (heard.cut is None if last else heard.keep(body)):
                heard.chunks.append((time.monotonic(), body))
            if last:
                self._close(heard, "host")

    def _close(self, heard: _Heard, ended: str) -> None:
        """Write the exchange, once."""
        if heard.done:
            return
        heard.done = True
        if heard.status in REFUSED:
            return
        body = b"".join(heard.body)
        live, issued = heard.live, None
        if heard.plane == "control":
            live, issued = self._of_control(body, b"".join(part for _, part in heard.chunks))
        if live is None:
            return
        tape = self._tape(live, heard.began)
        if tape is None or tape.broken:
            return
        tape.tokens.update(token for token in (heard.token, issued) if token)
        try:
            tape.file.append(_exchange(heard, tape, body, ended).line())
            tape.count += 1
        except OSError as error:
            # What follows would lack this exchange, so nothing may follow it.
            tape.broken = True
            log.error("recording of %s stops: %s", _id(live), error.strerror)

    def _of_control(self, body: bytes, answer: bytes) -> tuple[Live | None, bytes | None]:
        """The episode that a control request is about, and the token that its answer issues."""
        try:
            asked = orjson.loads(body)
            params = asked["params"]
            if asked["method"] == "resources/read":
                scheme, _, rest = params["uri"].partition("://episodes/")
                return self._known(rest.split("/")[0] if scheme == "astra" else ""), None
            if asked["method"] != "tools/call":
                return None, None
            if params["name"] != "open_episode":
                return self._known(params["arguments"]["episode_id"]), None
            opened = orjson.loads(answer)["result"]["structuredContent"]
            return self._known(opened["episode_id"]), opened["token"].encode()
        except (KeyError, TypeError, ValueError, AttributeError):
            return None, None  # no operation on an episode, or one that was refused

    def _known(self, episode_id: Json) -> Live | None:
        return self._episodes.known(episode_id) if isinstance(episode_id, str) else None

    # ---- files --------------------------------------------------------------------------

    def _tape(self, live: Live, began: float) -> _Tape | None:
        episode_id = _id(live)
        if episode_id not in self._tapes:
            try:
                self._tapes[episode_id] = self._begin(live, began)
            except (OSError, AstraError) as error:
                log.error("%s cannot be recorded: %s", episode_id, type(error).__name__)
                return None
            while len(self._tapes) > KEPT:
                self._tapes.popitem(last=False)
        self._tapes.move_to_end(episode_id)
        return self._tapes[episode_id]

    def _begin(self, live: Live, began: float) -> _Tape:
        """A new file, or the end of one that an earlier run of the host began."""
        path = self._folder / f"{_id(live)}{SUFFIX}"
        if path.exists():
            return _continued(path)
        number = secrets.token_hex(4)
        names = {role: f"{{{role}-{number}}}" for role in _MEANINGS}
        file = TapeFile(path)
        file.append(_header(live, names))
        return _Tape(file, began, 0, names)


def _continued(path: Path) -> _Tape:
    saved = read_recording(path)
    os.truncate(path, saved.size)
    last = saved.exchanges[-1].ended_s if saved.exchanges else 0.0
    file = TapeFile(path, saved.check)
    file.append({"kind": "continued", "time": _now()})
    names = {role: name for name, (role, _) in saved.header["replaced"].items()}
    return _Tape(file, time.monotonic() - last, len(saved.exchanges), names)


def _header(live: Live, names: Mapping[str, str]) -> dict[str, Json]:
    episode = live.episode
    return {
        "kind": "header",
        "schema": SCHEMA,
        "episode_id": episode.spec.episode_id,
        "task": episode.spec.task,
        "digest": episode.spec.digest,
        "world_digest": episode.bundle.world_digest,
        "canary": episode.bundle.sealed.canary,
        "spec": episode.spec.model_dump(mode="json"),
        "far": {tool.world.ref: tool.world.world_digest for tool in episode.far.values()},
        "time": _now(),
        "versions": {"astra_mcp": __version__},
        "replaced": {name: [role, _MEANINGS[role]] for role, name in names.items()},
        "headers": "only those that MCP looks at; of `authorization` only whose token it was",
    }


def _exchange(heard: _Heard, tape: _Tape, body: bytes, ended: str) -> Exchange:
    control = heard.bearer if heard.plane == "control" else None
    query = heard.scope.get("query_string", b"").decode("latin-1")
    path = heard.scope["path"] + (f"?{query}" if query else "")
    chunks = [(at - tape.began, tape.hide(part, control)) for at, part in heard.chunks]
    return Exchange(
        plane=heard.plane,
        method=heard.scope["method"],
        path=tape.hide(path.encode(), control).decode(),
        headers=_asked(heard, tape, control),
        body=tape.hide(body, control),
        status=heard.status,
        answer_headers=_answered(heard.headers, tape, control),
        chunks=chunks,
        after=heard.after if heard.plane == "agent" else tape.count,
        ended="host" if ended == "host" else "client",
        began_s=max(0.0, heard.began - tape.began),
        ended_s=time.monotonic() - tape.began,
        cut=heard.cut,
    )


def _asked(heard: _Heard, tape: _Tape, control: bytes | None) -> list[Pair]:
    kept: list[Pair] = []
    for name, value in heard.scope["headers"]:
        if name == SESSION:
            kept.append((name.decode(), tape.names["session"]))
        elif name in REQUEST_HEADERS or name.startswith(b"mcp-"):
            kept.append((name.decode("latin-1"), tape.hide(value, control).decode("latin-1")))
    if heard.bearer is not None:
        role = "control" if control is not None else "other"
        role = "token" if heard.bearer == heard.token else role
        kept.append(("authorization", f"Bearer {tape.names[role]}"))
    return kept


def _answered(headers: Sequence[Header], tape: _Tape, control: bytes | None) -> list[Pair]:
    kept = [(name, tape.hide(value, control)) for name, value in headers]
    return answer_headers(kept, tape.names["session"])


def answer_headers(headers: Iterable[Header], session: str) -> list[Pair]:
    """The response headers that a recording keeps, with `session` for a session id."""
    return [
        (name.decode(), session if name == SESSION else value.decode("latin-1"))
        for name, value in ((name.lower(), value) for name, value in headers)
        if name == SESSION or name in ANSWER_HEADERS
    ]


def _id(live: Live) -> str:
    return live.episode.spec.episode_id


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
