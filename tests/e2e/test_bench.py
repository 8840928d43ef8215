"""`astra bench host` in its shortest form: its shape, and that a wrong answer is never silent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from astra_clients.bench import children, run
from astra_clients.bench.effort import TINY
from astra_clients.bench.results import ROWS
from astra_clients.bench.wires import is_whole
from astra_clients.bench.world import bundle_json
from astra_mcp.difficulty import measure as difficulty_of
from astra_mcp.errors import BenchError
from astra_mcp.store import load_json

BENCH = [sys.executable, "-m", "astra_mcp.cli", "bench", "host", "--tiny"]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    done = subprocess.run([*BENCH, "--json"], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert "calls: round 1" in done.stderr
    assert done.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_server_is_measured_at_every_concurrency(report: dict[str, Any]) -> None:
    rows = {(row["server"], row["concurrency"]): row for row in report["load"]}
    assert set(rows) == {(name, n) for name in ROWS for n in TINY.concurrencies}
    for row in rows.values():
        assert row["calls"] > 0
        assert row["cpu_us_per_call"] > 0
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert len(row["rounds"]) == TINY.rounds


def test_ratios_are_to_fastmcp(report: dict[str, Any]) -> None:
    assert set(report["ratio_to_fastmcp"]) == {"trusted", "sandboxed", "sdk_lowlevel"}
    assert all(ratio > 0 for ratio in report["ratio_to_fastmcp"].values())
    own = {r["ratio_to_fastmcp"] for r in report["load"] if r["server"] == "fastmcp"}
    assert own == {1.0}


def test_the_other_figures_are_there(report: dict[str, Any]) -> None:
    assert report["mode"] == "tiny"
    assert report["episodes"]["episodes_per_s"] > 0
    assert report["clients"]["thin_cpu_us"] > 0
    assert report["world"]["round_trip_p50_us"] > 0
    assert report["scale"]["bundles"] == TINY.bundles
    assert {"cpu", "cores", "python", "versions"} <= set(report["machine"])
    assert all({"name", "asked", "measured", "met"} == set(t) for t in report["targets"])


def test_the_bundle_is_what_it_says() -> None:
    bundle = load_json(bundle_json())
    task = bundle.sealed.tasks[0]
    assert task.difficulty == difficulty_of(task, bundle.manifest)


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", False),
        (b"HTTP/1.1 200 OK\r\ncontent-len", False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", False),
    ],
)
def test_an_answer_is_read_to_its_end(data: bytes, whole: bool) -> None:
    assert is_whole(data) is whole


@asynccontextmanager
async def liar(answer: bytes) -> AsyncIterator[children.Served]:
    """A server that gives every request the same answer."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            try:
                while await stream.receive():
                    await stream.send(answer)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield children.Served(f"http://127.0.0.1:{port}", "/mcp", os.getpid(), 0.0)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"sum":123}',
        b"HTTP/1.1 500 Oh\r\ncontent-length: 7\r\n\r\n7300000",
    ],
    ids=["wrong sum", "wrong status"],
)
async def test_a_wrong_answer_ends_the_benchmark(answer: bytes, tmp_path: Path) -> None:
    async with (
        liar(answer) as server,
        children.child("astra_clients.bench.load", tmp_path) as generator,
    ):
        with pytest.raises(BenchError, match="wrong answers"):
            await run._window(generator, "liar", server, [run.Door("/mcp")], TINY)


async def test_a_server_that_ends_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="There is no server 'nonsense'"):
        async with children.serving(
            ["astra_servers.bench_servers", "nonsense", "{ready}"], tmp_path, "nonsense"
        ):
            pytest.fail("it does not start")
