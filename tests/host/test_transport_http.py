"""The HTTP layer: what is refused, with which status, and how the refusal reads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from transport_toy import TOKEN, Toy, World, running

from astra_mcp.errors import EpisodeError

Json = Any
BASE = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that `astra serve` runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def world(anyio_backend: object) -> AsyncIterator[World]:
    async with running() as world:
        yield world


@pytest.fixture(scope="module")
async def http(anyio_backend: object) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
        yield session


Answer = tuple[int, Json, Mapping[str, str]]


async def send(http: aiohttp.ClientSession, method: str, url: str, **kwargs: Any) -> Answer:
    kwargs.setdefault("headers", BASE)
    async with http.request(method, url, **kwargs) as response:
        body = await response.read()
        return response.status, json.loads(body) if body else None, response.headers


def assert_refused(answer: Answer, status: int) -> Json:
    """An error of this layer has its one shape, with a remedy, and never shows the token."""
    assert answer[0] == status
    assert answer[1]["jsonrpc"] == "2.0"
    assert answer[1]["id"] is None
    assert answer[1]["error"]["message"]
    assert answer[1]["error"]["data"]["remedy"]
    assert TOKEN not in json.dumps(answer[1])
    return answer[1]["error"]


async def test_a_message_of_the_2025_era_needs_no_session_at_an_episode(
    world: World, http: aiohttp.ClientSession
) -> None:
    status, answer, headers = await send(http, "POST", world.episode_url, data=PING)
    assert (status, answer) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "accept",
    ["application/json", "*/*", "application/*", "text/html, application/json;q=0.1"],
)
async def test_json_is_accepted_in_all_its_spellings(
    world: World, http: aiohttp.ClientSession, accept: str
) -> None:
    headers = {**BASE, "Accept": accept}
    status, *_ = await send(http, "POST", world.episode_url, data=PING, headers=headers)
    assert status == 200


@pytest.mark.parametrize("accept", ["text/event-stream", "text/html", ""])
async def test_a_client_that_takes_no_json_gets_406(
    world: World, http: aiohttp.ClientSession, accept: str
) -> None:
    headers = {**BASE, "Accept": accept}
    answer = await send(http, "POST", world.episode_url, data=PING, headers=headers)
    assert_refused(answer, 406)


@pytest.mark.parametrize("content", ["text/plain", "application/jsonp", "application/x-json"])
async def test_another_content_type_gets_415(
    world: World, http: aiohttp.ClientSession, content: str
) -> None:
    headers = {**BASE, "Content-Type": content}
    answer = await send(http, "POST", world.episode_url, data=PING, headers=headers)
    assert_refused(answer, 415)


async def test_content_type_parameters_are_let_through(
    world: World, http: aiohttp.ClientSession
) -> None:
    headers = {**BASE, "Content-Type": "Application/JSON; charset=utf-8"}
    status, *_ = await send(http, "POST", world.episode_url, data=PING, headers=headers)
    assert status == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD"])
async def test_other_methods_get_405_with_allow(
    world: World, http: aiohttp.ClientSession, method: str
) -> None:
    status, _, headers = await send(http, method, world.episode_url)
    assert (status, headers["allow"]) == (405, "GET, POST, DELETE")


async def test_options_says_what_is_allowed(world: World, http: aiohttp.ClientSession) -> None:
    status, body, headers = await send(http, "OPTIONS", world.still_url)
    assert (status, body, headers["allow"]) == (204, None, "POST, DELETE")


async def test_a_stream_where_nothing_changes_is_refused_with_405(
    world: World, http: aiohttp.ClientSession
) -> None:
    assert_refused(await send(http, "GET", world.still_url), 405)


@pytest.mark.parametrize(
    "path", ["/", "/nope", "/episodes/wrong/mcp", "/envs/no/mcp", "/mcp/", "//"]
)
async def test_unknown_paths_get_404(world: World, http: aiohttp.ClientSession, path: str) -> None:
    assert_refused(await send(http, "POST", world.url + path, data=PING), 404)


async def test_plain_routes_answer_get_and_head_and_nothing_else(
    world: World, http: aiohttp.ClientSession
) -> None:
    assert (await send(http, "GET", f"{world.url}/healthz"))[:2] == (200, {"status": "ok"})
    assert (await send(http, "HEAD", f"{world.url}/healthz"))[:2] == (200, None)
    assert_refused(await send(http, "POST", f"{world.url}/healthz", data=b""), 405)


async def test_a_failing_handler_gives_500_without_its_text(
    world: World, http: aiohttp.ClientSession
) -> None:
    error = assert_refused(await send(http, "GET", f"{world.url}/boom"), 500)
    assert "42" not in json.dumps(error)


@pytest.mark.parametrize("shown", [{}, {"Authorization": "Bearer x"}, {"Authorization": "control"}])
async def test_a_wrong_token_gets_401_with_a_challenge(
    world: World, http: aiohttp.ClientSession, shown: dict[str, str]
) -> None:
    answer = await send(
        http, "POST", f"{world.url}/control/mcp", data=PING, headers={**BASE, **shown}
    )
    assert_refused(answer, 401)
    assert answer[2]["www-authenticate"] == "Bearer"


async def test_the_right_token_opens(world: World, http: aiohttp.ClientSession) -> None:
    headers = {**BASE, "Authorization": "bearer  control"}
    status, *_ = await send(http, "POST", f"{world.url}/control/mcp", data=PING, headers=headers)
    assert status == 200


# ---- who may come -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:99", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("localhost:x", 421),
        ("127.0.0.1@evil.example", 421),
    ],
)
async def test_only_loopback_hosts_are_answered(
    world: World, http: aiohttp.ClientSession, host: str, status: int
) -> None:
    headers = {**BASE, "Host": host}
    answer = await send(http, "POST", world.episode_url, data=PING, headers=headers)
    if status == 200:
        assert answer[0] == 200
    else:
        assert_refused(answer, status)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("https://127.0.0.1", 200),
        ("http://[::1]:1", 200),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_only_loopback_origins_are_answered(
    world: World, http: aiohttp.ClientSession, origin: str, status: int
) -> None:
    headers = {**BASE, "Origin": origin}
    answer = await send(http, "POST", world.episode_url, data=PING, headers=headers)
    if status == 200:
        assert answer[0] == 200
    else:
        assert_refused(answer, status)


# ---- bodies ----------------------------------------------------------------------------------


def padded(size: int) -> bytes:
    """A ping of exactly `size` bytes."""
    return PING + b" " * (size - len(PING))


async def test_a_body_of_the_limit_is_taken_and_one_byte_more_is_not(
    world: World, http: aiohttp.ClientSession
) -> None:
    limit = world.transport.body_limit
    assert (await send(http, "POST", world.episode_url, data=padded(limit)))[0] == 200
    assert_refused(await send(http, "POST", world.episode_url, data=padded(limit + 1)), 413)


async def test_a_chunked_body_is_counted_as_it_comes(
    world: World, http: aiohttp.ClientSession
) -> None:
    async def chunks(total: int) -> AsyncIterator[bytes]:
        body = padded(total)
        for start in range(0, total, 50_000):
            yield body[start : start + 50_000]

    limit = world.transport.body_limit
    assert (await send(http, "POST", world.episode_url, data=chunks(limit)))[0] == 200
    answer = await send(http, "POST", world.episode_url, data=chunks(limit + 1))
    assert_refused(answer, 413)


async def test_deep_nesting_is_a_parse_error(world: World, http: aiohttp.ClientSession) -> None:
    depth = 200_000
    body = PING[:-1] + b',"params":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    body = body[: world.transport.body_limit]
    status, answer, _ = await send(http, "POST", world.episode_url, data=body)
    assert (status, answer["error"]["code"]) == (400, -32700)


# ---- eras ------------------------------------------------------------------------------------

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
DISCOVER = {"jsonrpc": "2.0", "id": 9, "method": "server/discover", "params": {"_meta": META}}
HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.mark.parametrize("version", ["2026-07-28", "2099-01-01", "nonsense"])
async def test_an_endpoint_of_the_2025_era_names_its_revisions_to_newer_clients(
    world: World, http: aiohttp.ClientSession, version: str
) -> None:
    headers = {**BASE, "MCP-Protocol-Version": version, "Mcp-Method": "server/discover"}
    status, answer, _ = await send(
        http, "POST", world.envs_url, data=json.dumps(DISCOVER), headers=headers
    )
    assert (status, answer["id"], answer["error"]["code"]) == (400, 9, -32022)
    assert answer["error"]["data"] == {"supported": HANDSHAKE, "requested": version}


async def test_an_envelope_without_headers_is_told_so_as_well(
    world: World, http: aiohttp.ClientSession
) -> None:
    status, answer, _ = await send(http, "POST", world.envs_url, data=json.dumps(DISCOVER))
    assert (status, answer["error"]["code"]) == (400, -32022)
    assert answer["error"]["data"] == {"supported": HANDSHAKE, "requested": "2026-07-28"}


async def test_lists_of_the_2026_era_are_private_and_stale_at_once(
    world: World, http: aiohttp.ClientSession
) -> None:
    headers = {**BASE, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    body = json.dumps({**DISCOVER, "method": "tools/list"})
    _, answer, _ = await send(http, "POST", world.episode_url, data=body, headers=headers)
    result = answer["result"]
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (
        0,
        "private",
        "complete",
    )


async def test_no_list_has_a_second_page(world: World, http: aiohttp.ClientSession) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "x"}}
    _, answer, _ = await send(http, "POST", world.episode_url, data=json.dumps(body))
    assert answer["error"]["code"] == -32602


async def test_the_call_id_reaches_the_service(world: World, http: aiohttp.ClientSession) -> None:
    params: dict[str, Json] = {"name": "echo", "_meta": {"astra/callId": "c-1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    _, answer, _ = await send(http, "POST", world.episode_url, data=json.dumps(body))
    assert answer["result"]["structuredContent"]["call_id"] == "c-1"
    for wrong in (7, "", "x" * 201):
        params["_meta"] = {"astra/callId": wrong}
        _, answer, _ = await send(http, "POST", world.episode_url, data=json.dumps(body))
        assert answer["error"]["code"] == -32602


async def test_a_service_that_cannot_list_gives_an_error_with_the_requests_id(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Toy) -> None:
        raise RuntimeError("the sealed answer is 42")

    def over(self: Toy) -> None:
        raise EpisodeError("The episode has ended.", "Open another.")

    body = {"jsonrpc": "2.0", "id": "x", "method": "tools/list"}
    async with running() as world:
        monkeypatch.setattr(Toy, "tools", broken)
        status, answer, _ = await send(http, "POST", world.episode_url, data=json.dumps(body))
        assert (status, answer["id"], answer["error"]["code"]) == (200, "x", -32603)
        assert "42" not in json.dumps(answer)
        monkeypatch.setattr(Toy, "tools", over)
        _, answer, _ = await send(http, "POST", world.episode_url, data=json.dumps(body))
        assert answer["error"]["message"] == "The episode has ended. Open another."
