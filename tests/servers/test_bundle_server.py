"""A bundle served alone: what clients, pipes and signals see of the process."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from processes import COUNTER, END_S, Process, alone, changed, through_fastmcp

from astra_mcp.store import load_bundle

ERAS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


WAYS = {"python server.py": alone, "fastmcp run server.py": through_fastmcp}
every_way = pytest.mark.parametrize("command", WAYS.values(), ids=WAYS.keys())
every_era = pytest.mark.parametrize("mode", ERAS)


@asynccontextmanager
async def connected(
    command: list[str], mode: str = "auto", cwd: Path | None = None
) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=cwd)
    with anyio.fail_after(END_S):
        async with Client(stdio_client(parameters), mode=mode) as client:
            yield client


async def increment(client: Client, **args: int) -> int:
    result = await client.call_tool("increment", args)
    assert result.structured_content is not None, result.content
    return int(result.structured_content["value"])


# ---- what a client sees --------------------------------------------------------------------


@every_era
@every_way
async def test_one_process_is_one_fresh_state_in_either_era(
    command: Any, mode: str, counter: Path
) -> None:
    for _ in range(2):
        async with connected(command(counter), mode) as client:
            assert client.protocol_version == ERAS[mode]
            assert [await increment(client) for _ in range(3)] == [1, 2, 3]


@every_way
async def test_the_listing_is_the_manifest(command: Any, counter: Path) -> None:
    async with connected(command(counter)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert client.server_info is not None
        named = (client.server_info.name, client.server_info.version, client.instructions)
    assert named == ("counter", "1.0.0", "Move the counter and read it.")
    specs = load_bundle(COUNTER).manifest.tools
    assert list(tools) == [spec.name for spec in specs]
    for spec in specs:
        tool = tools[spec.name]
        assert (tool.description, tool.title) == (spec.description, None)
        assert tool.input_schema == spec.input_schema
        assert tool.output_schema == spec.output_schema
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint == (spec.effects == "read")


@every_era
@every_way
async def test_failures_are_coded_and_leave_the_state(
    command: Any, mode: str, counter: Path
) -> None:
    async with connected(command(counter), mode) as client:
        assert await increment(client, by=50) == 50
        assert await increment(client) == 51
        told = {}
        for name, args in {"invalid": {"by": 0}, "extra": {"to": 3}, "failed": {"by": 50}}.items():
            result = await client.call_tool("increment", args)
            assert result.is_error
            assert result.structured_content is None
            told[name] = result.content[0].text
        with pytest.raises(MCPError, match=r"^Unknown tool: no_such_tool$") as unknown:
            await client.call_tool("no_such_tool", {})
        assert await increment(client) == 52
    assert told["invalid"].startswith("invalid_arguments: ")
    assert told["extra"].startswith("invalid_arguments: ")
    assert told["failed"] == "limit_reached: the counter stops at 100"
    assert unknown.value.code == -32602


@every_way
async def test_concurrent_calls_run_one_after_the_other(command: Any, counter: Path) -> None:
    values: list[int] = []
    async with connected(command(counter)) as client:

        async def one() -> None:
            values.append(await increment(client))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(one)
    assert sorted(values) == list(range(1, 21))


async def test_the_result_is_also_the_text(counter: Path) -> None:
    async with connected(alone(counter)) as client:
        result = await client.call_tool("increment", {"by": 7})
    assert json.loads(result.content[0].text) == result.structured_content == {"value": 7}


@every_way
async def test_it_needs_neither_the_sealed_part_nor_its_own_folder_as_cwd(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    public = tmp_path / "public"
    shutil.copytree(counter, public, ignore=shutil.ignore_patterns("sealed"))
    async with connected(command(Path("public")), cwd=tmp_path) as client:
        assert await increment(client) == 1


async def test_several_servers_are_served_together(tmp_path: Path) -> None:
    manifest = json.loads(COUNTER.read_text("utf-8"))["manifest"]
    manifest["servers"].append({"name": "reading", "instructions": "Only look."})
    manifest["tools"][1]["server"] = "reading"
    bundle = changed(tmp_path / "two", manifest=manifest)
    async with connected(alone(bundle)) as client:
        assert len((await client.list_tools()).tools) == 2
        assert client.instructions == "Move the counter and read it.\nOnly look."


# ---- what pipes and signals see ------------------------------------------------------------


@pytest.fixture
def server(counter: Path, request: pytest.FixtureRequest) -> Iterator[Process]:
    process = Process(getattr(request, "param", alone)(counter))
    yield process
    process.popen.kill()
    process.popen.communicate()


both = pytest.mark.parametrize("server", WAYS.values(), ids=WAYS.keys(), indirect=True)


@both
def test_a_closed_pipe_ends_it_and_all_that_it_started(server: Process) -> None:
    assert server.ask("tools/call", name="increment", arguments={})["result"]["isError"] is False
    assert server.watch() > 0
    code, out, _ = server.end()
    assert (code, out) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_the_pipe_is_open(server: Process, number: int) -> None:
    server.ask("tools/list")
    assert server.watch() > 0
    server.popen.send_signal(number)
    assert server.popen.wait(END_S) == 0
    assert server.end()[1:] == (b"", b"")


@both
def test_nothing_survives_a_kill(server: Process) -> None:
    server.ask("tools/list")
    assert server.watch() > 0
    server.popen.kill()
    assert server.end()[0] == -signal.SIGKILL


SLOW = """
def increment(state, *, by=1):
    for _ in range(3000000):
        pass
    state["counters"]["main"]["value"] += by
    return {"value": state["counters"]["main"]["value"]}


def read_counter(state):
    return {"value": state["counters"]["main"]["value"]}
"""


def test_a_cancelled_call_happened_or_not_and_the_next_gets_its_own_answer(tmp_path: Path) -> None:
    process = Process(alone(changed(tmp_path / "slow", code=SLOW)))
    try:
        process.ask("tools/list")
        process.send("tools/call", 7, name="increment", arguments={})
        process.send("notifications/cancelled", None, requestId=7)
        process.send("tools/call", 8, name="read_counter", arguments={})
        while (answer := process.receive())["id"] != 8:
            assert answer["id"] == 7
        seen = answer["result"]["structuredContent"]["value"]
        assert seen in (0, 1)
        answer = process.ask("tools/call", name="increment", arguments={})
        assert answer["result"]["structuredContent"] == {"value": seen + 1}
    finally:
        process.popen.kill()
        process.popen.communicate()


def test_only_protocol_bytes_reach_stdout(counter: Path, tmp_path: Path) -> None:
    code = load_bundle(COUNTER).code + "\n\nprint('loaded')\n"
    noisy = changed(tmp_path / "noisy", code=code)
    done = subprocess.run(alone(noisy), input=b"no json\n", capture_output=True, timeout=END_S)
    for line in done.stdout.splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0"


# ---- what an operator sees -----------------------------------------------------------------


BAD = ["tools.py is gone", "bundle.json is cut", "state.json was changed", "code does not load"]


def spoil(bundle: Path, what: str) -> None:
    """Make a good bundle bad."""
    if what == "tools.py is gone":
        (bundle / "tools.py").unlink()
    elif what == "bundle.json is cut":
        whole = (bundle / "bundle.json").read_bytes()
        (bundle / "bundle.json").write_bytes(whole[: len(whole) // 2])
    elif what == "state.json was changed":
        (bundle / "state.json").write_text('{"counters":{"main":{"value":99}}}')


@every_way
@pytest.mark.parametrize(
    "what",
    ["tools.py is gone", "bundle.json is cut", "state.json was changed", "code does not load"],
)
def test_a_bad_bundle_is_one_sentence_on_stderr(command: Any, what: str, tmp_path: Path) -> None:
    broken = {"code": "import socket\n"} if what == "code does not load" else {}
    bundle = changed(tmp_path / "bad", **broken)
    spoil(bundle, what)
    process = Process(command(bundle))
    try:
        assert process.popen.wait(END_S) == 1  # with its stdin still open
        _, out, err = process.end()
    finally:
        process.popen.kill()
    assert out == b""
    assert b"Traceback" not in err
    # FastMCP reports in its own words what its lifespan raises.
    told = (b"error: ", b"ERROR    Failed to run server: ")
    assert sum(any(word in line for word in told) for line in err.splitlines()) == 1


def test_fastmcp_refuses_http_and_names_the_command(counter: Path) -> None:
    command = [*through_fastmcp(counter), "--transport", "http", "--port", "0"]
    done = subprocess.run(command, capture_output=True, timeout=END_S)
    assert done.returncode == 1
    assert b"python server.py --http" in done.stderr.replace(b"\n", b" ")


def test_a_wrong_option_is_a_usage_error(counter: Path) -> None:
    done = subprocess.run([*alone(counter), "--nope"], capture_output=True, timeout=END_S)
    assert done.returncode == 2
