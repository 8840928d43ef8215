"""What the sandbox costs on this machine: microseconds a call, milliseconds a worker, megabytes.

For `astra bench` and docs/sandbox.md. Numbers are medians of one run on an otherwise idle machine;
nothing is judged by them. The measured tools are a read and a write over a small state.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from astra_mcp.sandbox.pool import Sandbox, Template

_CODE: Final = """
class ToolError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def find(state, *, minimum):
    return {"rows": [row for row in state["items"].values() if row["price"] >= minimum]}


def rename(state, *, id, name):
    if id not in state["items"]:
        raise ToolError("not_found", "no such item")
    state["items"][id]["name"] = name
    return {"id": id}
"""
_KEEPING: Final = "import random\nRATES = {'a': 1}\n" + _CODE
_ROWS: Final = {f"i{n}": {"id": f"i{n}", "name": f"item {n}", "price": n} for n in range(50)}
_TOOLS: Final[Any] = {"find": "read", "rename": "write"}
_READ: Final = ("find", {"minimum": 48})
_CALLS: Final = 2000
_WORKERS: Final = 20


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured.

    Attributes:
        read_us: One call of a read tool, round trip.
        write_us: One call of a write tool.
        keeping_us: The read tool in a module that is executed afresh and reseeded for each call.
        worker_ms: Start of a worker until it can take a call.
        template_ms: Loading of a bundle's code, its trial worker included.
        worker_mb: Memory that only one worker uses (private pages), after a call.
        calls_per_s: Calls per second over several workers at once.
    """

    read_us: float
    write_us: float
    keeping_us: float
    worker_ms: float
    template_ms: float
    worker_mb: float
    calls_per_s: float


async def measure(sandbox: Sandbox) -> Measurements:
    """Take all measurements; some seconds."""
    started = time.perf_counter()
    template = await _load(sandbox, _CODE)
    template_ms = (time.perf_counter() - started) * 1e3
    workers = [await template.worker({"items": _ROWS}) for _ in range(_WORKERS)]
    for worker in workers:
        await worker.call(*_READ, b"")
    first = workers[0]
    keeping = await (await _load(sandbox, _KEEPING)).worker({"items": _ROWS})
    started = time.perf_counter()
    await asyncio.gather(*(_repeat(w.call, _READ, _CALLS // 4) for w in workers))
    together = time.perf_counter() - started
    read = await _each(first.call, lambda n: _READ)
    write = await _each(first.call, lambda n: ("rename", {"id": f"i{n % 50}", "name": str(n)}))
    kept = await _each(keeping.call, lambda n: _READ)
    private = [_private_mb(worker.pid) for worker in workers[1:]]
    start = await _starts(template)
    await template.aclose()
    return Measurements(
        read, write, kept, start, template_ms, statistics.median(private),
        _WORKERS * (_CALLS // 4) / together,
    )  # fmt: skip


async def _load(sandbox: Sandbox, code: str) -> Template:
    return await sandbox.template(
        code, _TOOLS, call_seconds=1.0, memory_mb=64, output_bytes=32768, now_s=0.0
    )


async def _repeat(call: Callable[..., Awaitable[Any]], what: Any, times: int) -> None:
    for _ in range(times):
        await call(*what, b"")


async def _each(call: Callable[..., Awaitable[Any]], what: Callable[[int], Any]) -> float:
    taken = []
    for n in range(_CALLS):
        started = time.perf_counter()
        await call(*what(n), n.to_bytes(4, "big"))
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e6


async def _starts(template: Template) -> float:
    taken = []
    for _ in range(_WORKERS):
        started = time.perf_counter()
        worker = await template.worker({"items": _ROWS})
        taken.append(time.perf_counter() - started)
        worker.kill()
    return statistics.median(taken) * 1e3


def _private_mb(pid: int) -> float:
    """Private pages of a process; NaN when this user may not look."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return float("nan")
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024
