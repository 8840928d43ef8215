"""`astra top`: one snapshot, lines for a pipe, a screen that is given back, and its arithmetic."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import orjson
import pytest

from astra_clients.top import compare, first_snapshot, parse
from astra_clients.top.screen import text
from astra_clients.top.snapshot import percentile
from astra_mcp.errors import AuthError, ClientError
from astra_mcp.settings import CONTROL_TOKEN_ENV, METRICS_TOKEN_ENV
from tests.e2e.conftest import CONTROL_TOKEN, Rig, Rigger

TASK = "nasty@1.0.0#t1"
TOP = [sys.executable, "-m", "astra_mcp.cli", "top"]
ENV = {k: v for k, v in os.environ.items() if k not in (CONTROL_TOKEN_ENV, METRICS_TOKEN_ENV)}
WITH_TOKEN = {**ENV, CONTROL_TOKEN_ENV: CONTROL_TOKEN}


async def top(*args: str, code: int = 0, env: dict[str, str] = WITH_TOKEN) -> tuple[str, str]:
    """Run it to its end; gives stdout and stderr."""
    with anyio.fail_after(60):
        done = await anyio.run_process([*TOP, *args], check=False, env=env)
    assert done.returncode == code, done.stderr
    return done.stdout.decode(), done.stderr.decode()


@contextmanager
def running(
    url: str, stdin: int | None, stdout: int, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """It runs until the block ends."""
    process = subprocess.Popen(
        [*TOP, url, "--interval", "0.1", *options],
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**WITH_TOKEN, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


async def ends(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once it has ended by itself."""
    with anyio.fail_after(30):
        return await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)


async def some_calls(rig: Rig) -> None:
    """Calls until they are cancelled."""
    agent = rig.agent(await rig.open(TASK, max_calls=1000))
    while True:
        await agent.call_tool("count", {})
        await agent.call_tool("put", {})
        await anyio.sleep(0.01)


# ---- the command --------------------------------------------------------------------------------


async def test_one_snapshot_as_text_and_as_json(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig, anyio.create_task_group() as tasks:
        tasks.start_soon(some_calls, rig)
        out, _ = await top(rig.host.url, "--once", "--interval", "0.5")
        assert "calls/s" in out
        assert "invalid_arguments" in out
        assert any(line.split()[:1] == ["nasty"] for line in out.splitlines())
        assert CONTROL_TOKEN not in out
        out, _ = await top(f"{rig.host.url}/control/mcp", "--json", "--interval", "0.5")
        tasks.cancel_scope.cancel()
    seen = orjson.loads(out)
    assert seen["calls_s"] > seen["errors_s"] > 0
    assert seen["errors_s"] == pytest.approx(seen["errors"]["invalid_arguments"])
    assert 0 < seen["p50_ms"] <= seen["p99_ms"]
    assert seen["now"]["episodes_open"] == seen["now"]["sandbox_workers"] == 1
    assert seen["rss_bytes"] < seen["tree_rss_bytes"]
    (busiest,) = seen["busiest"]
    assert busiest["bundle"] == "nasty"
    assert busiest["calls_s"] == pytest.approx(seen["calls_s"])


async def test_the_token_comes_from_a_file_or_the_environment_and_a_wrong_one_is_said_so(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{CONTROL_TOKEN}\n")
    short = ("--json", "--interval", "0.1")
    async with rig_of(nasty) as rig:
        url = rig.host.url
        await top(url, *short, "--token-file", str(file), env=ENV)
        await top(url, *short, env={**ENV, METRICS_TOKEN_ENV: CONTROL_TOKEN})
        _, said = await top(url, *short, code=2, env=ENV)
        assert "no token" in said
        wrong = {**ENV, CONTROL_TOKEN_ENV: "another-token-0123456789"}
        _, said = await top(url, *short, code=3, env=wrong)
        assert "does not open" in said
        assert "another-token" not in said
    _, said = await top(url, *short, code=1)
    assert "does not answer" in said
    _, said = await top("localhost:80", *short, code=2)
    assert "http://" in said


async def test_a_pipe_gets_lines_and_ctrl_c_ends_it_quietly(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig:
        with running(rig.host.url, None, subprocess.PIPE) as process:
            assert process.stdout is not None
            with anyio.fail_after(30), process.stdout as pipe:
                lines = [await anyio.to_thread.run_sync(pipe.readline) for _ in range(3)]
                process.send_signal(signal.SIGINT)
                assert await ends(process) == 0
            assert process.stderr is not None
            assert process.stderr.read() == b""
    assert lines[0].split()[:2] == [b"calls/s", b"errors/s"]
    assert lines[1].split()[:2] == lines[2].split()[:2] == [b"0", b"0"]
    assert b"\x1b" not in b"".join(lines)


async def test_the_end_of_the_pipe_ends_it_quietly(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig:
        with running(rig.host.url, None, subprocess.PIPE) as process:
            assert process.stdout is not None
            with anyio.fail_after(30), process.stdout as pipe:
                await anyio.to_thread.run_sync(pipe.readline)
            assert await ends(process) == 0
            assert process.stderr is not None
            assert process.stderr.read() == b""


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
async def test_a_terminal_gets_a_screen_and_gets_itself_back(
    rig_of: Rigger, nasty: Path, key: bytes
) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    heard = bytearray()
    try:
        async with rig_of(nasty) as rig:
            with running(rig.host.url, theirs, theirs) as process:
                with anyio.fail_after(30):
                    while b"q quits" not in heard or b"busiest bundles" not in heard:
                        await anyio.wait_readable(ours)
                        heard += os.read(ours, 65536)
                    assert termios.tcgetattr(theirs)[3] & termios.ICANON == 0
                    if key == b"q":
                        os.write(ours, key)
                    else:
                        process.send_signal(signal.SIGINT)
                    while process.poll() is None:
                        os.set_blocking(ours, False)
                        try:
                            heard += os.read(ours, 65536)
                        except BlockingIOError:
                            await anyio.lowlevel.checkpoint()
                assert process.returncode == 0
                assert process.stderr is not None
                assert process.stderr.read() == b""
        os.set_blocking(ours, False)
        try:
            heard += os.read(ours, 65536)
        except BlockingIOError:
            pass
        assert termios.tcgetattr(theirs) == before
    finally:
        os.close(ours)
        os.close(theirs)
    assert heard.count(b"\x1b[?1049h") == heard.count(b"\x1b[?1049l") == 1
    assert CONTROL_TOKEN.encode() not in heard


async def test_a_host_that_is_gone_is_waited_for(rig_of: Rigger, nasty: Path) -> None:
    with anyio.fail_after(60):
        await _waits_for_a_host(rig_of, nasty)


async def _waits_for_a_host(rig_of: Rigger, nasty: Path) -> None:
    async with AsyncExitStack() as first:
        url = (await first.enter_async_context(rig_of(nasty))).host.url
        port = int(url.rpartition(":")[2])
        with running(url, None, subprocess.PIPE) as process:
            assert process.stdout is not None
            with process.stdout as pipe:
                while (line := await anyio.to_thread.run_sync(pipe.readline)).split()[0] != b"0":
                    assert line.startswith(b"  calls/s")
                await first.aclose()
                while b"does not answer" not in line:
                    line = await anyio.to_thread.run_sync(pipe.readline)
                async with rig_of(nasty, port=port):
                    while b"does not answer" in line:
                        line = await anyio.to_thread.run_sync(pipe.readline)
                    assert line.split()[:2] == [b"0", b"0"]


# ---- its arithmetic -----------------------------------------------------------------------------


async def test_errors_come_from_the_library_as_ours(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig:
        with pytest.raises(AuthError):
            await first_snapshot(rig.host.url, "wrong", 0.1)
        seen = await first_snapshot(rig.host.url, CONTROL_TOKEN, 0.1)
    assert seen.p50_ms is None
    assert seen.busiest == []
    assert "busiest bundles" in text(seen, "http://host")


def page(ok: int, failed: int, fast: int, started: float = 1000.0) -> str:
    total = ok + failed
    return (
        "# HELP whatever it says\n"
        f"process_start_time_seconds {started}\n"
        f'astra_tool_calls_total{{outcome="ok"}} {ok}\n'
        f'astra_tool_calls_total{{outcome="crash"}} {failed}\n'
        f'astra_tool_call_seconds_bucket{{le="0.001"}} {fast}\n'
        f'astra_tool_call_seconds_bucket{{le="0.01"}} {total}\n'
        f'astra_tool_call_seconds_bucket{{le="+Inf"}} {total}\n'
        f'astra_bundle_tool_calls_total{{bundle="a",outcome="ok"}} {ok}\n'
        f'astra_bundle_tool_calls_total{{bundle="b",outcome="crash"}} {failed}\n'
    )


def test_rates_and_percentiles_are_of_the_time_between_two_looks() -> None:
    seen = compare(parse(page(100, 0, 0), 10.0), parse(page(180, 20, 50), 12.0), now_s=1060.0)
    assert (seen.seconds, seen.uptime_s) == (2.0, 60.0)
    assert (seen.calls_s, seen.errors_s) == (50.0, 10.0)
    assert seen.errors == {"crash": 10.0}
    assert seen.p50_ms == 1.0  # half of the 100 new calls took at most 1 ms
    assert seen.p99_ms == pytest.approx(9.82)
    assert [(one.bundle, one.calls_s, one.errors_s) for one in seen.busiest] == [
        ("a", 40.0, 0.0),
        ("b", 10.0, 10.0),
    ]
    assert seen.rss_bytes is None


def sharded(*pages: str) -> str:
    """The page of a host of several processes."""
    lines = [f'astra_shard_up{{shard="{i}"}} {int(bool(page))}' for i, page in enumerate(pages)]
    for i, one in enumerate(pages):
        for line in one.splitlines():
            name, _, value = line.rpartition(" ")
            label = f'shard="{i}"'
            inside = f",{label}}}" if name.endswith("}") else f"{{{label}}}"
            lines.append(f"{name.removesuffix('}')}{inside} {value}")
    return "\n".join(line for line in lines if not line.startswith("#"))


def test_the_processes_of_one_host_are_added_up() -> None:
    before = parse(sharded(page(100, 0, 0), page(5, 5, 5)), 10.0)
    after = parse(sharded(page(180, 20, 50), page(15, 15, 10, 900.0)), 12.0)
    seen = compare(before, after, now_s=1060.0)
    assert (seen.processes, seen.processes_up, seen.uptime_s) == (2, 2, 160.0)
    assert (seen.calls_s, seen.errors_s) == (60.0, 15.0)
    assert seen.p50_ms == pytest.approx(1.0 + 9.0 * 5 / 65, abs=1e-3)
    assert [(one.bundle, one.calls_s) for one in seen.busiest] == [("a", 45.0), ("b", 15.0)]


def test_a_process_that_did_not_answer_before_has_no_rate_yet() -> None:
    before = parse(sharded(page(100, 0, 0), ""), 10.0)
    seen = compare(before, parse(sharded(page(110, 0, 0), page(500, 0, 0)), 11.0), now_s=1060.0)
    assert seen.calls_s == 10.0
    lost = compare(parse(sharded(page(110, 0, 0), page(500, 0, 0)), 11.0), before, now_s=1061.0)
    assert (lost.processes, lost.processes_up) == (2, 1)


def test_a_host_that_was_restarted_counts_from_nothing() -> None:
    seen = compare(parse(page(100, 50, 0), 10.0), parse(page(10, 0, 10), 11.0), now_s=1001.0)
    assert (seen.calls_s, seen.errors_s) == (10.0, 0.0)


def test_percentiles_of_nothing_and_of_what_is_above_every_bound() -> None:
    assert percentile([], 0.5) is None
    assert percentile([(1.0, 0.0), (float("inf"), 0.0)], 0.5) is None
    assert percentile([(1.0, 0.0), (float("inf"), 4.0)], 0.5) == 1.0
    assert percentile([(1.0, 2.0), (2.0, 2.0), (float("inf"), 4.0)], 0.5) == 1.0


def test_what_is_no_metrics_page_is_refused() -> None:
    with pytest.raises(ClientError, match="text format"):
        parse("<html>", 0.0)
    assert parse('x{a="quote \\" back \\\\ line \\n end"} 3\n', 0.0).samples["x"] == [
        ({"a": 'quote " back \\ line \n end'}, 3.0)
    ]
