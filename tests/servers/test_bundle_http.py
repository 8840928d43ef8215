"""A bundle served alone over HTTP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from processes import END_S, Process, alone, changed


@pytest.fixture
def server(counter: Path) -> Iterator[Process]:
    process = Process([*alone(counter), "--http"])
    yield process
    process.popen.kill()
    process.popen.communicate()


def url_of(server: Process) -> str:
    """The URL in the last word of the line that says that it listens."""
    assert server.popen.stderr is not None
    for line in server.popen.stderr:
        if line.startswith(b"listening on "):
            return line.split()[-1].decode()
    raise AssertionError("the server ended before it listened")


async def count(client: Client) -> int:
    result = await client.call_tool("increment", {})
    assert result.structured_content is not None, result.content
    return int(result.structured_content["value"])


async def test_each_session_has_its_own_state(server: Process) -> None:
    url = url_of(server)
    with anyio.fail_after(END_S):
        async with Client(url) as one, Client(url, mode="legacy") as two:
            assert one.protocol_version == two.protocol_version == "2025-11-25"
            assert [await count(one), await count(two), await count(one)] == [1, 1, 2]


async def test_a_2026_request_is_told_what_is_served(server: Process) -> None:
    with (
        anyio.fail_after(END_S),
        pytest.RaisesGroup(pytest.RaisesExc(MCPError, check=_names_2025), flatten_subgroups=True),
    ):
        async with Client(url_of(server), mode="2026-07-28") as client:
            await client.list_tools()


def _names_2025(error: MCPError) -> bool:
    return error.code == -32022 and "2025-11-25" in error.data["supported"]


async def test_a_signal_ends_it_with_sessions_open(server: Process) -> None:
    with anyio.fail_after(END_S):
        async with Client(url_of(server), mode="legacy") as client:
            assert await count(client) == 1
            assert server.watch() > 0
            server.popen.send_signal(signal.SIGTERM)
            code, out, _ = await anyio.to_thread.run_sync(server.end)
    assert (code, out) == (0, b"")


def test_a_bundle_that_does_not_load_is_told_before_it_listens(tmp_path: Path) -> None:
    bad = changed(tmp_path / "bad", code="import socket\n")
    process = Process([*alone(bad), "--http"])
    code, out, err = process.end()
    assert (code, out) == (1, b"")
    assert err.startswith(b"error: ")
    assert b"listening" not in err
