"""The append-only record of each episode on disk, and how it is folded after a restart.

One file per episode, `<episode_id>.jsonl`: a header (what was opened, the token's hash, the first
state's hash), then events in the order in which they happened, each written before anybody is told
of it; those that open or end an episode wait for the disk. A finished episode's file moves to
`finished/`, from which the oldest are deleted. An event that cannot be written whole is cut off
again and raises JournalError: what it tells of has not happened. Folding applies the journalled row
changes to the bundle's first state and compares the state hash after every call: a difference, a
gap or an unknown event means the episode is `corrupt` and has no reward. A torn last line is what a
kill leaves: it was never acknowledged and is dropped. No sealed value is written: turns stand as
ids, grades hold no expected value.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import orjson

from astra_mcp.attempt import Call
from astra_mcp.bundle import State
from astra_mcp.canonical import state_hash
from astra_mcp.errors import JournalError, UsageError
from astra_mcp.world import apply_changes

Json = Any
SUFFIX: Final = ".jsonl"
FINISHED: Final = "finished"
#: Longest wait for the disk, in seconds.
COMMIT_S: Final = 30.0
LOCK: Final = ".lock"
SALT: Final = ".salt"
_ID: Final = re.compile(r"ep_[0-9a-f]{24}")


class CorruptJournal(ValueError):
    """A journal that does not fold; internal to the host, which marks the episode corrupt."""


class JournalFile:
    """Appends events of one episode; every event is one write.

    Raises:
        JournalError: the file cannot be opened.
    """

    def __init__(self, path: Path, finished: Path, *, new: bool) -> None:
        self.path = path
        self._finished = finished
        self._fd = -1
        only = os.O_CREAT | os.O_EXCL if new else 0
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | only, 0o600)
            self._size = self._before = os.fstat(self._fd).st_size
        except OSError as error:
            self.close()
            raise _unwritable(error) from error
        self._new = new
        self._broken = False

    def append(self, event: Mapping[str, Json]) -> None:
        """Write one event.

        Raises:
            JournalError: it could not be written whole; the file is as before.
        """
        if self._broken:
            raise JournalError(
                "This episode's journal is broken.", "Look into the server's log, then restart it."
            )
        self._before = self._size
        line = orjson.dumps(event) + b"\n"
        try:
            while line:
                written = os.write(self._fd, line)
                self._size += written
                line = line[written:]
        except OSError as error:
            self._cut_back()
            raise _unwritable(error) from error

    async def commit(self) -> None:
        """Wait until the last event is on the disk.

        Raises:
            JournalError: it may not be there; the file is as before it.
        """
        try:
            with anyio.fail_after(COMMIT_S):
                await anyio.to_thread.run_sync(self._to_disk, abandon_on_cancel=True)
        except TimeoutError as error:
            self._broken = True  # nobody can say what is on the disk
            raise JournalError(
                f"The disk of the journals did not answer within {COMMIT_S:g} s.",
                "Mend the disk, then restart the host.",
            ) from error
        except OSError as error:
            self._cut_back()
            raise _unwritable(error) from error

    def _to_disk(self) -> None:
        os.fsync(self._fd)
        if self._new:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._new = False

    def _cut_back(self) -> None:
        """Take the last event off again, so that the next one does not follow half a line."""
        try:
            os.ftruncate(self._fd, self._before)
            self._size = self._before
        except OSError:
            self._broken = True

    def close(self) -> None:
        """Close the file; idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def finish(self) -> None:
        """Close the file of an episode that has ended, and put it with the finished ones."""
        self.close()
        try:
            os.rename(self.path, self._finished / self.path.name)
        except OSError:
            return  # it is found where it is at the next start

    def discard(self) -> None:
        """Close and delete the file of an episode that was never opened."""
        self.close()
        self.path.unlink(missing_ok=True)


class MemoryJournal:
    """No folder was given: events are dropped."""

    def append(self, event: Mapping[str, Json]) -> None:
        """Drop the event."""

    async def commit(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to close."""

    finish = discard = close


class JournalFolder:
    """The folder of all journals; None as a path keeps nothing.

    One host at a time: a lock on the folder is held until `close`, and goes with its process.

    Raises:
        UsageError: another host uses the folder, or it cannot be used.
    """

    def __init__(self, path: Path | None, keep: int = 100_000) -> None:
        self.path = path
        self._keep = keep
        self._lock = -1
        self._salt = secrets.token_bytes(32)
        if path is None:
            return
        try:
            (path / FINISHED).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._salt = _kept_salt(path / SALT, self._salt)
        except OSError as error:
            self.close()
            taken = isinstance(error, BlockingIOError)
            why = "another host uses it" if taken else (error.strerror or "it cannot be opened")
            raise UsageError(
                f"The journal folder {path} cannot be used: {why}.",
                "Stop the other host, or give each its own folder that it may write to.",
            ) from error

    def close(self) -> None:
        """Let another host have the folder."""
        fd, self._lock = self._lock, -1
        if fd >= 0:
            os.close(fd)

    @property
    def salt(self) -> bytes:
        """Random bytes that stay the same as long as the folder does."""
        return self._salt

    def open(self, episode_id: str, *, new: bool) -> JournalFile | MemoryJournal:
        """The journal of an episode, new or continued.

        Raises:
            JournalError: it cannot be opened, or there is one already though it should be new.
        """
        if self.path is None:
            return MemoryJournal()
        return JournalFile(self.path / f"{episode_id}{SUFFIX}", self.path / FINISHED, new=new)

    def unfinished(self) -> Iterator[Path]:
        """Journals of episodes that had not ended, or had just done so."""
        if self.path is not None:
            yield from sorted(self.path.glob(f"*{SUFFIX}"))

    def find(self, episode_id: str) -> Path | None:
        """The journal of a finished episode that is no longer in memory."""
        if self.path is None or not _ID.fullmatch(episode_id):
            return None
        path = self.path / FINISHED / f"{episode_id}{SUFFIX}"
        return path if path.exists() else None

    def recent(self, seconds: float, most: int) -> list[Path]:
        """Finished journals of the last `seconds`, newest first."""
        since = time.time() - seconds
        return [path for changed, path in reversed(self._by_age()) if changed >= since][:most]

    def prune(self) -> int:
        """Delete the oldest finished journals beyond those that are kept; how many."""
        old = self._by_age()
        for _, path in old[: max(0, len(old) - self._keep)]:
            path.unlink(missing_ok=True)
        return max(0, len(old) - self._keep)

    def _by_age(self) -> list[tuple[float, Path]]:
        if self.path is None:
            return []
        with os.scandir(self.path / FINISHED) as entries:
            found = [
                (entry.stat().st_mtime, entry.path)
                for entry in entries
                if entry.name.endswith(SUFFIX)
            ]
        return [(changed, Path(path)) for changed, path in sorted(found)]


def _kept_salt(path: Path, fresh: bytes) -> bytes:
    """The folder's salt, made now when it has none."""
    if path.exists() and len(kept := path.read_bytes()) == len(fresh):
        return kept
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(fresh)
    temporary.chmod(0o600)
    temporary.replace(path)
    return fresh


def _unwritable(error: OSError) -> JournalError:
    return JournalError(
        f"The episode's journal cannot be written: {error.strerror}.",
        "Nothing was changed. Make room or mend the disk, then send the request again.",
    )


@dataclass(frozen=True)
class Saved:
    """A journal as read: its header, its whole events, and whether a torn line was dropped."""

    header: dict[str, Json]
    events: list[dict[str, Json]]
    torn: bool

    @property
    def ended(self) -> bool:
        """Whether the episode had ended."""
        return any(event["event"] in ("submit", "end") for event in self.events)


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


def drop_unopened(path: Path) -> bool:
    """Delete a journal whose header a kill cut short: nobody was told of its episode."""
    with path.open("rb") as file:
        if b"\n" in file.read(1 << 20):
            return False
    path.unlink()
    return True


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


def fold_far(first: Mapping[str, State], events: list[dict[str, Json]]) -> dict[str, State]:
    """The state of each far distractors' world after every journalled call.

    Raises:
        CorruptJournal: a recorded hash is not that of the state.
    """
    states = dict(first)
    for event in events:
        if (far := event.get("far")) is None:
            continue
        try:
            ref = far["ref"]
            if far["changes"]:
                states[ref] = apply_changes(states[ref], far["changes"])
            if far["state_after"] != state_hash(states[ref]):
                raise CorruptJournal("a far distractor's world is in another state")
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptJournal(f"a far call does not fold: {error}") from error
    return states
