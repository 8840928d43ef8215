"""Short ways to load code into a sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from astra_mcp.sandbox import Effect, Reply, Sandbox, Template, Worker
from astra_mcp.sandbox.wire import Order

NOW = 1_741_773_600.0
STATE: Mapping[str, Any] = {"items": {"a": {"n": 1}, "b": {"n": 2}}}


async def load(
    sandbox: Sandbox,
    code: str,
    tools: Mapping[str, Effect],
    *,
    call_seconds: float = 0.2,
    memory_mb: int = 64,
    output_bytes: int = 32768,
) -> Template:
    return await sandbox.template(
        code,
        tools,
        call_seconds=call_seconds,
        memory_mb=memory_mb,
        output_bytes=output_bytes,
        now_s=NOW,
    )


async def load_unguarded(
    sandbox: Sandbox, code: str, tools: Mapping[str, Effect], *, call_seconds: float = 0.1
) -> Template:
    """Load as if the language layer had been escaped."""
    order = Order(code, tools, call_seconds, 5.0, 60, 64, 32768, NOW, guarded=False)
    return await sandbox._template(order)


async def one_tool(
    sandbox: Sandbox, body: str, effect: Effect = "read", args: str = "", **limits: Any
) -> Worker:
    """A worker with one tool `t`, whose body is given (indented by four)."""
    template = await load(sandbox, f"def t(state{args}):\n{body}", {"t": effect}, **limits)
    return await template.worker(STATE)


def code_of(reply: Reply) -> str:
    return reply.failure.code if reply.failure is not None else "none"


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def descendants(pid: int) -> set[int]:
    """Process ids of everything below `pid`."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry)] = int(stat.rsplit(")", 1)[1].split()[1])
    found: set[int] = set()
    while new := {p for p, up in parents.items() if up in found | {pid}} - found:
        found |= new
    return found


async def until(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait for something that no event announces."""
    try:
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True
