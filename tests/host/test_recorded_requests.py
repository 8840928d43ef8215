"""What real clients sent, byte for byte, gets the same answers from an SDK server and from ours.

Each recorded visit is replayed from its first request to its last, so that sessions and state come
into it. The SDK server is as its users have it: sessions in the 2025 era, answers as event streams.
Compared are the HTTP status, whether a session began, and every message of the answer in its order,
progress included; not `error.data` (prose), nor that an answer is a stream (docs/protocol.md).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from asgi_call import Reply, asgi_call
from mcp.server.lowlevel import NotificationOptions
from recorded import FILE, SESSION, Counter
from test_protocol_oracle import oracle

from astra_mcp.host.http import HttpRequest
from astra_mcp.host.router import Router
from astra_mcp.host.transport import Endpoint

Json = Any
CORPUS: dict[str, list[Json]] = json.loads(FILE.read_text("utf-8"))


@dataclass
class Side:
    """One of the two servers, and the session that it gave."""

    app: Any
    session: str = ""

    async def ask(self, request: Json) -> Reply:
        """Replay one request."""
        headers = {k: v.replace(SESSION, self.session) for k, v in request["headers"].items()}
        reply = await asgi_call(
            self.app,
            "/mcp",
            headers,
            request["body"].encode(),
            request["method"],
            hang_up=request["method"] == "GET",
        )
        self.session = reply.headers.get("mcp-session-id", self.session)
        return reply


@pytest.fixture
async def sides() -> AsyncIterator[tuple[Side, Side]]:
    """Both, fresh."""
    endpoint = Endpoint(Counter())

    async def resolve(request: HttpRequest) -> Endpoint:
        return endpoint

    server = oracle(Counter())
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    server.create_initialization_options = lambda *a, **k: options  # type: ignore[method-assign]
    app = server.streamable_http_app()
    async with server.session_manager.run():
        yield Side(app), Side(Router(resolve))


def comparable(request: Json, reply: Reply) -> Json:
    """What has to be the same."""
    if request["method"] != "POST":
        kind = reply.headers.get("content-type", "").split(";")[0]
        return reply.status, kind if request["method"] == "GET" else None
    streams = reply.headers.get("content-type", "").startswith("text/event-stream")
    answers = reply.events if streams else [json.loads(reply.body)] if reply.body else []
    for answer in answers:
        answer.get("error", {}).pop("data", None)
        answer.get("result", {}).get("capabilities", {}).pop("resources", None)
    first = '"initialize"' in request["body"]
    return reply.status, first and "mcp-session-id" in reply.headers, answers


@pytest.mark.parametrize("client", CORPUS)
async def test_a_recorded_visit_gets_the_same_answers(
    client: str, sides: tuple[Side, Side]
) -> None:
    theirs, ours = sides
    for request in CORPUS[client]:
        expected = comparable(request, await theirs.ask(request))
        found = comparable(request, await ours.ask(request))
        assert found == expected, request["body"]
    assert len(CORPUS[client]) >= 10


def test_the_corpus_has_both_eras_and_every_method_that_clients_use() -> None:
    bodies = [json.loads(r["body"]) for visit in CORPUS.values() for r in visit if r["body"]]
    assert {body["method"] for body in bodies} >= {
        "initialize",
        "notifications/initialized",
        "server/discover",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
    }
    versions = {r["headers"].get("mcp-protocol-version") for v in CORPUS.values() for r in v}
    assert versions >= {"2025-11-25", "2026-07-28"}
    assert {r["method"] for v in CORPUS.values() for r in v} == {"POST", "GET", "DELETE"}
