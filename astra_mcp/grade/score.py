"""The numbers: recall over items, precision over calls, F1, outcome, and credit for each call.

Source of the F1: arXiv 2601.21558, section on the reward (recall = solved / sub-tasks, precision =
solved / calls); `paper_f1` is that, `f1` is this project's wider form (docs/rewards.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from astra_mcp.attempt import Attempt, Golden
from astra_mcp.bundle import Manifest
from astra_mcp.errors import ReplayError
from astra_mcp.grade.counting import counted_calls
from astra_mcp.grade.evidence import find_evidence
from astra_mcp.grade.final_state import State
from astra_mcp.grade.items import judge_items
from astra_mcp.grade.labels import label_calls
from astra_mcp.grade.models import CallGrade, Grade, Item
from astra_mcp.task import Task


def grade(
    task: Task,
    golden: Golden,
    attempt: Attempt,
    initial_state: State,
    locale: str = "en",
    *,
    manifest: Manifest | None = None,
    digest: str | None = None,
) -> Grade:
    """Grade one attempt.

    Args:
        task: What was asked; sealed.
        golden: The run of its plan.
        attempt: What the agent did.
        initial_state: The world before it, {table: {row id: {column: value}}}.
        locale: Language in which the answer's numbers and dates are read.
        manifest: Enables the label `ungrounded`; the numbers do not depend on it.
        digest: When given, the bundle digest that `golden` must carry.

    Raises:
        ReplayError: `golden` is of another task, another bundle, or lacks a step.
    """
    _check_golden(task, golden, digest)
    calls = attempt.calls
    evidence = find_evidence(task, golden, calls)
    used = {position for positions in evidence.values() for position in positions}
    items = judge_items(task, attempt, evidence, initial_state, locale)
    counted = counted_calls(task, calls, used)
    labels = label_calls(task, golden, calls, used, manifest)
    n_subtasks = sum(sub.kind == "call" for sub in task.subtasks)
    credits = _credits(evidence, n_subtasks)
    named: dict[int, list[str]] = defaultdict(list)
    for sub, positions in evidence.items():
        for position in positions:
            named[position].append(sub)
    recall, precision = _recall_precision(items, len(used), sum(counted), n_subtasks)
    f1 = harmonic(recall, precision)
    return Grade(
        value=f1,
        reason=_reason(items, len(used), sum(counted), n_subtasks),
        f1=f1,
        recall=recall,
        precision=precision,
        outcome=recall == 1,
        paper_f1=_paper_f1(len(evidence), n_subtasks, len(calls)),
        items=items,
        calls=[
            CallGrade(
                index=call.index,
                label=labels[i],
                credit=credits.get(i, 0.0),
                evidence_for=named.get(i, []),
                counted=counted[i],
            )
            for i, call in enumerate(calls)
        ],
        counted_calls=sum(counted),
        evidence_calls=len(used),
    )


def harmonic(a: float, b: float) -> float:
    """Harmonic mean of two shares; 0 when both are 0."""
    return 2 * a * b / (a + b) if a + b > 0 else 0.0


def _check_golden(task: Task, golden: Golden, digest: str | None) -> None:
    remedy = "Run the plan of this very task and grade by that."
    if golden.task.rpartition("#")[2] != task.id:
        raise ReplayError(f"The golden run is of task {golden.task}, not of {task.id}.", remedy)
    if digest is not None and golden.digest != digest:
        raise ReplayError(f"The golden run of task {task.id} is of another bundle.", remedy)
    ran = {step.id: step.tool for step in golden.steps}
    for step in task.plan:
        if ran.get(step.id) != step.tool:
            raise ReplayError(f"The golden run of task {task.id} lacks step {step.id}.", remedy)


def _recall_precision(
    items: list[Item], evidence: int, counted: int, n_subtasks: int
) -> tuple[float, float]:
    recall = sum(item.solved for item in items) / len(items)
    if n_subtasks == 0:
        return recall, 1.0 if counted == 0 else 0.0
    if evidence == 0:
        return 0.0, 0.0
    return recall, evidence / counted


def _paper_f1(solved: int, n_subtasks: int, n_calls: int) -> float | None:
    if n_subtasks == 0:
        return None
    return harmonic(solved / n_subtasks, min(1.0, solved / n_calls) if n_calls else 0.0)


def _credits(evidence: Mapping[str, tuple[int, ...]], n_subtasks: int) -> dict[int, float]:
    """By position: the rise of the share of solved sub-tasks, a potential that only calls move."""
    completed = Counter(max(positions) for positions in evidence.values())
    return {position: count / n_subtasks for position, count in completed.items()}


def _reason(items: list[Item], evidence: int, counted: int, n_subtasks: int) -> str:
    if n_subtasks and not evidence:
        return "no call is evidence for a sub-task, so nothing is credited"
    solved = sum(item.solved for item in items)
    return f"{solved} of {len(items)} items solved, {evidence} of {counted} counted calls used"
