"""What a worker answered, checked as if an enemy had sent it, and what its death meant.

Pure functions. `read_reply` accepts exactly the forms that a well-behaved worker sends within the
bounds of its bundle; everything else raises `LineBreach`, never a guess. `epitaph` tells a death
that the tool caused (time, memory, crash: data for the agent) from one that it did not (None).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from astra_mcp import errors
from astra_mcp.errors import ToolFailure
from astra_mcp.errors import WorkerLost as WorkerLost
from astra_mcp.sandbox import wire
from astra_mcp.sandbox.channel import LineBreach

Json = Any
Changes = Mapping[str, Mapping[str, Json]]

#: Bytes of a successful reply around its result when nothing changed.
_AROUND: Final = len(b'{"r":,"c":{}}')
_WRAPPED: Final = 3  # levels that the reply itself adds
_OUT_OF_TIME: Final = frozenset({signal.SIGVTALRM, signal.SIGPROF})
_OWN_FAULT: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS,
     signal.SIGTRAP}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of one call.

    Attributes:
        result: What the tool returned, an object; None when it failed.
        failure: Why it failed, as the agent sees it; None when it did not.
        changes: {table: {row id: row, or None when removed}} after a successful call of a "write"
            tool, {} when nothing changed; None otherwise.
        worker_alive: Whether the worker can take another call.
    """

    result: Json = None
    failure: ToolFailure | None = None
    changes: Changes | None = None
    worker_alive: bool = True


def dead(code: str, message: str) -> Reply:
    """The reply for a call that cost the worker its life."""
    return Reply(failure=ToolFailure(code, message), worker_alive=False)


def crashed() -> Reply:
    """The reply for a worker that crashed or broke the protocol."""
    return dead(errors.CRASH, "the tool failed unexpectedly")


def out_of_time(call_seconds: float) -> Reply:
    """The reply for a worker that had to be stopped."""
    return dead(errors.TIMEOUT, f"the tool used more than {call_seconds:g} s")


def read_reply(body: bytes, *, writes: bool, tables: Collection[str], output_bytes: int) -> Reply:
    """Check one answer.

    Args:
        body: JSON text as it came.
        writes: Whether the tool may change the state.
        tables: Names of the tables that the state has.
        output_bytes: Bound on the result.

    Raises:
        LineBreach: no well-behaved worker answers like this.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise LineBreach from None
    if type(answer) is not dict:
        raise LineBreach
    if answer.keys() == {"e"}:
        return Reply(failure=_failure(answer["e"]))
    if answer.keys() != {"r", "c"} or type(answer["r"]) is not dict:
        raise LineBreach
    result, changes = answer["r"], answer["c"]
    if body.count(b"{") + body.count(b"[") > wire.MAX_DEPTH and _too_deep(result, changes):
        raise LineBreach
    _check_changes(changes, writes, tables)
    if len(body) - _AROUND > output_bytes and len(orjson.dumps(result)) > output_bytes:
        raise LineBreach
    return Reply(result=result, changes=changes if writes else None)


def _failure(pair: Json) -> ToolFailure:
    if type(pair) is not list or len(pair) != 2 or not all(type(part) is str for part in pair):
        raise LineBreach
    code, message = pair
    if not 0 < len(code) <= wire.MAX_CODE or len(message) > wire.MAX_MESSAGE:
        raise LineBreach
    return ToolFailure(code, message)


def _too_deep(result: Json, changes: Json) -> bool:
    rows = [row for table in changes.values() if type(table) is dict for row in table.values()] if (
        type(changes) is dict
    ) else [changes]  # fmt: skip
    return wire.too_deep(result) or any(wire.too_deep(row) for row in rows if row is not None)


def _check_changes(changes: Json, writes: bool, tables: Collection[str]) -> None:
    if type(changes) is not dict or (changes and not writes):
        raise LineBreach
    for table, rows in changes.items():
        if table not in tables or type(rows) is not dict or not rows:
            raise LineBreach
        if not all(row is None or type(row) is dict for row in rows.values()):
            raise LineBreach


def epitaph(status: int | None, call_seconds: float) -> Reply | None:
    """What the end of a worker says about the call it was in.

    A worker that reached the CPU limit of its whole life (SIGXCPU) is worn out by many calls: one
    call alone is stopped long before. So that, like a kill from outside, is not the tool's doing.

    Args:
        status: Wait status, None when unknown.
        call_seconds: Time that one call may take.

    Returns:
        The reply, or None when the tool did not cause it.
    """
    if status is None:
        return None
    if not os.WIFSIGNALED(status):
        return crashed()
    by = os.WTERMSIG(status)
    if by in _OUT_OF_TIME:
        return out_of_time(call_seconds)
    return crashed() if by in _OWN_FAULT else None
