"""The append-only record of each episode on disk, and how it is folded after a restart.

One file per episode, `<episode_id>.jsonl`: a header (what was opened, the token's hash, the first
state's hash), then events in the order in which they happened, each written before anybody is told
of it. Folding applies the journalled row changes to the bundle's first state and compares the state
hash after every call: a difference, a gap or an unknown event means the episode is `corrupt` and
has no reward. A torn last line is what a kill leaves: it was never acknowledged and is dropped.
No sealed value is written: turns stand as ids, grades hold no expected value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from astra_mcp.attempt import Call
from astra_mcp.bundle import State
from astra_mcp.canonical import state_hash
from astra_mcp.world import apply_changes

Json = Any
SUFFIX: Final = ".jsonl"


class CorruptJournal(ValueError):
    """A journal that does not fold; internal to the host, which marks the episode corrupt."""


class JournalFile:
    """Appends events of one episode; every event is one write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, event: Mapping[str, Json], durable: bool = False) -> None:
        """Write one event, and wait for the disk when `durable`."""
        line = orjson.dumps(event) + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]
        if durable:
            os.fsync(self._fd)

    def close(self) -> None:
        """Close the file; idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class MemoryJournal:
    """No folder was given: events are dropped."""

    def append(self, event: Mapping[str, Json], durable: bool = False) -> None:
        """Drop the event."""

    def close(self) -> None:
        """Nothing to close."""


class JournalFolder:
    """The folder of all journals; None as a path keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is not None:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def open(self, episode_id: str) -> JournalFile | MemoryJournal:
        """The journal of an episode, new or continued."""
        if self.path is None:
            return MemoryJournal()
        return JournalFile(self.path / f"{episode_id}{SUFFIX}")

    def saved(self) -> Iterator[Path]:
        """Every journal in the folder, oldest name first."""
        if self.path is not None:
            yield from sorted(self.path.glob(f"*{SUFFIX}"))


@dataclass(frozen=True)
class Saved:
    """A journal as read: its header, its whole events, and whether a torn line was dropped."""

    header: dict[str, Json]
    events: list[dict[str, Json]]
    torn: bool


def read_journal(path: Path) -> Saved:
    """Read a journal and cut off a torn last line.

    Raises:
        CorruptJournal: a whole line is no JSON object, or there is no header.
    """
    raw = path.read_bytes()
    whole, _, rest = raw.rpartition(b"\n")
    if rest:
        with path.open("r+b") as file:
            file.truncate(len(raw) - len(rest))
    lines = whole.split(b"\n") if whole else []
    try:
        parsed = [orjson.loads(line) for line in lines]
    except orjson.JSONDecodeError as error:
        raise CorruptJournal("a line is no JSON") from error
    if not parsed or any(not isinstance(event, dict) or "event" not in event for event in parsed):
        raise CorruptJournal("a line is no event")
    if parsed[0]["event"] != "open":
        raise CorruptJournal("the header is missing")
    return Saved(parsed[0], parsed[1:], bool(rest))


def fold_state(first: State, events: list[dict[str, Json]]) -> State:
    """The state after every journalled call.

    Raises:
        CorruptJournal: a recorded hash is not that of the state.
    """
    state, current = first, state_hash(first)
    for event in events:
        if event["event"] != "call":
            continue
        try:
            call = Call.model_validate(event["call"])
            if call.state_before != current:
                raise CorruptJournal(f"call {call.index} starts from another state")
            if event["changes"]:
                state = apply_changes(state, event["changes"])
                current = state_hash(state)
        except (KeyError, ValueError) as error:
            raise CorruptJournal(str(error)) from error
        if call.state_after != current:
            raise CorruptJournal(f"call {call.index} ends in another state")
    return state
