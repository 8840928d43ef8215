"""Bad input of every kind: a clear coded error each, the host goes on, other episodes feel nothing.

All tests share one host. While they attack it, a well-behaved client in a process of its own plays
episodes; that each of its calls succeeds with the right value is asserted at the end (arena.py).
The host waits one second where it otherwise waits thirty (tests/support/impatient.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from astra_mcp.host import control_models as models
from astra_mcp.settings import MAX_JSON_DEPTH as MAX_DEPTH
from tests.e2e.arena import META, MODERN, Arena, arena_in, call, message, request
from tests.e2e.bad_tools import TOOLS, UNLOADABLE
from tests.fuzz.fuzz_protocol import log_problems
from tests.fuzz.wire import exchange
from tests.soak.processes import TOKEN

Json = Any
BAD_TASK = "bad-tools@1.0.0#t1"


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Arena]:
    """Host and player of this module; at the end, what the player and the log say."""
    folder = tmp_path_factory.mktemp("arena")
    with arena_in(folder) as (arena, wrong, table):
        arena.phase("before", 300)
        asyncio.run(arena.open(BAD_TASK))
        yield arena
        arena.phase("after", 300)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(*table, sep="\n")
    assert wrong == []
    said = log_problems(folder / "stderr", [TOKEN, arena.token])
    # At start, and once for each: files that are no bundle are told to the operator.
    assert [line for line in said if "not served: " not in line] == []


@pytest.fixture
def arena(shared: Arena, request: pytest.FixtureRequest) -> Iterator[Arena]:
    """The arena in a phase named like the test; afterwards the host still answers."""
    shared.phase(request.node.originalname.removeprefix("test_"))
    yield shared
    shared.phase("between attacks", 5)
    assert shared.host.health()["status"] == "ok"


# ---- messages ----------------------------------------------------------------------------------

PARSE, INVALID, METHOD, PARAMS = -32700, -32600, -32601, -32602
GOOD = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
WRONG_VALUES: list[Json] = [None, True, 1, 1.5, "x", [], {}, [{}]]


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"}", b"nonsense", b'{"jsonrpc":"2.0"', b"{'a':1}", b"\xff\xfe{}",
        b'{"jsonrpc":"2.0","id":NaN}', b'{"a":1e999}', b'{"a":"\\ud800"}', b'{"a":"\x00"}',
        b"\xef\xbb\xbf{}",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} x', b"[" * 100_000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
    ],
    ids=lambda body: repr(body[:24]),
)  # fmt: skip
async def test_what_is_no_json_is_a_parse_error(arena: Arena, body: bytes) -> None:
    status, answer = await arena.ask(arena.agent, body)
    assert (status, answer["error"]["code"], answer["id"]) == (400, PARSE, None)


@pytest.mark.parametrize("path", ["agent", "/envs/counter/mcp", "/control/mcp"])
async def test_a_field_of_json_rpc_with_a_wrong_type_is_an_invalid_request(
    arena: Arena, path: str
) -> None:
    where = arena.agent if path == "agent" else path
    secret = {"authorization": f"Bearer {TOKEN}"} if path == "/control/mcp" else {}
    wrong: list[Json] = [value for value in WRONG_VALUES if type(value) is not dict]
    cases: list[Json] = [*wrong, {}, [GOOD], {"jsonrpc": "2.0"}]
    cases += [GOOD | {"jsonrpc": value} for value in [*WRONG_VALUES, "1.0", 2.0]]
    cases += [GOOD | {"id": value} for value in WRONG_VALUES if type(value) not in (int, str)]
    cases += [GOOD | {"id": 2**70}]
    cases += [GOOD | {"method": value} for value in WRONG_VALUES if type(value) is not str]
    cases += [
        GOOD | {"params": value} for value in WRONG_VALUES if type(value) not in (dict, type(None))
    ]
    for case in cases:
        text = json.dumps(case).encode()
        status, answer = await arena.ask(where, text, **secret)
        assert (status, answer["error"]["code"]) == (400, INVALID), case
        assert answer["error"]["message"]


async def test_a_parameter_with_a_wrong_type_is_told_by_name(arena: Arena) -> None:
    good = {"name": "count", "arguments": {}}
    no_objects = [v for v in WRONG_VALUES if type(v) not in (dict, type(None))]
    cases: list[tuple[str, Json, str]] = [("tools/call", {}, "name")]
    cases += [
        ("tools/call", good | {"name": v}, "name") for v in WRONG_VALUES if type(v) is not str
    ]
    cases += [("tools/call", good | {"arguments": v}, "arguments") for v in no_objects]
    cases += [("tools/call", good | {"_meta": v}, "_meta") for v in no_objects]
    for value in (True, 1.5, [], {}):
        cases.append(("tools/call", good | {"_meta": {"progressToken": value}}, "progressToken"))
    for value in (True, 1, [], {}, "", "x" * 201):
        cases.append(("tools/call", good | {"_meta": {"astra/callId": value}}, "astra/callId"))
    cases += [("tools/list", {"cursor": v}, "") for v in WRONG_VALUES if v is not None]
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a", "version": "1"},
    }
    for key in hello:
        cases += [
            ("initialize", hello | {key: v}, key) for v in (None, 1, [], {"name": 1}) if v != {}
        ]
    cases = [c for c in cases if not (c[0] == "initialize" and c[1]["capabilities"] == {"name": 1})]
    for method, params, field in cases:
        status, answer = await arena.ask(arena.agent, message(method, params))
        assert (status, answer["error"]["code"]) == (200, PARAMS), (method, params)
        assert field in answer["error"].get("data", "") + answer["error"]["message"]


async def test_what_does_not_exist_is_told_so(arena: Arena) -> None:
    for name in (
        "no_such_tool",
        "",
        "x" * 10_000,
        "../../etc/passwd",
        "count\x00",
        "submit_answer",
    ):
        status, answer = await arena.ask(arena.agent, call(name))
        assert (status, answer["error"]["code"]) == (200, PARAMS), name
        status, answer = await arena.ask(
            "/control/mcp", call(name + "_"), authorization=f"Bearer {TOKEN}"
        )
        assert (status, answer["error"]["code"]) == (200, PARAMS), name
    for method in ("no/such", "", "tools/call/", "x" * 10_000, "prompts/list", "logging/setLevel"):
        status, answer = await arena.ask(arena.agent, message(method))
        assert (status, answer["error"]["code"]) == (200, METHOD), method
    for path in (
        "/envs/nobody/mcp",
        "/nowhere",
        "/" + "a" * 5000,
        "/envs/%2e%2e/mcp",
        "/play/nobody",
    ):
        assert (await arena.ask(path, message("ping")))[0] == 404, path
    for path in ("/episodes/unknown/mcp", "/agent/mcp", "/control/mcp", "/metrics"):
        assert (await arena.ask(path, message("ping")))[0] == 401, path


CONTROLS = {
    "list_tasks": models.ListTasks,
    "open_episode": models.OpenEpisode,
    "post_message": models.PostMessage,
    "submit_answer": models.SubmitAnswer,
    "get_episode": models.GetEpisode,
    "close_episode": models.CloseEpisode,
    "heartbeat": models.Heartbeat,
}
FITTING: dict[str, Json] = {
    "task": "no@1.0.0#t", "request_id": "bad-input", "episode_id": "ep_none", "text": "hello",
    "answer": "1", "episode_ids": ["ep_none"],
}  # fmt: skip


@pytest.mark.parametrize("tool", CONTROLS)
async def test_arguments_of_a_control_tool_are_checked_field_by_field(
    arena: Arena, tool: str
) -> None:
    fields = CONTROLS[tool].model_fields
    good = {key: FITTING[key] for key, field in fields.items() if field.is_required()}
    cases: list[tuple[str, Json]] = [("extra", good | {"extra": 1})]
    for key, field in fields.items():
        if field.is_required():
            cases.append((key, {k: v for k, v in good.items() if k != key}))
            cases.append((key, good | {key: None}))
        cases += [(key, good | {key: value}) for value in ([{}], {"a": 1}, [[1]])]
        if field.annotation is not bool:
            cases.append((key, good | {key: False}))
    for key, arguments in cases:
        body = call(tool, arguments)
        status, answer = await arena.ask("/control/mcp", body, authorization=f"Bearer {TOKEN}")
        result = answer["result"]
        text = result["content"][0]["text"]
        assert (status, result["isError"]) == (200, True), (key, arguments)
        assert text.startswith("invalid_arguments: "), text
        assert key in text


# ---- large and deep ----------------------------------------------------------------------------


async def test_ten_megabytes_of_arguments_are_refused_however_they_come(arena: Arena) -> None:
    body = call("put", {"key": "x" * 10_000_000})
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in _parts(body, 100_000)) + b"0\r\n\r\n"
    chunked = request(arena.agent, chunks, {"transfer-encoding": "chunked"}, sized=False)
    asked = request(arena.agent, body, {"expect": "100-continue"})
    for sent in (request(arena.agent, body), chunked, asked):
        (response,) = (await arena.send(sent)).responses
        assert response.status == 413
        assert response.json()["error"]["data"]["remedy"]


def _parts(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 256, 1000, 1020])
async def test_deep_json_is_refused_wherever_it_stands(arena: Arena, depth: int) -> None:
    """Deeper than what records, journals and answers can hold; orjson's writer stops at 254."""
    deep = "[" * depth + "]" * depth
    bodies = [
        f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'
        for params in (
            f'{{"name":"put","arguments":{{"key":{deep},"value":1}}}}',
            f'{{"name":"no_such","arguments":{{"key":{deep}}}}}',
            f'{{"name":"count","_meta":{{"x":{deep}}}}}',
        )
    ]
    version = f'{{"_meta":{{"io.modelcontextprotocol/protocolVersion":{deep}}}}}'
    bodies.append(f'{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{version}}}')
    for path in (arena.agent, "/envs/counter/mcp"):
        for body in bodies:
            status, answer = await arena.ask(path, body.encode())
            assert (status, answer["error"]["code"]) == (400, INVALID)
    assert "deeper" in answer["error"]["message"]


async def test_json_that_is_deep_but_allowed_is_recorded(arena: Arena) -> None:
    deep = "[" * (MAX_DEPTH - 6) + "]" * (MAX_DEPTH - 6)
    params = f'{{"name":"put","arguments":{{"key":{deep}}}}}'
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'
    _, answer = await arena.ask(arena.agent, body.encode())
    assert answer["result"]["content"][0]["text"].startswith("invalid_arguments")
    view = await arena.control("get_episode", {"episode_id": arena.episode_id})
    assert view["structuredContent"]["record"]["calls"][-1]["tool"] == "put"


# ---- headers of the eras -----------------------------------------------------------------------

MISMATCH, VERSION = -32020, -32022


@pytest.mark.parametrize(
    ("headers", "more", "code"),
    [
        ({"mcp-method": "tools/list"}, [], MISMATCH),
        ({"mcp-method": ""}, [], MISMATCH),
        ({"mcp-name": "put"}, [], MISMATCH),
        ({"mcp-name": ""}, [], MISMATCH),
        ({"mcp-name": "=?base64?!!!?="}, [], MISMATCH),
        ({"mcp-name": "=?base64?cHV0?="}, [], MISMATCH),
        ({"mcp-protocol-version": "2026-07-29"}, [], MISMATCH),
        ({"mcp-protocol-version": "9999-01-01"}, [], MISMATCH),
        ({"mcp-protocol-version": "\xff" * 50}, [], MISMATCH),
        ({"mcp-protocol-version": "x" * 5000}, [], MISMATCH),
        ({}, [("mcp-protocol-version", MODERN)], MISMATCH),
        ({}, [("mcp-protocol-version", "2025-11-25")], MISMATCH),
        ({}, [("mcp-method", "tools/call")], MISMATCH),
        ({}, [("MCP-Name", "count")], MISMATCH),
    ],
)
async def test_era_headers_that_disagree_with_the_message_are_refused(
    arena: Arena, headers: dict[str, str], more: list[tuple[str, str]], code: int
) -> None:
    right = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "count"}
    body = message("tools/call", {"name": "count", "arguments": {}, "_meta": META})
    (good,) = (await arena.send(request(arena.agent, body, right))).responses
    assert good.json()["result"]["isError"] is False
    (bad,) = (await arena.send(request(arena.agent, body, right | headers, more=more))).responses
    assert (bad.status, bad.json()["error"]["code"]) == (400, code)


async def test_an_unknown_version_is_told_which_are_served(arena: Arena) -> None:
    for named in ("9999-01-01", "", "x" * 3000, 7, None, [], {"a": 1}):
        meta = META | {"io.modelcontextprotocol/protocolVersion": named}
        body = message("tools/list", {"_meta": meta})
        header = named if type(named) is str and named else "nonsense"
        status, answer = await arena.ask(
            arena.agent, body, mcp_protocol_version=header, mcp_method="tools/list"
        )
        wanted = VERSION if header == named else MISMATCH
        assert (status, answer["error"]["code"]) == (400, wanted)
        status, answer = await arena.ask("/envs/counter/mcp", body, mcp_protocol_version=header)
        assert (status, answer["error"]["code"]) == (400, VERSION)
        assert "2025-11-25" in answer["error"]["data"]["supported"]
    for session in ("unknown", "\xff", "x" * 5000):
        assert (await arena.ask("/envs/counter/mcp", message("ping"), mcp_session_id=session))[
            0
        ] == 404


async def test_a_trailer_is_no_header(arena: Arena) -> None:
    """After the body nobody can add a token, nor double a header that was checked."""
    body = call("list_tasks")
    chunk = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    trailer = b"authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
    sent = request("/control/mcp", chunk + trailer, {"transfer-encoding": "chunked"}, sized=False)
    (response,) = (await arena.send(sent)).responses
    assert response.status == 401


# ---- ids in flight -----------------------------------------------------------------------------


async def test_ids_that_are_used_twice_at_once_each_get_their_own_answer(arena: Arena) -> None:
    slow, quick = call("loops", id="same"), call("count", id="same")
    apart = await asyncio.gather(*(arena.ask(arena.agent, body) for body in (slow, quick, quick)))
    assert [answer["id"] for _, answer in apart] == ["same"] * 3
    assert [answer["result"]["isError"] for _, answer in apart] == [True, False, False]
    piped = request(arena.agent, slow) + request(arena.agent, quick)
    first, second = (await arena.send(piped, expected=2)).responses
    assert first.json()["result"]["isError"] is True
    assert second.json()["result"]["isError"] is False
    cancel = orjson.dumps(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "same"}}
    )
    (_, one), (_, two), (status, _) = await asyncio.gather(
        arena.ask(arena.agent, slow), arena.ask(arena.agent, quick), arena.ask(arena.agent, cancel)
    )
    assert status == 202
    assert one["id"] == two["id"] == "same"


# ---- sockets -----------------------------------------------------------------------------------


async def test_a_half_closed_socket_gets_its_answer(arena: Arena) -> None:
    sent = request(arena.agent, call("count"))
    found = await arena.send(sent, half_close=True)
    assert found.responses[0].json()["result"]["isError"] is False
    slow = await arena.send(request(arena.agent, call("loops")), half_close=True)
    assert slow.responses[0].json()["result"]["isError"] is True
    for cut in (1, 20, len(sent) - 3):
        assert (await arena.send(sent[:cut], half_close=True)).closed


async def test_slow_writers_are_hung_up_on(arena: Arena) -> None:
    """Slowloris, a hundred at a time: heads and bodies that come a byte at a time, or never end."""
    good = request(arena.agent, call("count"))
    starts = [b"", b"POST / HT", good[:-40], good[:-1]]
    starts.append(
        request(arena.agent, b"2\r\n{}\r\n", {"transfer-encoding": "chunked"}, sized=False)
    )

    async def dawdle(start: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", arena.host.port)
        try:
            writer.write(start)
            async with asyncio.timeout(30):
                while not reader.at_eof():
                    writer.write(b"x" if start.startswith(b"POST / HT") else b"")
                    try:
                        await asyncio.wait_for(reader.read(1), 0.1)
                    except TimeoutError:
                        continue
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    await asyncio.gather(*(dawdle(starts[n % len(starts)]) for n in range(100)))


async def test_slow_readers_are_hung_up_on(arena: Arena) -> None:
    """They ask for much and read nothing; their answers must not pile up."""
    many = (
        request("/control/mcp", message("tools/list"), {"authorization": f"Bearer {TOKEN}"}) * 500
    )

    def greedy() -> None:
        with socket.create_connection(("127.0.0.1", arena.host.port)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(30)
            try:
                while True:
                    sock.sendall(many)
            except ConnectionError:
                return

    before = arena.host.resources()["rss_kib"]
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(anyio.to_thread.run_sync, greedy)
    assert arena.host.resources()["rss_kib"] < before + 64 * 1024


async def test_event_streams_that_nobody_reads_are_bounded(arena: Arena) -> None:
    sent = request(arena.agent, headers={"accept": "text/event-stream"}, method="GET", sized=False)
    writers, statuses = [], []
    try:
        for _ in range(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", arena.host.port)
            writers.append(writer)
            writer.write(sent)
            statuses.append(int((await asyncio.wait_for(reader.readline(), 30)).split()[1]))
        assert set(statuses) == {200, 409}
        status, answer = await arena.ask(arena.agent, call("count"))
        assert (status, answer["result"]["isError"]) == (200, False)
    finally:
        for writer in writers:
            writer.transport.abort()
    with anyio.fail_after(30):
        while arena.host.health()["streams"]:  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def test_heads_that_are_too_large_are_refused(arena: Arena) -> None:
    lines = [
        [(f"x-{n}", "y") for n in range(20_000)],
        [("x", "y" * 100_000)],
        [("accept", "*/*")] * 20_000,
        [("x" * 50_000, "y")],
    ]
    for more in lines:
        found = await arena.send(request(arena.agent, call("count"), more=more))
        assert [response.status for response in found.responses] == [431]
    found = await arena.send(request("/" + "a" * 100_000, call("count")))
    assert [response.status for response in found.responses] == [431]


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\nx: ",
        b"GET /",
        b"chunks",
        b"extension",
        b"trailers",
        b"one trailer",
        b"size",
    ],
)
async def test_what_never_ends_is_cut_off(arena: Arena, start: bytes) -> None:
    """At a bound on bytes, not on time: megabytes a second must not become memory."""
    head = request(arena.agent, b"", {"transfer-encoding": "chunked"}, sized=False)
    first, again, status = {
        b"chunks": (head, b"2\r\n{}\r\n" * 1000, 413),
        b"extension": (head + b"2;", b"x" * 8192, 400),
        b"size": (head, b"0" * 8192, 400),
        b"trailers": (head + b"2\r\n{}\r\n0\r\n", b"x: y\r\n" * 1000, 431),
        b"one trailer": (head + b"2\r\n{}\r\n0\r\nx: ", b"y" * 8192, 431),
    }.get(start, (start, b"a" * 8192, 431))
    before = arena.host.resources()["rss_kib"]
    found = await arena.send(first, *[again] * 2000)
    assert found.closed or found.responses
    assert {response.status for response in found.responses} <= {status, 400, 431}
    assert arena.host.resources()["rss_kib"] < before + 32 * 1024


async def test_a_body_whose_chunks_break_late_is_refused_at_once(arena: Arena) -> None:
    """After 64 KiB the application waits for the rest already."""
    body = b"20000\r\n" + b" " * 0x20000 + b"\r\nnonsense\r\n"
    sent = request(arena.agent, body, {"transfer-encoding": "chunked"}, sized=False)
    (response,) = (await arena.send(sent, deadline_s=30)).responses
    assert response.status == 400


async def test_pipelined_requests_are_answered_in_order(arena: Arena) -> None:
    asked = b"".join(request(arena.agent, call("count", id=n)) for n in range(200))
    found = await arena.send(asked, expected=200)
    assert [response.json()["id"] for response in found.responses] == list(range(200))
    mixed = request(arena.agent, b"{") + request("/nowhere") + request(arena.agent, call("count"))
    found = await arena.send(mixed + b"GARBAGE\r\n\r\n", expected=4)
    assert [response.status for response in found.responses][:3] == [400, 404, 200]


async def test_a_flood_of_the_smallest_things_is_cut_short(arena: Arena) -> None:
    """A quarter of a megabyte of them would keep the parser busy for a tenth of a second."""
    ping = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    found = await arena.send(ping * 5000, expected=5000)
    assert found.closed
    assert 500 <= len(found.responses) < 5000
    assert {response.status for response in found.responses} == {200}
    chunks = request(
        arena.agent, b"1\r\n \r\n" * 60_000, {"transfer-encoding": "chunked"}, sized=False
    )
    found = await arena.send(chunks)
    assert {response.status for response in found.responses} <= {400}


async def test_lengths_that_contradict_each_other_are_refused(arena: Arena) -> None:
    """Otherwise one request could hide in another (request smuggling)."""
    body = call("count")
    both = request(arena.agent, body, more=[("transfer-encoding", "chunked")])
    twice = request(arena.agent, body, more=[("content-length", "3")])
    for sent in (both, twice, request(arena.agent, body, {"content-length": "-5"})):
        (response,) = (await arena.send(sent)).responses
        assert response.status == 400


async def test_connections_that_say_nothing_cost_nobody_anything(arena: Arena) -> None:
    writers = []
    try:
        for _ in range(200):
            writers.append((await asyncio.open_connection("127.0.0.1", arena.host.port))[1])
        status, answer = await arena.ask(arena.agent, call("count"))
        assert (status, answer["result"]["isError"]) == (200, False)
    finally:
        for writer in writers:
            writer.transport.abort()


# ---- bundles and tools -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["torn.json", "binary.json", "twice", "deep", "unknown-field"])
async def test_a_bundle_that_does_not_parse_keeps_nobody_else_from_being_served(
    arena: Arena, name: str
) -> None:
    listed = await arena.control("list_tasks", {})
    broken = {item["bundle"]: item["error"] for item in listed["structuredContent"]["broken"]}
    assert name in broken
    assert str(arena.host.folder) not in broken[name]
    if not name.endswith(".json"):
        for path, body in ((f"/play/{name}", b""), (f"/envs/{name}/mcp", message("ping"))):
            status, answer = await arena.ask(path, body)
            assert status == 503
            assert answer["error"]["message"] == "This environment cannot be loaded."
        refused = await arena.open(f"{name}#t1")
        assert refused["content"][0]["text"].startswith("bundle: ")


@pytest.mark.parametrize("name", [n for n in UNLOADABLE if n != "loops-at-start"])
async def test_a_bundle_that_does_not_load_or_forks_or_kills_is_not_opened(
    arena: Arena, name: str
) -> None:
    refused = await arena.open(f"{name}#t1")
    assert refused["isError"] is True
    assert refused["content"][0]["text"].startswith(("load: ", "replay: "))


@pytest.mark.parametrize("name", TOOLS)
async def test_a_tool_that_misbehaves_is_a_coded_error_of_its_own_call(
    arena: Arena, name: str
) -> None:
    _, codes = TOOLS[name]
    status, answer = await arena.ask(arena.agent, call(name))
    result = answer["result"]
    text = result["content"][0]["text"]
    assert (status, result["isError"]) == (200, True)
    assert text.partition(":")[0] in codes, text
    assert len(text) < 600
    _, answer = await arena.ask(arena.agent, call("count"))
    assert answer["result"]["structuredContent"] == {"count": 1}


async def test_workers_killed_from_outside_are_replaced_in_every_episode(arena: Arena) -> None:
    for _ in range(5):
        for pid in arena.host.workers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _, answer = await arena.ask(arena.agent, call("count"))
        assert answer["result"]["structuredContent"] == {"count": 1}
        # Twice in one call ends an episode (docs/episodes.md): let the other one get its call done.
        arena.phase("workers_killed", 3)


async def test_an_attacker_with_every_fault_at_once_leaves_nothing_behind(arena: Arena) -> None:
    """Afterwards descriptors and connections are what they were."""
    before = arena.host.resources()["fds"]
    sent = [
        request(arena.agent, b"{"), request(arena.agent, call("loops")), b"\x00" * 100,
        request(arena.agent, call("count"))[:-5], request("/x" * 9000), b"GET / HTTP/1.1\r\n",
        request(arena.agent, call("allocates")),
    ]  # fmt: skip
    async with anyio.create_task_group() as tasks:
        for n in range(70):
            tasks.start_soon(exchange, arena.host.port, [sent[n % len(sent)]])
    with anyio.fail_after(30):
        while arena.host.resources()["fds"] > before + 2:  # noqa: ASYNC110
            await anyio.sleep(0.05)


def test_the_fixture_serves_what_is_whole(shared: Arena, tmp_path: Path) -> None:
    assert shared.host.health()["bundles"] >= 2 + len(UNLOADABLE)
