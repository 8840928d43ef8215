"""What grading gives: a frozen `Grade` of items and calls.

It goes over the control plane and into records, so it holds no expected value and no gold.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from astra_mcp.match.models import Strict

ItemKind = Literal["call", "ask", "hold", "answer", "final_state"]
Label = Literal[
    "progress",
    "repeat",
    "idle",
    "invalid",
    "unknown_tool",
    "distractor",
    "fault",
    "premature",
    "ungrounded",
]


class Item(Strict):
    """One graded item; each weighs 1."""

    id: str
    """The sub-task's id, or `answer`, or `final_state`."""
    kind: ItemKind
    solved: bool
    why: str


class CallGrade(Strict):
    """One call of the attempt, in order."""

    index: int
    label: Label
    credit: float
    """By how much the share of solved call sub-tasks rose with this call."""
    evidence_for: list[str]
    """Sub-tasks that it is evidence for."""
    counted: bool
    """Whether it stands in the denominator of precision."""


class Grade(Strict):
    """The reward of one attempt, and where it comes from."""

    value: float | None = Field(default=None, ge=0, le=1)
    """The reward: `f1`; None means that there is none, and the sample has to be dropped."""
    reason: str
    """One sentence on how the value came about, or why there is none."""
    f1: float | None = Field(default=None, ge=0, le=1)
    recall: float | None = Field(default=None, ge=0, le=1)
    precision: float | None = Field(default=None, ge=0, le=1)
    outcome: bool | None = None
    """Whether everything is right."""
    paper_f1: float | None = Field(default=None, ge=0, le=1)
    """F1 as in arXiv 2601.21558: call sub-tasks only, over all calls; None without such."""
    items: list[Item] = Field(default=[])
    calls: list[CallGrade] = Field(default=[])
    counted_calls: int = 0
    evidence_calls: int = 0

    def summary(self) -> dict[str, Any]:
        """The numbers, without items and calls."""
        return {
            "value": self.value,
            "f1": self.f1,
            "recall": self.recall,
            "precision": self.precision,
            "outcome": self.outcome,
            "paper_f1": self.paper_f1,
            "reason": self.reason,
        }


def no_grade(reason: str) -> Grade:
    """No reward, and why: the sample is dropped, it does not count as 0."""
    return Grade(reason=reason)
