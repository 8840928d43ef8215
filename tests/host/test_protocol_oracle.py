"""The same requests to an SDK server and to ours must get the same answers, in both eras.

Compared are HTTP status, and the JSON-RPC answer without `error.data` (which says more in ours, and
is prose) except where programs read it. What differs on purpose is listed with its reason.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import mcp_types as types
import pytest
from asgi_call import Reply, asgi_call
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from transport_toy import Toy

from astra_mcp.errors import UnknownResource, UnknownTool
from astra_mcp.host.http import HttpRequest
from astra_mcp.host.protocol import RESOURCE_NOT_FOUND
from astra_mcp.host.router import Router
from astra_mcp.host.service import CallContext
from astra_mcp.host.transport import Endpoint

Json = Any
PATH = "/mcp"
BASE = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def oracle(toy: Toy) -> Server[Any]:
    """An SDK server around the same service."""

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        specs = toy.listing.specs
        return types.ListToolsResult(tools=[types.Tool.model_validate(spec) for spec in specs])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        context = CallContext("2026", None, None, ctx.session.report_progress)
        try:
            result = await toy.call_tool(params.name, params.arguments or {}, context)
        except UnknownTool as error:
            raise MCPError(types.INVALID_PARAMS, error.message) from error
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=result.text)],
            structured_content=dict(result.structured) if result.structured else None,
            is_error=result.is_error,
        )

    async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
        assert toy.resources is not None
        page = toy.resources.list_resources(params.cursor if params else None)
        items = [types.Resource.model_validate(item) for item in page.items]
        return types.ListResourcesResult(resources=items, next_cursor=page.next_cursor)

    async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        assert toy.resources is not None
        page = toy.resources.list_templates(None)
        items = [types.ResourceTemplate.model_validate(item) for item in page.items]
        return types.ListResourceTemplatesResult(resource_templates=items)

    async def read(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        assert toy.resources is not None
        try:
            contents = await toy.resources.read(params.uri)
        except UnknownResource as error:
            # The code is the server's to choose; each revision of the specification names one.
            modern = ctx.protocol_version == "2026-07-28"
            code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
            raise MCPError(code, error.message) from error
        return types.ReadResourceResult(
            contents=[
                types.TextResourceContents(uri=c.uri, mime_type=c.mime_type, text=c.text or "")
                for c in contents
            ]
        )

    return Server(
        toy.name,
        version=toy.version,
        title=toy.title,
        instructions=toy.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus()),
    )


class Pair:
    """Both servers, fresh."""

    def __init__(self, theirs: Any, ours: Router) -> None:
        self.theirs = theirs
        self.ours = ours

    async def ask(self, **request: Any) -> tuple[Reply, Reply]:
        return (
            await asgi_call(self.theirs, PATH, **request),
            await asgi_call(self.ours, PATH, **request),
        )


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    endpoint = Endpoint(Toy())

    async def resolve(request: HttpRequest) -> Endpoint:
        return endpoint

    server = oracle(Toy())
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    server.create_initialization_options = lambda *a, **k: options  # type: ignore[method-assign]
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    async with server.session_manager.run():
        yield Pair(app, Router(resolve))


def body(method: str, params: Json = None, **more: Json) -> bytes:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, **more}
    if params is not None:
        message["params"] = params
    return json.dumps(message).encode()


def comparable(reply: Reply) -> tuple[int, Json]:
    """Status and answer without the prose of error.data."""
    if not reply.body:
        return reply.status, None
    answer = reply.json
    answer.get("error", {}).pop("data", None)
    # The SDK announces for resources whatever `subscriptions/listen` could carry; we send no such
    # notification and announce none.
    answer.get("result", {}).get("capabilities", {}).pop("resources", None)
    return reply.status, answer


CLIENT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}
LEGACY: dict[str, bytes] = {
    "initialize": body("initialize", CLIENT),
    "initialize, older revision": body("initialize", {**CLIENT, "protocolVersion": "2025-03-26"}),
    "initialize, unknown revision": body("initialize", {**CLIENT, "protocolVersion": "1999-01-01"}),
    "initialize, newer revision": body("initialize", {**CLIENT, "protocolVersion": "2026-07-28"}),
    "initialize without params": body("initialize"),
    "initialize without client": body(
        "initialize", {k: v for k, v in CLIENT.items() if k != "clientInfo"}
    ),
    "initialize without capabilities": body(
        "initialize", {k: v for k, v in CLIENT.items() if k != "capabilities"}
    ),
    "initialize with a number for revision": body("initialize", {**CLIENT, "protocolVersion": 1}),
    "initialize with a nameless client": body("initialize", {**CLIENT, "clientInfo": {}}),
    "ping": body("ping"),
    "ping with params": body("ping", {}),
    "string id": body("ping", id="a"),
    "empty string id": body("ping", id=""),
    "negative id": body("ping", id=-1),
    "zero id": body("ping", id=0),
    "tools/list": body("tools/list"),
    "tools/list with null cursor": body("tools/list", {"cursor": None}),
    "tools/list with a number for cursor": body("tools/list", {"cursor": 1}),
    "tools/list with wrong meta": body("tools/list", {"_meta": 1}),
    "call": body("tools/call", {"name": "count", "arguments": {}}),
    "call without arguments": body("tools/call", {"name": "count"}),
    "call with null arguments": body("tools/call", {"name": "count", "arguments": None}),
    "call with a list of arguments": body("tools/call", {"name": "count", "arguments": []}),
    "call with unicode": body("tools/call", {"name": "echo", "arguments": {"text": "é\u2028😀"}}),
    "call without name": body("tools/call", {"arguments": {}}),
    "call with a number for name": body("tools/call", {"name": 3}),
    "call without params": body("tools/call"),
    "call of an unknown tool": body("tools/call", {"name": "nope"}),
    "call that fails": body("tools/call", {"name": "fail"}),
    "call with a progress token": body(
        "tools/call", {"name": "count", "_meta": {"progressToken": "p"}}
    ),
    "call with a wrong progress token": body(
        "tools/call", {"name": "count", "_meta": {"progressToken": []}}
    ),
    "call with wrong meta": body("tools/call", {"name": "count", "_meta": "x"}),
    "unknown method": body("nope/nope"),
    "prompts/list": body("prompts/list"),
    "logging/setLevel": body("logging/setLevel", {"level": "info"}),
    "completion/complete": body(
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a", "value": "b"}},
    ),
    "resources/subscribe": body("resources/subscribe", {"uri": "toy://a"}),
    "server/discover": body("server/discover"),
    "subscriptions/listen": body("subscriptions/listen", {"notifications": {}}),
    "resources/list": body("resources/list"),
    "resources/list, second page": body("resources/list", {"cursor": "2"}),
    "resources/templates/list": body("resources/templates/list"),
    "resources/read": body("resources/read", {"uri": "toy://b"}),
    "resources/read without uri": body("resources/read", {}),
    "notification": body("notifications/initialized").replace(b'"id": 7, ', b""),
    "unknown notification": body("notifications/nope").replace(b'"id": 7, ', b""),
    "cancelled": body("notifications/cancelled", {"requestId": 99}).replace(b'"id": 7, ', b""),
    "a client's response": b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    "a client's error": b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}',
}


@pytest.mark.parametrize("case", LEGACY)
@pytest.mark.parametrize("version", [None, "2025-11-25", "2024-11-05"])
async def test_both_answer_the_handshake_era_alike(
    pair: Pair, case: str, version: str | None
) -> None:
    headers = BASE if version is None else {**BASE, "mcp-protocol-version": version}
    theirs, ours = await pair.ask(headers=headers, body=LEGACY[case])
    assert comparable(ours) == comparable(theirs)


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{",
    "not UTF-8": b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}',
    "batch": b"[" + body("ping") + b"]",
    "empty batch": b"[]",
    "number": b"1",
    "null": b"null",
    "no version": b'{"id": 1, "method": "ping"}',
    "wrong version": b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
    "method is a number": b'{"jsonrpc": "2.0", "id": 1, "method": 1}',
    "params are a list": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}',
    "deep": b"[" * 100_000,
    "id is a list": b'{"jsonrpc": "2.0", "id": [], "method": "ping", "params": []}',
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("version", [None, "2026-07-28"])
async def test_both_refuse_malformed_messages_with_400(
    pair: Pair, case: str, version: str | None
) -> None:
    """The code differs where the SDK answers -32602 to a malformed message of the older era."""
    headers = BASE if version is None else {**BASE, "mcp-protocol-version": version}
    theirs, ours = await pair.ask(headers=headers, body=MALFORMED[case])
    assert (ours.status, theirs.status) == (400, 400)
    assert ours.json["id"] is None
    if version is not None:
        assert ours.json["error"]["code"] == theirs.json["error"]["code"]


@pytest.mark.parametrize("request_id", [None, 1.5, True, {}])
async def test_an_id_that_is_no_id_is_refused(pair: Pair, request_id: Json) -> None:
    """The SDK takes such a message of the older era for a notification and never answers it."""
    for version in ("2025-11-25", "2026-07-28"):
        headers = {**BASE, "mcp-protocol-version": version}
        _, ours = await pair.ask(headers=headers, body=body("ping", id=request_id))
        assert (ours.status, ours.json["error"]["code"]) == (400, -32600)


# ---- 2026-07-28 -----------------------------------------------------------------------------


def modern(method: str, params: Mapping[str, Json] | None = None, **headers: str | None) -> Json:
    """A 2026-era request with all its headers; a header given as None is left out."""
    sent = {**(params or {}), "_meta": (params or {}).get("_meta", META)}
    lines: dict[str, str | None] = {
        **BASE,
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        **({"mcp-name": str(sent["name"])} if "name" in sent else {}),
        **({"mcp-name": str(sent["uri"])} if "uri" in sent else {}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return {
        "headers": {name: value for name, value in lines.items() if value is not None},
        "body": body(method, sent),
    }


def meta(**changes: Json) -> dict[str, Json]:
    """The envelope with changes; a key changed to None is left out."""
    prefixed = {f"io.modelcontextprotocol/{key}": value for key, value in changes.items()}
    return {key: value for key, value in {**META, **prefixed}.items() if value is not None}


B64 = f"=?base64?{base64.b64encode(b'count').decode()}?="
MODERN: dict[str, Json] = {
    "discover": modern("server/discover"),
    "tools/list": modern("tools/list"),
    "call": modern("tools/call", {"name": "count", "arguments": {}}),
    "call without arguments": modern("tools/call", {"name": "count"}),
    "call with a list of arguments": modern("tools/call", {"name": "count", "arguments": []}),
    "call that fails": modern("tools/call", {"name": "fail"}),
    "call of an unknown tool": modern("tools/call", {"name": "nope"}),
    "call that crashes": modern("tools/call", {"name": "crash"}),
    "call without name": modern("tools/call", {}),
    "call with a number for name": modern("tools/call", {"name": 3}, mcp_name="3"),
    "call with an encoded name": modern("tools/call", {"name": "count"}, mcp_name=B64),
    "call with a badly encoded name": modern(
        "tools/call", {"name": "count"}, mcp_name="=?base64?x?="
    ),
    "call without mcp-name": modern("tools/call", {"name": "count"}, mcp_name=None),
    "call with another mcp-name": modern("tools/call", {"name": "count"}, mcp_name="echo"),
    "another mcp-method": modern("tools/list", mcp_method="tools/call"),
    "no mcp-method": modern("tools/list", mcp_method=None),
    "needless mcp-name": modern("tools/list", mcp_name="x"),
    "no meta": modern("tools/list", {"_meta": None}),
    "meta is a list": modern("tools/list", {"_meta": []}),
    "empty meta": modern("tools/list", {"_meta": {}}),
    "no capabilities": modern("tools/list", {"_meta": meta(clientCapabilities=None)}),
    "no version": modern("tools/list", {"_meta": meta(protocolVersion=None)}),
    "no client": modern("tools/list", {"_meta": meta(clientInfo=None)}),
    "nameless client": modern("tools/list", {"_meta": meta(clientInfo={"name": "x"})}),
    "client is a string": modern("tools/list", {"_meta": meta(clientInfo="x")}),
    "capabilities are a list": modern("tools/list", {"_meta": meta(clientCapabilities=[])}),
    "version is a number": modern("tools/list", {"_meta": meta(protocolVersion=1)}),
    "another version in the envelope": modern(
        "tools/list", {"_meta": meta(protocolVersion="2099-01-01")}
    ),
    "a version from the future": modern(
        "tools/list",
        {"_meta": meta(protocolVersion="2099-01-01")},
        mcp_protocol_version="2099-01-01",
    ),
    "initialize": modern("initialize", CLIENT),
    "ping": modern("ping"),
    "unknown method": modern("nope"),
    "prompts/list": modern("prompts/list"),
    "resources/list": modern("resources/list"),
    "resources/list, second page": modern("resources/list", {"cursor": "2"}),
    "resources/templates/list": modern("resources/templates/list"),
    "resources/read": modern("resources/read", {"uri": "toy://a"}),
    "resources/read of nothing": modern("resources/read", {"uri": "toy://z"}),
    "listen without a filter": modern("subscriptions/listen"),
    "listen, no event stream": modern("subscriptions/listen", accept="application/json"),
    "accept nothing": modern("tools/list", accept="text/plain"),
    "accept anything": modern("tools/list", accept="*/*"),
    "accept application/*": modern("tools/list", accept="application/*;q=0.5"),
    "notification": {
        "headers": {**BASE, "mcp-protocol-version": "2026-07-28"},
        "body": body("notifications/x").replace(b'"id": 7, ', b""),
    },
    "notification from the future": {
        "headers": {**BASE, "mcp-protocol-version": "2099-01-01"},
        "body": body("notifications/x").replace(b'"id": 7, ', b""),
    },
    "a client's response": {
        "headers": {**BASE, "mcp-protocol-version": "2026-07-28"},
        "body": b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    },
    "repeated mcp-method": {
        **modern("tools/list"),
        "repeated": (("mcp-method", "tools/list"),),
    },
    "repeated mcp-protocol-version": {
        **modern("tools/list"),
        "repeated": (("mcp-protocol-version", "2026-07-28"),),
    },
    "repeated accept": {**modern("tools/list"), "repeated": (("accept", "application/json"),)},
    "GET": {"headers": {**BASE, "mcp-protocol-version": "2026-07-28"}, "method": "GET"},
}


@pytest.mark.parametrize("case", MODERN)
async def test_both_answer_the_stateless_era_alike(pair: Pair, case: str) -> None:
    theirs, ours = await pair.ask(**MODERN[case])
    expected, found = comparable(theirs), comparable(ours)
    if expected[1] is None:  # the SDK refuses on the HTTP level without a word
        assert found[0] == expected[0]
    else:
        assert found == expected


async def test_both_name_the_supported_revisions_alike(pair: Pair) -> None:
    for case in ("a version from the future", "notification from the future"):
        theirs, ours = await pair.ask(**MODERN[case])
        assert ours.json["error"]["data"] == theirs.json["error"]["data"]
