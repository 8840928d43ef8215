"""A bundle served alone, as pipes, signals and operators see it: real processes."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from processes import COUNTER, END_S, Process, alone, changed, through_fastmcp

from astra_mcp.store import load_bundle

WAYS = {"python server.py": alone, "fastmcp run server.py": through_fastmcp}


async def counted(command: list[str], mode: str, cwd: Path | None = None) -> tuple[str, list[Any]]:
    """The protocol spoken, and what three calls of `increment` give, in one process."""
    parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=cwd)
    with anyio.fail_after(END_S):
        async with Client(stdio_client(parameters), mode=mode) as client:
            results = [await client.call_tool("increment", {}) for _ in range(3)]
            return client.protocol_version, [result.structured_content for result in results]


THREE = [{"value": 1}, {"value": 2}, {"value": 3}]


@pytest.mark.parametrize(("mode", "protocol"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_one_process_is_one_state_in_either_era(
    mode: str, protocol: str, counter: Path
) -> None:
    assert await counted(alone(counter), mode) == (protocol, THREE)


@pytest.mark.parametrize("command", WAYS.values(), ids=WAYS.keys())
async def test_it_needs_neither_the_sealed_part_nor_its_own_folder_as_cwd(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    ignore = shutil.ignore_patterns("sealed")
    shutil.copytree(counter, tmp_path / "public", ignore=ignore)
    assert not (tmp_path / "public" / "sealed").exists()
    assert await counted(command(Path("public")), "auto", tmp_path) == ("2026-07-28", THREE)


@pytest.fixture
def server(counter: Path, request: pytest.FixtureRequest) -> Iterator[Process]:
    process = Process(getattr(request, "param", alone)(counter))
    yield process
    process.popen.kill()
    process.popen.communicate()


@pytest.mark.parametrize("server", WAYS.values(), ids=WAYS.keys(), indirect=True)
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
    manifest = json.loads(COUNTER.read_text("utf-8"))["manifest"]
    manifest["limits"] = {"call_seconds": END_S}
    process = Process(alone(changed(tmp_path / "slow", code=SLOW, manifest=manifest)))
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


def test_neither_printing_tools_nor_broken_lines_reach_stdout(tmp_path: Path) -> None:
    quiet = '    row = state["counters"]["main"]\n'
    code = load_bundle(COUNTER).code
    assert quiet in code
    noisy = changed(tmp_path / "noisy", code=code.replace(quiet, f"    print('noise')\n{quiet}"))
    process = Process(alone(noisy))
    try:
        assert process.popen.stdin is not None
        process.popen.stdin.write(b"no json\n{}\n[1]\n\n")
        answer = process.ask("tools/call", name="increment", arguments={})
        assert answer["result"]["structuredContent"] == {"value": 1}
        assert process.end()[:2] == (0, b"")
    finally:
        process.popen.kill()


def cut(bundle: Path) -> None:
    """Make the manifest unreadable."""
    whole = (bundle / "bundle.json").read_bytes()
    (bundle / "bundle.json").write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize("command", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("what", ["does not load", "is cut short"])
def test_a_bad_bundle_is_one_sentence_on_stderr(command: Any, what: str, tmp_path: Path) -> None:
    broken = {"code": "import socket\n"} if what == "does not load" else {}
    bundle = changed(tmp_path / "bad", **broken)
    if what == "is cut short":
        cut(bundle)
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
