"""The one request that a dead token still answers: the repetition of the call that submitted.

An agent that submits its own answer ends its episode with that call, and its token with it. When
the answer was lost on the way, the client sends the call again under the same call id; it hears
what it would have heard. Everything else under that token is refused like an unknown one, so the
token opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from astra_mcp.host.http import HttpRequest
from astra_mcp.host.protocol import CALL_ID_KEY
from astra_mcp.host.router import Plain
from astra_mcp.host.tokens import refused
from astra_mcp.host.transport import Endpoint, McpTransport
from astra_mcp.rules import SUBMIT


def again(transport: McpTransport, endpoint: Endpoint, call_id: str) -> Plain:
    """A route that answers the call of that id at `endpoint`, and refuses everything else."""

    async def answer(request: HttpRequest) -> None:
        body = await request.body(transport.body_limit)
        if not _submits(body, call_id):
            raise refused()
        await transport.handle(_with_body(request, body), endpoint)

    return Plain(answer, ("POST",))


def _submits(body: bytes, call_id: str) -> bool:
    try:
        message = orjson.loads(body)
        params = message["params"]
        asked = message["method"], params["name"], params["_meta"][CALL_ID_KEY]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(asked == ("tools/call", SUBMIT, call_id))


def _with_body(request: HttpRequest, body: bytes) -> HttpRequest:
    """The same request, whose body has been read already."""
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Mapping[str, Any]:
        return unread.pop() if unread else await request.receive()

    return HttpRequest(request.scope, receive, request.send)
