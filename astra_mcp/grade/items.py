"""Which graded items are solved, and one sentence why; the sentences quote no gold.

Items are active (call, ask, answer, an end state that takes work) or passive (hold, an end state
that holds from the start). Passive ones are solved only beside a solved active one, so that an
agent that does nothing earns nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from astra_mcp.attempt import Attempt, Call, Message
from astra_mcp.grade.final_state import State, holds, holds_from_the_start
from astra_mcp.grade.models import Item, ItemKind
from astra_mcp.match import match_text
from astra_mcp.task import SubTask, Task

Json = Any
log = logging.getLogger(__name__)
Judged = tuple[bool, str]

ANSWER: Final = "answer"
FINAL_STATE: Final = "final_state"


def judge_items(
    task: Task,
    attempt: Attempt,
    evidence: Mapping[str, tuple[int, ...]],
    initial: State,
    locale: str,
) -> list[Item]:
    """Every item of the task, in its order, then the answer, then the end state."""
    judged: dict[str, Judged] = {}
    for sub in task.subtasks:
        if sub.kind == "call":
            judged[sub.id] = _call(sub, evidence)
        elif sub.kind == "ask":
            judged[sub.id] = _ask(sub, task, attempt)
    answer = _answer(task, attempt, locale)
    state = _final_state(task, attempt, initial)
    passive = task.final_state is not None and holds_from_the_start(task.final_state, initial)
    active = [*judged.values(), *([answer] if answer else [])]
    active += [state] if state and not passive else []
    did_something = any(solved for solved, _ in active)
    for sub in task.subtasks:
        if sub.kind == "hold":
            judged[sub.id] = _hold(sub, task, attempt, judged, did_something)
    if state and passive and state[0] and not did_something:
        state = (False, "nothing was done, and the end state held from the start")
    items = [_item(sub.id, sub.kind, judged[sub.id]) for sub in task.subtasks]
    items += [_item(ANSWER, "answer", answer)] if answer else []
    items += [_item(FINAL_STATE, "final_state", state)] if state else []
    return items


def forbidden(sub: SubTask, call: Call) -> bool:
    """Whether a call is one that the item forbids; a refused or failed attempt is one too."""
    return call.tool in sub.forbid and call.origin != "distractor"


def _item(item_id: str, kind: ItemKind, judged: Judged) -> Item:
    return Item(id=item_id, kind=kind, solved=judged[0], why=judged[1])


def _call(sub: SubTask, evidence: Mapping[str, tuple[int, ...]]) -> Judged:
    if sub.id in evidence:
        return True, "solved by the calls that name it as evidence"
    return False, "no successful call is evidence for it"


def _ask(sub: SubTask, task: Task, attempt: Attempt) -> Judged:
    asked = {turn.id for turn in task.turns if turn.opens == "asked"}
    message = next((m for m in attempt.messages if m.turn == sub.turn and m.opened in asked), None)
    if message is None:
        return False, "the user was not asked for what was missing"
    if any(forbidden(sub, call) for call in attempt.calls[: message.calls_before]):
        return False, "a tool that had to wait was called before the user was asked"
    return True, "the user was asked before anything that had to wait"


def _hold(
    sub: SubTask,
    task: Task,
    attempt: Attempt,
    judged: Mapping[str, Judged],
    did_something: bool,
) -> Judged:
    if any(forbidden(sub, call) for call in attempt.calls if call.turn == sub.turn):
        return False, "a tool that had to be left alone was called"
    if not _ended_turn(sub.turn, task, attempt):
        return False, "the agent did not end the turn by itself"
    if not did_something or not all(judged.get(a, (False, ""))[0] for a in sub.after):
        return False, "the work that comes before it was not done"
    return True, "the turn was ended without a forbidden call"


def _ended_turn(turn: str, task: Task, attempt: Attempt) -> bool:
    if any(m.turn == turn and m.opened is not None for m in attempt.messages):
        return True
    return turn == task.turns[-1].id == _latest_turn(task, attempt.messages) and bool(
        (attempt.answer or "").strip()
    )


def _latest_turn(task: Task, messages: list[Message]) -> str:
    opened = [m.opened for m in messages if m.opened is not None]
    return opened[-1] if opened else task.turns[0].id


def _answer(task: Task, attempt: Attempt, locale: str) -> Judged | None:
    if task.answer is None:
        return None
    if not (attempt.answer or "").strip():
        return False, "no answer was given"
    try:
        right = match_text(task.answer.match, task.answer.value, attempt.answer or "", locale)
    except Exception:
        # Whatever an answer makes the matcher do, it is no right answer: raising further would let
        # an agent turn a bad reward into none.
        log.exception("an answer of task %s could not be compared", task.id)
        return False, "the answer could not be compared"
    return (True, "the answer is right") if right else (False, "the answer is not accepted")


def _final_state(task: Task, attempt: Attempt, initial: State) -> Judged | None:
    if task.final_state is None:
        return None
    if holds(task.final_state, initial, attempt.final_state):
        return True, "the end state is as it should be"
    return False, "rows are missing, too many, or changed without being asked for"
