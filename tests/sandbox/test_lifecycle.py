"""Processes come and go with their owner, and see nothing of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from astra_mcp.errors import SandboxError
from astra_mcp.sandbox import Sandbox, WorkerLost
from tests.sandbox.helpers import STATE, descendants, load, running, until

CODE = "def t(state):\n    return {}\n"
ROOT = Path(__file__).parents[2]

HOST = """
import asyncio, sys, time
from astra_mcp.sandbox import Sandbox
async def main():
    sandbox = await Sandbox.start()
    template = await sandbox.template("def t(state):\\n    return {}\\n", {"t": "read"},
        call_seconds=1.0, memory_mb=64, output_bytes=999, now_s=0.0)
    workers = [await template.worker({}) for _ in range(3)]
    print("ready", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


async def test_aclose_leaves_no_process() -> None:
    before = descendants(os.getpid())
    sandbox = await Sandbox.start()
    endless = "def t(state):\n    while True:\n        pass\n"
    templates = [await load(sandbox, endless, {"t": "read"}, call_seconds=9.0) for _ in range(3)]
    workers = [await template.worker(STATE) for template in templates for _ in range(3)]
    started = descendants(os.getpid()) - before
    assert len(started) >= 1 + 3 + 9
    call = asyncio.ensure_future(workers[0].call("t", {}, b""))
    await asyncio.sleep(0)
    await sandbox.aclose()
    with pytest.raises(WorkerLost):
        await call
    assert not any(running(pid) for pid in started)
    await sandbox.aclose()
    with pytest.raises(SandboxError, match="closed"):
        await load(sandbox, CODE, {"t": "read"})


async def test_a_closed_template_leaves_no_process(sandbox: Sandbox) -> None:
    template = await load(sandbox, CODE, {"t": "read"})
    workers = [await template.worker(STATE) for _ in range(3)]
    pids = [template._forker.process.pid, *(worker.pid for worker in workers)]
    await template.aclose()
    assert await until(lambda: not any(running(pid) for pid in pids))


async def test_a_finished_worker_leaves_no_zombie(sandbox: Sandbox) -> None:
    template = await load(sandbox, CODE, {"t": "read"})
    worker = await template.worker(STATE)
    worker.kill()
    assert await until(lambda: not Path(f"/proc/{worker.pid}").exists())


async def test_when_the_host_is_killed_everything_ends() -> None:
    pipe = asyncio.subprocess.PIPE
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOST, cwd=ROOT, stdin=pipe, stdout=pipe
    )
    assert host.stdout is not None
    assert await host.stdout.readline() == b"ready\n"
    family = descendants(host.pid)
    assert len(family) >= 5
    host.kill()
    await host.wait()
    assert await until(lambda: not any(running(pid) for pid in family))


async def test_a_dead_zygote_is_replaced_and_its_templates_are_lost() -> None:
    sandbox = await Sandbox.start()
    try:
        template = await load(sandbox, CODE, {"t": "read"})
        worker = await template.worker(STATE)
        assert sandbox._zygote is not None
        os.kill(sandbox._zygote.forker.process.pid, signal.SIGKILL)
        again = await load(sandbox, CODE, {"t": "read"})
        assert (await (await again.worker(STATE)).call("t", {}, b"")).result == {}
        assert await until(lambda: not running(worker.pid))
        with pytest.raises(WorkerLost):
            await worker.call("t", {}, b"")
        with pytest.raises(WorkerLost):
            await template.worker(STATE)
    finally:
        await sandbox.aclose()


async def test_the_host_keeps_no_descriptor_of_what_ended(sandbox: Sandbox) -> None:
    template = await load(sandbox, CODE, {"t": "read"})
    await asyncio.sleep(0)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        worker = await template.worker(STATE)
        worker.kill()
    await template.aclose()
    assert await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at a process of another user")
async def test_a_worker_has_one_line_and_nothing_else(sandbox: Sandbox) -> None:
    worker = await (await load(sandbox, CODE, {"t": "read"})).worker(STATE)
    home = Path(f"/proc/{worker.pid}")
    opened = sorted(os.readlink(home / "fd" / name) for name in os.listdir(home / "fd"))
    assert opened[:3] == ["/dev/null"] * 3
    assert len(opened) == 4
    assert opened[3].startswith("socket:")
    variables = {item.split(b"=")[0] for item in (home / "environ").read_bytes().split(b"\0")}
    assert variables <= {b"", b"LC_ALL", b"PYTHONHASHSEED", b"TZ", b"LD_LIBRARY_PATH"}
    status = (home / "status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
    assert "0" not in fields["Uid"].split()


async def test_many_workers_at_once(sandbox: Sandbox) -> None:
    code = "def t(state, *, n):\n    state['items']['a']['n'] = n\n    return state['items']['a']\n"
    template = await load(sandbox, code, {"t": "write"})
    workers = await asyncio.gather(*(template.worker(STATE) for _ in range(60)))
    assert len({worker.pid for worker in workers}) == 60
    replies = await asyncio.gather(
        *(worker.call("t", {"n": n}, b"") for n, worker in enumerate(workers))
    )
    assert [reply.result["n"] for reply in replies] == list(range(60))
    await template.aclose()
