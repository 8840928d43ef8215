"""The golden run: a task's plan, run once in its real world, compared with what the task declares.

Default evidence is frozen from it, so it happens before the first attempt; a plan that does not
replay means that the task cannot be graded, and nothing papers over that. Messages name the place,
never a sealed value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from astra_mcp.attempt import Golden, GoldenStep
from astra_mcp.bundle import State
from astra_mcp.errors import ExpressionError, ReplayError
from astra_mcp.expr import bind_args, compile_expr
from astra_mcp.match import match_value
from astra_mcp.task import Expect, Task
from astra_mcp.world import Outcome, World

Json = Any


@dataclass(frozen=True)
class Replay:
    """A plan as it ran, up to its end or the first step that failed.

    Attributes:
        steps: The steps that succeeded, with bound arguments and results.
        outcomes: What each step's call gave, a failed last one included.
        final_state: The state after them.
        failed: Id of the step that failed, or None.
        problem: Why, naming no sealed value.
    """

    steps: list[GoldenStep]
    outcomes: list[Outcome]
    final_state: State
    failed: str | None = None
    problem: str = ""


async def replay(world: World, task: Task) -> Replay:
    """Run a task's golden plan once in a fresh copy of its world."""
    environment = await world.open()
    steps: list[GoldenStep] = []
    outcomes: list[Outcome] = []
    results: dict[str, Json] = {}
    try:
        for step in task.plan:
            try:
                args = bind_args(step.args, results)
            except ExpressionError as error:
                problem = f"its arguments cannot be bound: {error.message}"
                return Replay(steps, outcomes, environment.state, step.id, problem)
            outcome = await environment.call(step.tool, args)
            outcomes.append(outcome)
            if outcome.failure is not None:
                problem = f"{step.tool} fails with {outcome.failure.code}"
                return Replay(steps, outcomes, environment.state, step.id, problem)
            results[step.id] = outcome.result
            steps.append(
                GoldenStep(
                    id=step.id, tool=step.tool, turn=step.turn, args=args, result=outcome.result
                )
            )
        return Replay(steps, outcomes, environment.state)
    finally:
        await environment.aclose()


async def run_plan(world: World, task: Task, bundle_digest: str) -> Golden:
    """The golden run of a task, or an error when it is not what the task declares.

    Returns:
        Every step with bound arguments and its result, what default evidence is frozen from.

    Raises:
        ReplayError: a step fails, or a derived value differs from the declared one. The message
            names the task and the place, never a sealed value.
    """
    played = await replay(world, task)
    where = f"{world.ref}#{task.id}"
    if played.failed is not None:
        raise ReplayError(
            f"{where}, step {played.failed}: {played.problem}.",
            "Mend the plan or the tool; `astra check` shows the arguments.",
        )
    golden = Golden(digest=bundle_digest, task=task.id, steps=played.steps)
    for name, expect in declared(task):
        if (problem := derivation_problem(expect, golden.results)) is not None:
            raise ReplayError(
                f"{where}, {name}: {problem}.",
                "Run `astra check` to see both values, then mend the data or the task.",
            )
    return golden


def declared(task: Task) -> list[tuple[str, Expect]]:
    """Every expected value of a task with its name."""
    found = [(f"sub-task {s.id}", s.expect) for s in task.subtasks if s.expect is not None]
    return found + ([("answer", task.answer)] if task.answer is not None else [])


def derivation_problem(expect: Expect, results: Mapping[str, Json]) -> str | None:
    """Why an expected value does not follow from the golden results, or None when it does."""
    if expect.expr is None:
        return None
    try:
        derived = compile_expr(expect.expr).evaluate(dict(results))
    except ExpressionError:
        return "its expression cannot be evaluated on what the plan gives"
    if match_value(expect.match, expect.value, derived):
        return None
    return "the declared value is not what the plan gives"
