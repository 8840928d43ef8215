"""Tasks as data: turns, golden plan, sub-tasks with evidence, expected answer, final state.

Everything here is sealed: it stands in sealed/tasks.jsonl, in the grader, and in private records,
never in a byte served to an agent. Models are frozen; `Task` checks that every reference resolves
(steps, turns, sub-tasks, expressions) and that no expected value is empty. What needs the world
(do the tools exist?) is checked by `astra_mcp.bundle.Bundle`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from astra_mcp.errors import AstraError
from astra_mcp.expr import arg_refs, compile_expr
from astra_mcp.match import Matcher, check_gold
from astra_mcp.match.models import Strict

Json = Any
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{1,47}$")]


class Expect(Strict):
    """A value, how it follows from the golden steps, and how an answer is compared with it."""

    value: Json
    expr: str | None = None
    """JMESPath over {step id: result of that step}; None when the value is given, not derived."""
    match: Matcher
    accept: list[str] = []
    """Phrasings that must be accepted."""
    reject: list[str] = []
    """Near misses that must be refused."""

    @model_validator(mode="after")
    def _gold_is_usable(self) -> Self:
        try:
            check_gold(self.match, self.value)
            if self.expr is not None:
                compile_expr(self.expr)
        except AstraError as error:
            raise ValueError(str(error)) from error
        return self


class Turn(Strict):
    """One message of the user."""

    id: Name
    say: str = Field(min_length=1)
    opens: Literal["start", "asked", "next"] = "start"
    """`start`: the first message. `asked`: given when the agent asks for `slot`. `next`: given
    when the agent has ended the turn before."""
    slot: str | None = None
    slot_values: list[Json] = []
    ask_words: list[str] = []
    """Any one of them, as whole words in a message of the agent, counts as asking."""
    hide: list[Name] = []
    """Tools not served while this turn is the latest."""


class Step(Strict):
    """One call of the golden plan."""

    id: Name
    turn: Name = "u1"
    tool: Name
    args: dict[str, Json]
    """Leaves may be {"$expr": "<JMESPath over earlier steps>"}."""
    reasoned: list[Name] = []
    """Literal arguments that the agent has to work out (a date, a rounding)."""


class CallPattern(Strict):
    """What a call must look like to count: tool, some arguments, a projection of its result.

    `select` is JMESPath over {"result": ..., "args": ...}; what it gives is compared, by `match`,
    with the sub-task's expected value. Without `select` a successful call with `where` is enough.
    """

    tool: Name
    where: dict[str, Json] = {}
    select: str | None = None
    match: Matcher | None = None


class SubTask(Strict):
    """One graded item of the plan.

    `call`: solved by evidence. `ask`: solved when the agent asked for what was missing and had
    called none of `forbid` before. `hold`: solved when the agent ended `turn` without calling any
    of `forbid` in it.
    """

    id: Name
    kind: Literal["call", "ask", "hold"] = "call"
    ask: str
    turn: Name = "u1"
    after: list[Name] = []
    steps: list[Name] = []
    expect: Expect | None = None
    evidence: list[list[CallPattern]] = []
    """Any one conjunction of patterns; empty means the golden calls of `steps`."""
    forbid: list[Name] = []


class RowCheck(Strict):
    """Exactly `count` rows of `table` hold these column values."""

    table: str
    where: dict[str, Json] = Field(min_length=1)
    count: int = Field(default=1, ge=0)


class FinalState(Strict):
    """The end state: named rows exist exactly n times and, by default, nothing else changed."""

    rows: list[RowCheck] = []
    others_unchanged: bool = True
    ignore: list[str] = []
    """"table" or "table.column"."""


class Difficulty(Strict):
    """What the task asks for, measured on its plan (`astra_mcp.difficulty`)."""

    level: Annotated[int, Field(ge=1, le=5)]
    hops: int
    steps: int
    width: int
    turns: int
    writes: int
    tools: int
    features: list[str] = []


class Task(Strict):
    """One task posed in a world."""

    id: Name
    title: str
    turns: list[Turn] = Field(min_length=1)
    plan: list[Step]
    subtasks: list[SubTask]
    answer: Expect | None
    final_state: FinalState | None = None
    tolerated: list[CallPattern] = []
    """Calls that neither help nor count against precision."""
    distractors: list[Name] = []
    difficulty: Difficulty
    max_calls: int = Field(ge=1)

    @model_validator(mode="after")
    def _references_resolve(self) -> Self:
        try:
            self._check_references()
        except AstraError as error:
            raise ValueError(str(error)) from error
        return self

    def _check_references(self) -> None:
        _check_turns(self.turns)
        turns = [turn.id for turn in self.turns]
        steps = _check_plan(self.plan, turns)
        _check_subtasks(self.subtasks, steps, turns)
        if self.answer is None and self.final_state is None:
            raise ValueError("a task needs an answer or a final state to be graded by")
        if self.answer is not None and self.answer.expr is not None:
            _check_refs("answer", compile_expr(self.answer.expr).refs, steps)


def _unique(what: str, ids: list[str]) -> None:
    if len(ids) != len(set(ids)):
        raise ValueError(f"{what} ids must be unique, got {ids}")


def _check_turns(turns: list[Turn]) -> None:
    _unique("turn", [turn.id for turn in turns])
    if turns[0].opens != "start" or any(turn.opens == "start" for turn in turns[1:]):
        raise ValueError("the first turn, and no other, opens with 'start'")
    for turn in turns:
        if turn.opens == "asked" and not turn.ask_words:
            raise ValueError(f"turn {turn.id}: opens when asked, so it needs ask_words")


def _check_refs(where: str, refs: frozenset[str] | set[str], steps: list[str]) -> None:
    if bad := sorted(refs - set(steps)):
        raise ValueError(f"{where}: refers to {bad}, which are not earlier steps")


def _check_plan(plan: list[Step], turns: list[str]) -> list[str]:
    seen: list[str] = []
    for step in plan:
        if step.turn not in turns:
            raise ValueError(f"step {step.id}: unknown turn {step.turn}")
        _check_refs(f"step {step.id}", arg_refs(step.args), seen)
        if bad := sorted(set(step.reasoned) - set(step.args)):
            raise ValueError(f"step {step.id}: reasoned arguments {bad} are not arguments of it")
        seen.append(step.id)
    _unique("step", seen)
    return seen


def _check_subtasks(subtasks: list[SubTask], steps: list[str], turns: list[str]) -> None:
    known: list[str] = []
    owned: set[str] = set()
    for item in subtasks:
        where = f"sub-task {item.id}"
        if bad := [a for a in item.after if a not in known]:
            raise ValueError(f"{where}: after {bad}, which are not earlier sub-tasks")
        if bad := [s for s in item.steps if s not in steps]:
            raise ValueError(f"{where}: unknown steps {bad}")
        if item.turn not in turns:
            raise ValueError(f"{where}: unknown turn {item.turn}")
        if item.kind == "call" and not (item.steps or item.evidence):
            raise ValueError(f"{where}: a call sub-task needs steps or evidence")
        if item.kind != "call" and (item.steps or item.evidence):
            raise ValueError(f"{where}: only a call sub-task has steps and evidence")
        if item.expect is not None and item.expect.expr is not None:
            _check_refs(where, compile_expr(item.expect.expr).refs, steps)
        for pattern in (p for conjunction in item.evidence for p in conjunction):
            if pattern.select is not None:
                compile_expr(pattern.select)
                if item.expect is None:
                    raise ValueError(f"{where}: evidence with select needs an expected value")
        owned.update(item.steps)
        known.append(item.id)
    _unique("sub-task", known)
    if missing := sorted(set(steps) - owned):
        raise ValueError(f"steps without a sub-task: {missing}")
