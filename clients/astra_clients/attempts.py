"""The exact attempt inside a record: what `astra regrade` needs to grade it again.

Beside the calls, whose state hashes stand with them, a record's optional field `attempt` holds the
messages to the user, the user turns that were opened, the answer, the changed rows, and the hash of
the state at the end. `check` is a hash over all of that: a record that was edited is noticed, and
so is one whose rows do not add up to its state hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from astra_clients.control import EpisodeView
from astra_mcp.attempt import Attempt, Call, Message
from astra_mcp.bundle import State
from astra_mcp.canonical import state_hash
from astra_mcp.errors import RecordingError
from astra_mcp.settings import MAX_STATE_BYTES
from astra_mcp.world import apply_changes

Json = Any
_CALL: Final = (
    "index", "turn", "tool", "args", "result", "failure", "fault", "origin", "state_before",
    "state_after", "seconds",
)  # fmt: skip
#: What an attempt cannot be moved away from: another one of these would be another attempt.
_WHOSE: Final = ("task", "digest", "world_digest", "episode_id", "seed", "agent")
_REMEDY: Final = "Collect this episode again."


def attempt_fields(record: Mapping[str, Json], view: EpisodeView | None) -> dict[str, Json]:
    """The field `attempt` of a new record; nothing when the host did not tell."""
    told = view.record.get("attempt") if view else None
    if view is None or not told:
        return {}
    attempt = {"status": view.status, "reason": view.reason, **told}
    return sealed_attempt(record, attempt)


def sealed_attempt(record: Mapping[str, Json], attempt: Mapping[str, Json]) -> dict[str, Json]:
    """The field `attempt` with its `check`."""
    fields = {key: value for key, value in attempt.items() if key != "check"}
    return {"attempt": fields | {"check": _check(record, fields)}}


def _check(record: Mapping[str, Json], attempt: Mapping[str, Json]) -> str:
    calls = [{key: call[key] for key in _CALL} for call in record["calls"]]
    whose = [record[key] for key in _WHOSE]
    return state_hash([whose, calls, attempt])


def attempt_of(record: Mapping[str, Json]) -> Mapping[str, Json]:
    """The field `attempt` of a record, verified.

    Raises:
        RecordingError: there is none, or the record was changed.
    """
    attempt = record.get("attempt")
    if not isinstance(attempt, dict):
        raise RecordingError("the record does not hold the exact attempt", _REMEDY)
    fields = {key: value for key, value in attempt.items() if key != "check"}
    try:
        if attempt["check"] == _check(record, fields):
            return attempt
    except (KeyError, TypeError):
        pass
    raise RecordingError("the record is not what the collector wrote", _REMEDY)


def calls_of(record: Mapping[str, Json]) -> list[Call]:
    """The calls as the grader takes them.

    Raises:
        ValueError: one is no call.
    """
    return [Call.model_validate({key: call[key] for key in _CALL}) for call in record["calls"]]


def messages_of(attempt: Mapping[str, Json]) -> list[Message]:
    """The agent's messages to the user.

    Raises:
        ValueError: one is no message.
    """
    return [Message.model_validate(message) for message in attempt["messages"]]


def as_recorded(record: Mapping[str, Json], attempt: Mapping[str, Json], first: State) -> Attempt:
    """The attempt as it was made in the world with the first state `first`.

    Raises:
        RecordingError: the recorded changes do not lead from `first` to the recorded hashes.
    """
    try:
        calls = calls_of(record)
        # Those of all calls together, so the limit of one call does not apply.
        final = apply_changes(first, attempt["changes"], 2 * MAX_STATE_BYTES)
        _check_states(calls, state_hash(first), state_hash(final))
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(
            f"the record does not fold: {str(error).splitlines()[0]}", _REMEDY
        ) from error
    return Attempt(
        calls=calls,
        messages=messages_of(attempt),
        answer=attempt["answer"],
        final_state={table: dict(rows) for table, rows in final.items()},
        seed=record["seed"],
    )


def _check_states(calls: list[Call], first: str, last: str) -> None:
    current = first
    for number, call in enumerate(calls):
        if call.index != number or call.state_before != current:
            raise ValueError(f"call {number} starts from another state")
        current = call.state_after
    if current != last:
        raise ValueError("the changed rows are not those of the last state")
