"""What a failed call looks like, and which failures are not the tool's doing."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from astra_mcp import errors
from astra_mcp.errors import LoadError, SandboxError
from astra_mcp.sandbox import Reply, Sandbox, WorkerLost, wire
from astra_mcp.sandbox.wire import Order
from tests.sandbox.helpers import (
    NOW,
    STATE,
    code_of,
    load,
    load_unguarded,
    one_tool,
    running,
    until,
)


def test_both_sides_use_the_same_words() -> None:
    ours = (wire.TIMEOUT, wire.MEMORY_LIMIT, wire.OUTPUT_LIMIT, wire.CRASH, wire.CONTRACT)
    theirs = (
        errors.TIMEOUT,
        errors.MEMORY_LIMIT,
        errors.OUTPUT_LIMIT,
        errors.CRASH,
        errors.CONTRACT,
    )
    assert ours == theirs


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        ("E('gone', 'it is gone')", "gone", "it is gone"),
        ("E('', 'no code')", "crash", "the tool failed unexpectedly"),
        ("E(5, 'no code')", "crash", "the tool failed unexpectedly"),
        ("KeyError('secret row')", "crash", "the tool failed unexpectedly"),
        ("SystemExit(3)", "crash", "the tool failed unexpectedly"),
        ("KeyboardInterrupt()", "crash", "the tool failed unexpectedly"),
        ("E('c' * 100, 'm' * 1000)", "c" * 64, "m" * 500),
        ("E('c', '\\ud800')", "c", "?"),
    ],
)
async def test_what_a_raised_error_becomes(
    sandbox: Sandbox, raised: str, code: str, message: str
) -> None:
    source = (
        "class ToolError(Exception):\n    def __init__(self, code, text):\n"
        "        super().__init__(text)\n        self.code = code\n"
        f"E = ToolError\ndef t(state):\n    raise {raised}\n"
    )
    template = await load(sandbox, source, {"t": "read"})
    reply = await (await template.worker(STATE)).call("t", {}, b"")
    assert reply == Reply(failure=errors.ToolFailure(code, message))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def t(state:\n", "never closed"),
        ("import socket\ndef t(state):\n    return {}\n", "not available in the sandbox"),
        ("def t(state):\n    return t.__globals__\n", "restricted attribute"),
        ("x = 1\n", "no function t()"),
        ("t = 5\n", "no function t()"),
        ("1 / 0\ndef t(state):\n    return {}\n", "ZeroDivisionError at module level"),
        ("x = 'y' * (1 << 33)\ndef t(state):\n    return {}\n", "more than 64 MB"),
        ("def t(state):\n    return " + "(" * 5000 + ")" * 5000, "loaded"),
        ("\0", "null bytes"),
        (
            "def t(state):\n    pass\nclass E(Exception):\n    def __str__(self):\n"
            "        return 1 / 0\nraise E\n",
            "ZeroDivisionError at module level",
        ),
    ],
)
async def test_code_that_does_not_load(sandbox: Sandbox, source: str, words: str) -> None:
    with pytest.raises(LoadError) as caught:
        await load(sandbox, source, {"t": "read"})
    assert words in str(caught.value)
    assert caught.value.remedy


async def test_randomness_at_module_level_follows_from_each_calls_seed(sandbox: Sandbox) -> None:
    code = "import random\nX = random.random()\ndef t(state):\n    return {'x': X}\n"
    template = await load(sandbox, code, {"t": "read"})
    worker = await template.worker(STATE)
    seeds = (b"1", b"2", b"1")
    first, other, again = [(await worker.call("t", {}, seed)).result for seed in seeds]
    assert first == again != other
    assert (await (await template.worker(STATE)).call("t", {}, b"2")).result == other


async def test_arguments_a_tool_does_not_take_fail_that_call_only(sandbox: Sandbox) -> None:
    worker = await one_tool(sandbox, "    return {'a': a}\n", args=", *, a")
    assert code_of(await worker.call("t", {"b": 1}, b"")) == errors.CRASH
    assert (await worker.call("t", {"a": 1}, b"")).result == {"a": 1}


async def test_arguments_without_a_json_form_are_refused_by_the_host(sandbox: Sandbox) -> None:
    worker = await one_tool(sandbox, "    return {}\n", args=", **words")
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    for args in ({"a": {1, 2}}, {"a": deep}, {"a": 2**70}, {"a": "x" * (5 << 20)}):
        assert code_of(await worker.call("t", args, b"")) == errors.INVALID_ARGUMENTS
    assert worker.alive


async def test_an_unknown_tool_is_told_apart(sandbox: Sandbox) -> None:
    worker = await one_tool(sandbox, "    return {}\n")
    assert code_of(await worker.call("__init__", {}, b"")) == errors.UNKNOWN_TOOL


async def test_more_changes_than_allowed_are_an_output_failure(sandbox: Sandbox) -> None:
    body = "    state['items']['a']['n'] = 'x' * size\n    return {}\n"
    worker = await one_tool(sandbox, body, "write", ", *, size")
    reply = await worker.call("t", {"size": wire.MAX_CHANGES}, b"")
    assert code_of(reply) == errors.OUTPUT_LIMIT
    reply = await worker.call("t", {"size": 100_000}, b"")
    assert reply.changes == {"items": {"a": {"n": "x" * 100_000}}}


async def test_memory_is_given_back_after_a_memory_failure(sandbox: Sandbox) -> None:
    body = "    return {'n': len([bytearray(1 << 20) for _ in range(mb)])}\n"
    worker = await one_tool(sandbox, body, args=", *, mb", call_seconds=5.0)
    for _ in range(3):
        assert code_of(await worker.call("t", {"mb": 500}, b"")) == errors.MEMORY_LIMIT
    assert (await worker.call("t", {"mb": 30}, b"")).result == {"n": 30}


async def test_a_state_beyond_the_memory_is_a_load_failure(sandbox: Sandbox) -> None:
    code = "def t(state):\n    return {}\n"
    template = await load(sandbox, code, {"t": "read"}, memory_mb=16)
    rows = {str(n): {"text": "x" * 1000} for n in range(20_000)}
    with pytest.raises(LoadError, match="16 MB"):
        await template.worker({"items": rows})
    assert (await (await template.worker(STATE)).call("t", {}, b"")).result == {}


async def test_a_state_that_is_no_json_is_refused(sandbox: Sandbox) -> None:
    template = await load(sandbox, "def t(state):\n    return {}\n", {"t": "read"})
    with pytest.raises(SandboxError, match="no JSON"):
        await template.worker({"items": {"a": {1, 2}}})


# ---- not the tool's doing --------------------------------------------------------------------


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
async def test_a_worker_killed_while_idle_is_lost(sandbox: Sandbox, signum: int) -> None:
    worker = await one_tool(sandbox, "    return {}\n")
    os.kill(worker.pid, signum)
    with pytest.raises(WorkerLost):
        await worker.call("t", {}, b"")
    assert not worker.alive


async def test_a_worker_killed_in_a_call_is_lost(sandbox: Sandbox) -> None:
    worker = await one_tool(sandbox, "    while True:\n        pass\n", call_seconds=20.0)
    call = asyncio.ensure_future(worker.call("t", {}, b""))
    await asyncio.sleep(0)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerLost):
        await call


async def test_a_worker_that_turns_its_timers_off_is_out_of_time(sandbox: Sandbox) -> None:
    template = await load_unguarded(
        sandbox,
        "import signal\ndef t(state):\n"
        "    for timer in (signal.ITIMER_PROF, signal.ITIMER_VIRTUAL):\n"
        "        signal.setitimer(timer, 0)\n    while True:\n        pass\n",
        {"t": "read"},
        call_seconds=0.1,
    )
    reply = await (await template.worker(STATE)).call("t", {}, b"")
    assert code_of(reply) == errors.TIMEOUT
    assert not reply.worker_alive


async def test_a_template_that_is_gone_loses_its_workers(sandbox: Sandbox) -> None:
    template = await load(sandbox, "def t(state):\n    return {}\n", {"t": "read"})
    worker = await template.worker(STATE)
    os.kill(template._forker.process.pid, signal.SIGKILL)
    assert await until(lambda: not running(worker.pid))
    with pytest.raises(WorkerLost):
        await worker.call("t", {}, b"")
    with pytest.raises(WorkerLost):
        await template.worker(STATE)
    assert not template.alive


async def test_a_closed_template_loses_its_workers(sandbox: Sandbox) -> None:
    template = await load(sandbox, "def t(state):\n    return {}\n", {"t": "read"})
    worker = await template.worker(STATE)
    await template.aclose()
    with pytest.raises(WorkerLost):
        await worker.call("t", {}, b"")
    with pytest.raises(WorkerLost):
        await template.worker(STATE)


async def test_a_killed_worker_takes_no_call(sandbox: Sandbox) -> None:
    worker = await one_tool(sandbox, "    return {}\n")
    worker.kill()
    worker.kill()
    with pytest.raises(WorkerLost):
        await worker.call("t", {}, b"")


async def test_a_worker_worn_out_by_many_calls_is_replaced_not_blamed(sandbox: Sandbox) -> None:
    order = Order(
        "def t(state):\n    return {'n': sum(range(3_000_000))}\n", {"t": "read"}, 5.0, 5.0, 1,
        64, 999, NOW,
    )  # fmt: skip
    template = await sandbox._template(order)
    worker = await template.worker(STATE)

    async def wear_out() -> None:
        for _ in range(200):
            assert (await worker.call("t", {}, b"")).failure is None

    with pytest.raises(WorkerLost):
        await wear_out()
    assert (await (await template.worker(STATE)).call("t", {}, b"")).failure is None


async def test_a_host_that_blocks_signals_still_stops_calls(sandbox: Sandbox) -> None:
    blocked = {signal.SIGPROF, signal.SIGVTALRM, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        other = await Sandbox.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    worker = await one_tool(other, "    while True:\n        pass\n")
    reply = await worker.call("t", {}, b"")
    assert (code_of(reply), reply.worker_alive) == (errors.TIMEOUT, True)
    await other.aclose()


async def test_executing_the_module_for_each_call_does_not_fill_the_memory(
    sandbox: Sandbox,
) -> None:
    code = "BIG = [str(n) for n in range(5000)]\ndef t(state):\n    return {'n': len(BIG)}\n"
    template = await load(sandbox, code, {"t": "read"}, memory_mb=16)
    worker = await template.worker(STATE)
    for _ in range(300):
        assert (await worker.call("t", {}, b"")).result == {"n": 5000}


# ---- one call at a time ----------------------------------------------------------------------


async def test_calls_of_one_worker_wait_for_each_other(sandbox: Sandbox) -> None:
    body = "    state['items']['a']['n'] += 1\n    return {'n': state['items']['a']['n']}\n"
    worker = await one_tool(sandbox, body, "write")
    replies = await asyncio.gather(*(worker.call("t", {}, b"") for _ in range(20)))
    assert [reply.result["n"] for reply in replies] == list(range(2, 22))


async def test_a_cancelled_call_costs_the_worker_and_its_answer_meets_nobody(
    sandbox: Sandbox,
) -> None:
    template = await load(sandbox, "def t(state, *, k):\n    return {'k': k}\n", {"t": "read"})
    worker = await template.worker(STATE)
    call = asyncio.ensure_future(worker.call("t", {"k": "old"}, b""))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not worker.alive
    with pytest.raises(WorkerLost):
        await worker.call("t", {"k": "new"}, b"")
    fresh = await template.worker(STATE)
    assert (await fresh.call("t", {"k": "new"}, b"")).result == {"k": "new"}


async def test_a_call_cancelled_while_it_waits_costs_nothing(sandbox: Sandbox) -> None:
    worker = await one_tool(sandbox, "    return {'k': k}\n", args=", *, k")
    first = asyncio.ensure_future(worker.call("t", {"k": 1}, b""))
    second = asyncio.ensure_future(worker.call("t", {"k": 2}, b""))
    await asyncio.sleep(0)
    second.cancel()
    assert (await first).result == {"k": 1}
    assert (await worker.call("t", {"k": 3}, b"")).result == {"k": 3}


async def test_bytes_after_the_answer_end_the_worker(sandbox: Sandbox) -> None:
    code = (
        "import os, signal\n"
        "def late(*_):\n    os.write(3, b'x') if fd is None else os.write(fd, b'x')\n"
        "fd = None\n"
        "def t(state):\n    global fd\n    for n in range(3, 64):\n"
        "        try:\n            os.write(n, b'')\n            fd = n\n"
        "        except OSError:\n            pass\n"
        "    signal.signal(signal.SIGALRM, late)\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.05)\n    return {}\n"
    )
    template = await load_unguarded(sandbox, code, {"t": "read"})
    worker = await template.worker(STATE)
    assert (await worker.call("t", {}, b"")).failure is None
    assert await until(lambda: not worker.alive)
    assert code_of(await worker.call("t", {}, b"")) == errors.CRASH
