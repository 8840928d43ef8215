"""Whether a recorded conversation would have gone the same way under a newer task. Pure.

The user of an episode follows fixed rules, so the replies to recorded messages can be computed for
any version of a task. Where another turn would have opened, or a tool would have been hidden or
shown otherwise, the recorded attempt is not an attempt at the newer task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from astra_mcp.attempt import Call, Message
from astra_mcp.rules import reply_kind
from astra_mcp.task import Task

Json = Any


def flow_problem(task: Task, messages: Sequence[Message], calls: Sequence[Call]) -> str | None:
    """Why the conversation would have gone another way, or None."""
    turn, nudges, ended = 0, 0, False
    for number, message in enumerate(messages):
        if message.turn != task.turns[turn].id:
            return f"message {number} stands in turn {message.turn}, which is another one now"
        kind = "end" if ended else reply_kind(task.turns, turn, nudges, message.text)
        opened = task.turns[turn + 1].id if kind == "user" else None
        if opened != message.opened:
            return f"message {number} would get another reply from the user now"
        turn += kind == "user"
        nudges += kind == "nudge"
        ended |= kind == "end"
    reached = {t.id for t in task.turns[: turn + 1]}
    strange = next((call for call in calls if call.turn not in reached), None)
    if strange is not None:
        return f"call {strange.index} stands in turn {strange.turn}, which is another one now"
    return None


def hidden_problem(task: Task, calls: Sequence[Call], tools: set[str]) -> str | None:
    """Why a call would have met another set of tools, or None.

    Args:
        tools: Names of the world's tools.
    """
    hidden = {turn.id: set(turn.hide) for turn in task.turns}
    for call in calls:
        shown = call.tool in tools and call.tool not in hidden[call.turn]
        if call.origin != "distractor" and shown != (call.origin == "world"):
            return f"call {call.index} uses {call.tool}, which is {_now(shown)} now"
    return None


def _now(shown: bool) -> str:
    return "served" if shown else "hidden"


def wording_notes(task: Task, turns: Sequence[Mapping[str, Json]]) -> list[str]:
    """Turns that the user words otherwise now than the agent was told."""
    says = {turn.id: turn.say for turn in task.turns}
    return [
        f"turn {turn['id']} is worded otherwise now"
        for turn in turns
        if says.get(turn["id"]) != turn["say"]
    ]
