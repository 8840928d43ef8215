"""The thin client against the official SDK's server in both eras, and against broken servers."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import orjson
import pytest
from client_servers import ScriptedServer, json_reply, rpc_result

from astra_clients.exchange import UNREACHABLE, McpSettings
from astra_clients.mcp_client import McpClient
from astra_clients.wire import Era
from astra_mcp.errors import AuthError, BusyError, ClientError

ERAS: tuple[Era, ...] = ("2026", "2025")
OK: dict[str, Any] = {"content": [{"type": "text", "text": "{}"}], "structuredContent": {"a": 1}}
QUICK = McpSettings(request_s=5, retries=2)


@pytest.mark.parametrize("era", ERAS)
async def test_lists_calls_and_reads_like_an_sdk_client(
    pool: aiohttp.ClientSession, sdk_server: str, era: Era
) -> None:
    async with McpClient(pool, sdk_server, era=era) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert names == ["add", "größe", "fail", "slow"]
        added = await client.call_tool("add", {"a": 2, "b": 3})
        assert (added.structured, added.is_error, added.code) == ({"sum": 5}, False, None)
        assert orjson.loads(added.text) == {"sum": 5}
        assert (await client.call_tool("größe", {})).structured == {"cm": 7}
        contents = await client.read_resource("astra://test/thing")
        assert contents[0]["text"] == "a thing"


@pytest.mark.parametrize("era", ERAS)
async def test_a_failing_tool_is_an_answer_with_its_code(
    pool: aiohttp.ClientSession, sdk_server: str, era: Era
) -> None:
    async with McpClient(pool, sdk_server, era=era) as client:
        failed = await client.call_tool("fail", {"why": "gone"})
        assert failed.is_error
        assert failed.structured is None
        assert failed.text.endswith("no_such_thing: gone")
        unknown = await client.call_tool("nope", {})
        assert (unknown.is_error, unknown.code) == (True, "unknown_tool")


@pytest.mark.parametrize("era", ERAS)
async def test_progress_is_forwarded_when_wanted_and_ignored_otherwise(
    pool: aiohttp.ClientSession, sdk_server: str, era: Era
) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(*progress: Any) -> None:
        seen.append(progress)

    async with McpClient(pool, sdk_server, era=era, on_progress=note) as client:
        assert (await client.call_tool("slow", {"steps": 2})).structured == {"steps": 2}
    assert seen == [(1.0, 2, "step 1"), (2.0, 2, "step 2")]
    async with McpClient(pool, sdk_server, era=era) as client:
        assert (await client.call_tool("slow", {"steps": 2})).structured == {"steps": 2}


async def test_era_2025_opens_a_session_and_ends_it(
    pool: aiohttp.ClientSession, sdk_server: str
) -> None:
    async with McpClient(pool, sdk_server, era="2025") as client:
        assert client.session_id
        assert client.server_info["name"] == "oracle"
        joined = McpClient(pool, sdk_server, era="2025", session_id=client.session_id)
        async with joined:
            assert await joined.list_tools()
        assert await client.list_tools(), "one who joined a session must not end it"
        session = client.session_id
    with pytest.raises(ClientError, match="Session"):
        await McpClient(pool, sdk_server, era="2025", session_id=session).list_tools()


async def test_many_clients_share_one_pool(pool: aiohttp.ClientSession, sdk_server: str) -> None:
    clients = [McpClient(pool, sdk_server) for _ in range(8)]
    calls = [client.call_tool("add", {"a": i, "b": 0}) for i, client in enumerate(clients)]
    answers = await asyncio.gather(*calls)
    assert [a.structured for a in answers] == [{"sum": i} for i in range(8)]


async def test_the_token_is_sent_as_bearer_and_stands_in_no_error(
    pool: aiohttp.ClientSession, scripted: ScriptedServer
) -> None:
    scripted.answers((401, {}, []))
    client = McpClient(pool, f"{scripted.url}/episodes/path-secret/mcp", token="head-secret")
    with pytest.raises(AuthError) as caught:
        await client.list_tools()
    assert scripted.requests[0][1]["authorization"] == "Bearer head-secret"
    assert "secret" not in str(caught.value)


async def test_a_call_without_an_id_is_sent_once(
    pool: aiohttp.ClientSession, scripted: ScriptedServer
) -> None:
    scripted.answers((503, {"retry-after": "0"}, []))
    client = McpClient(pool, scripted.url, settings=QUICK)
    with pytest.raises(BusyError):
        await client.call_tool("t", {})
    assert len(scripted.requests) == 1


async def test_a_call_with_an_id_is_repeated_under_the_same_id(
    pool: aiohttp.ClientSession, scripted: ScriptedServer
) -> None:
    busy = (503, {"retry-after": "0"}, [])

    def handler(body: Any, headers: dict[str, str]) -> Any:
        return busy if len(scripted.requests) < 3 else rpc_result(body, OK)

    scripted.handler = handler
    client = McpClient(pool, scripted.url, settings=QUICK)
    assert (await client.call_tool("t", {}, "c-1")).structured == {"a": 1}
    ids = [body["params"]["_meta"]["astra/callId"] for body, _ in scripted.requests]
    assert ids == ["c-1"] * 3


async def test_retries_are_bounded_and_say_when_to_come_again(
    pool: aiohttp.ClientSession, scripted: ScriptedServer
) -> None:
    scripted.answers((503, {"retry-after": "0.01"}, []))
    with pytest.raises(BusyError) as caught:
        await McpClient(pool, scripted.url, settings=QUICK).list_tools()
    assert caught.value.retry_after_s == 0.01
    assert len(scripted.requests) == 1 + QUICK.retries


async def test_a_wait_beyond_the_deadline_is_not_begun(
    pool: aiohttp.ClientSession, scripted: ScriptedServer
) -> None:
    scripted.answers((503, {"retry-after": "3600"}, []))
    with pytest.raises(BusyError):
        await McpClient(pool, scripted.url, settings=QUICK).list_tools()
    assert len(scripted.requests) == 1


async def test_nobody_listening_is_told_as_unreachable(pool: aiohttp.ClientSession) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"
        settings = McpSettings(request_s=2, retries=1)
        with pytest.raises(ClientError) as caught:
            await McpClient(pool, url, settings=settings).list_tools()
    assert caught.value.code == UNREACHABLE


async def test_a_server_that_never_answers_meets_the_deadline(pool: aiohttp.ClientSession) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(1)
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/mcp"
        with pytest.raises(ClientError, match=r"within 0\.2 s"):
            await McpClient(pool, url, settings=McpSettings(request_s=0.2)).list_tools()


@pytest.mark.parametrize("length", [True, False])
async def test_an_answer_that_is_too_large_is_refused(
    pool: aiohttp.ClientSession, scripted: ScriptedServer, length: bool
) -> None:
    headers = {"content-type": "application/json"}
    if length:
        headers["content-length"] = "5000"
    scripted.answers((200, headers, [b"x" * 2500, b"x" * 2500]))
    with pytest.raises(ClientError, match="larger than 1000"):
        await McpClient(pool, scripted.url, settings=McpSettings(max_bytes=1000)).list_tools()


@pytest.mark.parametrize(
    ("chunks", "says"),
    [
        ([b"data: {not json}\n\n"], "broken"),
        ([b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n'], "ended without an answer"),
        ([], "ended without an answer"),
    ],
)
async def test_a_broken_stream_is_an_error(
    pool: aiohttp.ClientSession, scripted: ScriptedServer, chunks: list[bytes], says: str
) -> None:
    scripted.answers((200, {"content-type": "text/event-stream"}, chunks))
    with pytest.raises(ClientError, match=says):
        await McpClient(pool, scripted.url).call_tool("t", {})


async def test_a_stream_may_say_that_tools_changed(
    pool: aiohttp.ClientSession, scripted: ScriptedServer
) -> None:
    def handler(body: Any, headers: dict[str, str]) -> Any:
        note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        answer = {"jsonrpc": "2.0", "id": body["id"], "result": OK}
        chunks = [b"data: " + orjson.dumps(m) + b"\n\n" for m in (note, answer)]
        return 200, {"content-type": "text/event-stream"}, chunks

    scripted.handler = handler
    client = McpClient(pool, scripted.url)
    assert (await client.call_tool("t", {})).structured == {"a": 1}
    assert client.tools_changed


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "broken"}},
        {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required"}},
        {"jsonrpc": "2.0", "id": 1, "result": []},
        {"no": "rpc"},
        "text",
    ],
)
async def test_what_is_no_usable_result_is_an_error(
    pool: aiohttp.ClientSession, scripted: ScriptedServer, message: Any
) -> None:
    scripted.answers(json_reply(message))
    with pytest.raises(ClientError):
        await McpClient(pool, scripted.url).call_tool("t", {})


async def test_parameters_that_the_server_refuses_are_the_callers_error(
    pool: aiohttp.ClientSession, scripted: ScriptedServer
) -> None:
    error = {"code": -32602, "message": "Invalid request parameters"}
    scripted.answers(json_reply({"jsonrpc": "2.0", "id": 1, "error": error}, 400))
    refused = await McpClient(pool, scripted.url).call_tool("", {})
    assert (refused.is_error, refused.code) == (True, "invalid_arguments")


async def test_pages_of_tools_are_joined_and_must_end(
    pool: aiohttp.ClientSession, scripted: ScriptedServer
) -> None:
    def pages(body: Any, headers: dict[str, str]) -> Any:
        cursor = body["params"].get("cursor")
        page = {"tools": [{"name": f"t{cursor}"}]}
        return rpc_result(body, page | ({"nextCursor": "x"} if cursor is None else {}))

    scripted.handler = pages
    client = McpClient(pool, scripted.url)
    assert [tool["name"] for tool in await client.list_tools()] == ["tNone", "tx"]
    scripted.handler = lambda body, headers: rpc_result(body, {"tools": [], "nextCursor": "x"})
    with pytest.raises(ClientError, match="does not end"):
        await client.list_tools()


async def test_arguments_that_are_no_json_are_refused_before_sending(
    pool: aiohttp.ClientSession, scripted: ScriptedServer
) -> None:
    with pytest.raises(ClientError, match="no JSON"):
        await McpClient(pool, scripted.url).call_tool("t", {"x": {1, 2}})
    assert scripted.requests == []
