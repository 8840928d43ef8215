"""One HTTP exchange with an ASGI application in this process, without a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio

Json = Any


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body as JSON; of an event stream, its last event."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return self.events[-1]
        return json.loads(self.body)

    @property
    def events(self) -> list[Json]:
        """The events of a stream."""
        lines = self.body.replace(b"\r\n", b"\n").split(b"\n")
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]


async def asgi_call(
    app: Any,
    path: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    method: str = "POST",
    repeated: tuple[tuple[str, str], ...] = (),
    hang_up: bool = False,
) -> Reply:
    """Send one request and wait for the whole answer, at most ten seconds.

    Args:
        hang_up: Go away as soon as the answer starts: for streams, which have no end.
    """
    lines = [("host", "127.0.0.1:1234"), *headers.items(), *repeated]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode()) for k, v in lines],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1234),
        "state": {},
    }
    sent = [{"type": "http.request", "body": body, "more_body": False}]
    out: list[Mapping[str, Any]] = []
    gone = anyio.Event()

    async def receive() -> Mapping[str, Any]:
        if sent:
            return sent.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        out.append(message)
        if hang_up and message["type"] == "http.response.start":
            gone.set()

    with anyio.fail_after(10):
        await app(scope, receive, send)
    return Reply(
        out[0]["status"],
        {k.decode().lower(): v.decode() for k, v in out[0]["headers"]},
        b"".join(m.get("body", b"") for m in out[1:]),
    )
