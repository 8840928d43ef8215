"""Saved trajectories graded again by newer bundles, offline: `astra regrade`.

Where only tasks changed, the recorded attempt is graded as it is. Where the world changed, the
recorded calls are made again in it first; when one gives something else, the agent would have acted
on something else, so there is no reward unless the caller wants the calls graded as they are. The
golden run is always the newer task's, made in the sandbox. A record that cannot be graded again
keeps everything and gets a null reward with the reason; its old reward stands in `regraded_from`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from astra_clients.attempts import (
    as_recorded,
    attempt_of,
    calls_of,
    messages_of,
    sealed_attempt,
)
from astra_clients.regrade.conversation import flow_problem, hidden_problem, wording_notes
from astra_clients.regrade.rerun import Rerun, rerun
from astra_mcp import __version__
from astra_mcp.attempt import Attempt, Call, Golden
from astra_mcp.bundle import Bundle
from astra_mcp.canonical import state_hash
from astra_mcp.errors import AstraError, RecordingError, UsageError
from astra_mcp.golden import run_plan
from astra_mcp.grade import Grade, grade, no_grade
from astra_mcp.sandbox import Sandbox, SandboxSettings
from astra_mcp.store import find_bundles, load_bundle
from astra_mcp.task import Task
from astra_mcp.world import BundleWorld, changes_between

__all__ = ["Regrader", "regrader"]

Json = Any
Record = Mapping[str, Json]
#: Why an episode with an answer may have no grade; a mended grader can give it one.
GRADER_FAILED: Final = "the grader failed"
_NEWER: Final = "Name the newer bundle with --bundles."


@dataclass
class _Known:
    """A newer bundle with its world and golden runs."""

    bundle: Bundle
    world: BundleWorld
    golden: dict[str, Golden] = field(default_factory=dict)

    async def golden_run(self, task: Task) -> Golden:
        if task.id not in self.golden:
            self.golden[task.id] = await run_plan(self.world, task, self.bundle.digest)
        return self.golden[task.id]


@dataclass
class _New:
    """What a record becomes: the attempt that was graded, and how it came about."""

    attempt: Attempt
    mode: str
    notes: list[str]
    differ: list[int]


class Regrader:
    """Grades records again by the bundles that it knows.

    Args:
        bundles: The newer bundles by id.
        open_loop: Grade calls that give other results in a newer world all the same.
    """

    def __init__(self, bundles: Mapping[str, _Known], open_loop: bool) -> None:
        self._bundles = bundles
        self._open_loop = open_loop

    async def regrade(self, record: Record) -> dict[str, Json]:
        """The record with a new grade, or with a null reward and the reason."""
        try:
            attempt = attempt_of(record)
            if attempt["status"] != "graded" and attempt["reason"] != GRADER_FAILED:
                raise RecordingError(f"the episode was {attempt['status']}, not graded")
            known, task = self._task(record)
            new = await self._attempt(record, attempt, known, task)
            result = _grade(known.bundle, task, await known.golden_run(task), new.attempt)
            return _graded(record, attempt, known.bundle, task, new, result)
        except AstraError as error:
            return _not_graded(record, error.message.rstrip("."))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return _not_graded(record, f"the record has another form ({type(error).__name__})")

    def _task(self, record: Record) -> tuple[_Known, Task]:
        ref, _, task_id = record["task"].rpartition("#")
        known = self._bundles.get(ref.partition("@")[0])
        if known is None:
            raise RecordingError(f"no bundle {ref.partition('@')[0]} was given", _NEWER)
        try:
            return known, known.bundle.task(task_id)
        except KeyError:
            raise RecordingError(f"{known.bundle.ref} has no task {task_id}", _NEWER) from None

    async def _attempt(
        self, record: Record, attempt: Mapping[str, Json], known: _Known, task: Task
    ) -> _New:
        """The attempt to grade.

        Raises:
            RecordingError: the record is no attempt at this task in this world.
        """
        try:
            messages, calls = messages_of(attempt), calls_of(record)
        except ValueError as error:
            raise RecordingError("a call or message of the record has no valid form") from error
        if (problem := flow_problem(task, messages, calls)) is not None:
            raise RecordingError(problem)
        notes = wording_notes(task, attempt["turns"])
        if record["world_digest"] == known.bundle.world_digest:
            problem = hidden_problem(task, calls, set(known.world.tools))
            if problem is not None:
                raise RecordingError(problem)
            made = as_recorded(record, attempt, known.bundle.state)
            return _New(made, "as recorded", notes, [])
        again = await rerun(known.world, task, calls)
        if again.differ and not self._open_loop:
            which = ", ".join(map(str, again.differ[:20]))
            raise RecordingError(f"calls give other results in the newer world: {which}")
        made = Attempt(
            calls=again.calls,
            messages=messages,
            answer=attempt["answer"],
            final_state=_plain(again),
            seed=record["seed"],
        )
        return _New(made, "calls made again", notes, again.differ)


def _grade(bundle: Bundle, task: Task, golden: Golden, attempt: Attempt) -> Grade:
    """The grade.

    Raises:
        RecordingError: the grader failed: better no reward than a wrong one.
    """
    try:
        return grade(
            task,
            golden,
            attempt,
            bundle.state,
            locale=bundle.manifest.language,
            manifest=bundle.manifest,
            digest=bundle.digest,
        )
    except AstraError:
        raise
    except Exception as error:
        raise RecordingError(f"{GRADER_FAILED} ({type(error).__name__})") from error


def _plain(again: Rerun) -> dict[str, dict[str, dict[str, Json]]]:
    return {table: dict(rows) for table, rows in again.final_state.items()}


def _from(record: Record, mode: str) -> dict[str, Json]:
    """Where a new record comes from; nothing of the old grade is lost."""
    return {
        **{key: record.get(key) for key in ("task", "digest", "world_digest", "reward", "grade")},
        "mode": mode,
        "differ": [],
        "notes": [],
        "by": __version__,
        **({"before": record["regraded_from"]} if "regraded_from" in record else {}),
    }


def _not_graded(record: Record, reason: str) -> dict[str, Json]:
    """The record without a reward; its digest stays that of the bundle it was made in."""
    result = no_grade(f"not graded again: {reason}")
    return {
        **record,
        "grade": result.model_dump(mode="json"),
        "reward": result.summary(),
        "regraded_from": _from(record, "not graded"),
    }


def _graded(
    record: Record,
    attempt: Mapping[str, Json],
    bundle: Bundle,
    task: Task,
    new: _New,
    result: Grade,
) -> dict[str, Json]:
    told = {old["index"]: old for old in record["calls"]}
    fresh = {
        **record,
        "task": f"{bundle.ref}#{task.id}",
        "digest": bundle.digest,
        "world_digest": bundle.world_digest,
        "canary": bundle.sealed.canary,
        "calls": [
            _call(told[call.index], call, result, place)
            for place, call in enumerate(new.attempt.calls)
        ],
        "grade": result.model_dump(mode="json"),
        "reward": result.summary(),
        "regraded_from": _from(record, new.mode)
        | {
            "differ": [_change(told[i], new.attempt.calls[i]) for i in new.differ],
            "notes": new.notes,
        },
    }
    made = new.attempt
    ended = {
        "status": "graded",
        "reason": result.reason,
        "changes": changes_between(bundle.state, made.final_state),
        "state_hash": state_hash(made.final_state),
    }
    return fresh | sealed_attempt(fresh, {**attempt, **ended})


def _call(told: Record, call: Call, result: Grade, place: int) -> dict[str, Json]:
    of = result.calls[place]
    return {
        **told,
        **call.model_dump(mode="json"),
        "label": of.label,
        "credit": of.credit,
        "counted": of.counted,
        "evidence_for": list(of.evidence_for),
    }


def _change(told: Record, call: Call) -> dict[str, Json]:
    now = call.model_dump(mode="json")
    keys = ("result", "failure", "origin")
    return {
        "index": call.index,
        "recorded": {key: told[key] for key in keys},
        "now": {key: now[key] for key in keys},
    }


@asynccontextmanager
async def regrader(
    paths: Sequence[Path], *, open_loop: bool = False, missing: Sequence[str] = ()
) -> AsyncIterator[Regrader]:
    """A regrader over the bundles at `paths`, with a sandbox of its own.

    Raises:
        UsageError: no bundle is named, or two have one id.
        BundleError: one does not load.
        SandboxUnavailable: a mandatory layer is missing.
    """
    if not paths:
        raise UsageError("No bundle is named.", "Name bundles with --bundles PATH.")
    loaded: dict[str, Bundle] = {}
    for path in find_bundles(paths):
        bundle = load_bundle(path)
        if bundle.manifest.id in loaded:
            raise UsageError(f"Two bundles have the id {bundle.manifest.id}.", "Name one of them.")
        loaded[bundle.manifest.id] = bundle
    sandbox = await Sandbox.start(SandboxSettings(allow_missing=frozenset(missing)))
    known = {key: _Known(b, BundleWorld.from_bundle(b, sandbox)) for key, b in loaded.items()}
    try:
        yield Regrader(known, open_loop)
    finally:
        for one in known.values():
            await one.world.aclose()
        await sandbox.aclose()
