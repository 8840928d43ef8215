"""Recorded calls made again in a newer world, in a fresh environment in the sandbox.

Injected faults stay faults, and far distractors keep their recorded results: both are not the
world's. Every other call runs with its recorded arguments, whatever the calls before it gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from astra_mcp import errors
from astra_mcp.attempt import Call, Failure
from astra_mcp.bundle import State
from astra_mcp.canonical import state_hash
from astra_mcp.task import Task
from astra_mcp.world import Environment, Outcome, World

Json = Any
#: Failures of the machine's making; their words may name a time or a size.
_MACHINE: Final = frozenset(
    {errors.TIMEOUT, errors.MEMORY_LIMIT, errors.OUTPUT_LIMIT, errors.CRASH, errors.CONTRACT}
)


@dataclass(frozen=True)
class Rerun:
    """Calls as they go in the newer world.

    Attributes:
        calls: One for each recorded call.
        differ: Indices of calls that give something else than was recorded.
        final_state, state_hash: The state after them.
    """

    calls: list[Call]
    differ: list[int]
    final_state: State
    state_hash: str


async def rerun(world: World, task: Task, calls: Sequence[Call]) -> Rerun:
    """Make the calls again.

    Raises:
        SandboxError: the world does not load, or was lost.
    """
    environment = await world.open()
    hidden = {turn.id: set(turn.hide) for turn in task.turns}
    made: list[Call] = []
    try:
        for call in calls:
            served = call.tool in world.tools and call.tool not in hidden[call.turn]
            made.append(await _again(environment, call, served))
        return Rerun(
            made,
            [new.index for old, new in zip(calls, made, strict=True) if _differ(old, new)],
            environment.state,
            environment.state_hash,
        )
    finally:
        await environment.aclose()


async def _again(environment: Environment, call: Call, served: bool) -> Call:
    before = environment.state_hash
    if call.fault is not None or call.origin == "distractor" or not served:
        changed: dict[str, Json] = {"state_before": before, "state_after": before}
        if call.origin == "world" and call.fault is None:
            gone = Failure(code=errors.UNKNOWN_TOOL, message="no such tool")
            changed |= {"origin": "none", "result": None, "failure": gone}
        return call.model_copy(update=changed)
    outcome = await environment.call(call.tool, call.args)
    return call.model_copy(
        update={
            "origin": "world",
            "result": outcome.result,
            "failure": _failure(outcome),
            "state_before": outcome.state_before,
            "state_after": outcome.state_after,
        }
    )


def _failure(outcome: Outcome) -> Failure | None:
    if outcome.failure is None:
        return None
    return Failure(code=outcome.failure.code, message=outcome.failure.message)


def _differ(old: Call, new: Call) -> bool:
    """Whether the agent would have seen something else."""
    if state_hash(old.result) != state_hash(new.result) or old.origin != new.origin:
        return True
    if old.failure is None or new.failure is None:
        return old.failure is not new.failure
    if old.failure.code != new.failure.code:
        return True
    return old.failure.code not in _MACHINE and old.failure.message != new.failure.message
