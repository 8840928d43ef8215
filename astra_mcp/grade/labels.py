"""One label for each call, for analysis and for step-wise credit; the first that fits wins.

fault > unknown_tool > premature > progress > distractor > invalid > repeat > ungrounded > idle.
Labels never enter the reward. `ungrounded` needs the tools' schemas: without a manifest no call is.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from astra_mcp.attempt import Call, Golden
from astra_mcp.bundle import Manifest
from astra_mcp.grade.equality import json_key
from astra_mcp.grade.grounding import Grounds
from astra_mcp.grade.items import forbidden
from astra_mcp.grade.models import Label
from astra_mcp.task import Task


def label_calls(
    task: Task,
    golden: Golden,
    calls: Sequence[Call],
    evidence: Set[int],
    manifest: Manifest | None,
) -> list[Label]:
    """Labels in the order of `calls`; `evidence` holds positions of evidence calls."""
    grounds = Grounds(task, golden, manifest) if manifest is not None else None
    seen: set[tuple[str, str]] = set()
    labels: list[Label] = []
    for i, call in enumerate(calls):
        key = (json_key([call.tool, call.args]), call.state_before)
        label = _by_kind(task, call, i in evidence)
        if label is None and key in seen:
            label = "repeat"
        if label is None and grounds is not None and not grounds.has(call):
            label = "ungrounded"
        labels.append(label or "idle")
        if call.ok:
            seen.add(key)
        if grounds is not None:
            grounds.learn(call)
    return labels


def _by_kind(task: Task, call: Call, is_evidence: bool) -> Label | None:
    hidden = {turn.id: turn.hide for turn in task.turns}.get(call.turn, [])
    if call.fault is not None:
        return "fault"
    if call.origin == "none" and call.tool not in hidden:
        return "unknown_tool"
    if call.origin == "none" or _must_wait(task, call):
        return "premature"
    if is_evidence:
        return "progress"
    if call.origin == "distractor" or call.tool in task.distractors:
        return "distractor"
    return None if call.ok else "invalid"


def _must_wait(task: Task, call: Call) -> bool:
    items = (sub for sub in task.subtasks if sub.kind != "call" and sub.turn == call.turn)
    return any(forbidden(sub, call) for sub in items)
