"""Which calls stand in the denominator of precision: all but faults, their retries, tolerated ones.

A call that is evidence always counts, so precision never passes 1.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from astra_mcp.attempt import Call
from astra_mcp.errors import AstraError
from astra_mcp.grade.equality import json_key
from astra_mcp.grade.evidence import fits_where, selected, usable
from astra_mcp.match import match_value
from astra_mcp.task import CallPattern, Task


def counted_calls(task: Task, calls: Sequence[Call], evidence: Set[int]) -> list[bool]:
    """For each call, whether it counts; `evidence` holds positions of evidence calls."""
    retries = _retries(calls)
    return [
        i in evidence or (call.fault is None and i not in retries and not _tolerated(task, call))
        for i, call in enumerate(calls)
    ]


def _retries(calls: Sequence[Call]) -> set[int]:
    """Of each injected fault the next call with the same tool and arguments."""
    keys = [json_key([call.tool, call.args]) for call in calls]
    retries = set()
    for i, call in enumerate(calls):
        if call.fault is not None and keys[i] in keys[i + 1 :]:
            retries.add(keys.index(keys[i], i + 1))
    return retries


def _tolerated(task: Task, call: Call) -> bool:
    return usable(call) and any(_fits(pattern, call) for pattern in task.tolerated)


def _fits(pattern: CallPattern, call: Call) -> bool:
    """There is no expected value here, so only matchers that carry their own text can compare."""
    if call.tool != pattern.tool or not fits_where(pattern.where, call):
        return False
    if pattern.select is None or pattern.match is None:
        return True
    value = selected(pattern, call)
    if pattern.match.kind not in ("regex", "contains") or value is None:
        return False
    try:
        return bool(match_value(pattern.match, value, value))
    except AstraError:
        return False
