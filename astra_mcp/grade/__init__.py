"""The grader: `Attempt` + `Task` + `Golden` -> `Grade`. Pure, deterministic, fail closed.

docs/rewards.md states every rule with worked examples that are tests. Invariants: every number
lies in 0..1; doing nothing, repeating a call or adding a useless one never pays; a reward that
cannot be computed is null (`no_grade`), never 0; nothing in a `Grade` quotes an expected value. Not
here: what an episode records (episode.py), and whether a task deserves trust (the gate).
"""

from astra_mcp.grade.models import CallGrade, Grade, Item, ItemKind, Label, no_grade
from astra_mcp.grade.score import grade

__all__ = ["CallGrade", "Grade", "Item", "ItemKind", "Label", "grade", "no_grade"]
