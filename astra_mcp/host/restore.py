"""Bringing episodes back after a restart: fold every journal, compare hashes, or say `corrupt`.

An open episode comes back open with its state, its turn and its answers to repeated requests; its
token stays valid. One whose journal does not fold comes back `corrupt` with a null reward; a file
that is no journal of a served bundle is reported and left alone. Finished episodes are read when
somebody asks for them. Nothing here starts a process, so that a thousand episodes come back in
seconds: workers start at the first call, golden runs at the answer. Nothing here ever grades.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio.lowlevel

from astra_mcp.attempt import Golden
from astra_mcp.bundle import State
from astra_mcp.episode import Episode
from astra_mcp.episode_data import EpisodeSpec, FarTool, now_s
from astra_mcp.errors import AstraError, EpisodeError
from astra_mcp.host.catalog import Entry
from astra_mcp.host.episodes import Episodes, Live, split_task, task_of
from astra_mcp.host.journal import (
    CorruptJournal,
    JournalFile,
    MemoryJournal,
    Saved,
    drop_unopened,
    fold_far,
    fold_state,
    read_journal,
)
from astra_mcp.host.requests import fingerprint
from astra_mcp.task import Task

Json = Any
log = logging.getLogger("astra_mcp.host")
#: An agent may ask again how its submission went for so long after it, across a restart, too.
AGAIN_S: Final = 600.0
AGAIN_MOST: Final = 256


async def restore(episodes: Episodes) -> dict[str, int]:
    """Fold every journal of an episode that had not ended.

    Returns:
        How many episodes came back {"open", "ended", "corrupt"}, and how many files were
        "unreadable".
    """
    counts = {"open": 0, "ended": 0, "corrupt": 0, "unreadable": 0}
    for path in episodes.journals.unfinished():
        counts[await _restore_one(episodes, path)] += 1
        await anyio.lowlevel.checkpoint()
    for path in reversed(episodes.journals.recent(AGAIN_S, AGAIN_MOST)):
        await _remember_submission(episodes, path)
    episodes.journals.prune()
    return counts


async def read_finished(episodes: Episodes, path: Path) -> None:
    """Bring one finished episode back to memory.

    Raises:
        EpisodeError: its journal cannot be read with what is served now.
    """
    try:
        found = await _found(episodes, read_journal(path))
        if not found.saved.ended:
            raise CorruptJournal("it has no end")
    except (CorruptJournal, KeyError, ValueError, AstraError, OSError) as error:
        raise EpisodeError(
            f"The journal of this episode cannot be read: {_short(error)}.",
            "Serve the bundle that it was played in.",
        ) from error
    episodes.settle(await _resume(episodes, found, MemoryJournal()))


async def _remember_submission(episodes: Episodes, path: Path) -> None:
    """Read a finished episode whose agent submitted the answer itself and may ask again."""
    try:
        saved = read_journal(path)
        if any(event.get("call_id") for event in saved.events if event["event"] == "submit"):
            await read_finished(episodes, path)
    except (CorruptJournal, EpisodeError, OSError) as error:
        log.error("journal %s cannot be read: %s", path.name, _short(error))


@dataclass(frozen=True)
class _Found:
    """A journal with what it is about, as served now."""

    saved: Saved
    spec: EpisodeSpec
    entry: Entry
    task: Task


async def _found(episodes: Episodes, saved: Saved) -> _Found:
    spec = EpisodeSpec.model_validate(saved.header["spec"])
    ref, task_id = split_task(spec.task)
    entry = await episodes.catalog.load(episodes.catalog.resolve(ref))
    if saved.ended and spec.digest != entry.bundle.digest:
        raise CorruptJournal("the bundle has changed since")
    return _Found(saved, spec, entry, task_of(entry, task_id))


async def _restore_one(episodes: Episodes, path: Path) -> str:
    try:
        if drop_unopened(path):
            return "unreadable"
        found = await _found(episodes, read_journal(path))
        journal = episodes.journals.open(found.spec.episode_id, new=False)
    except (CorruptJournal, KeyError, ValueError, AstraError, OSError) as error:
        log.error("journal %s cannot be restored: %s", path.name, _short(error))
        return "unreadable"
    live = await _resume(episodes, found, journal)
    status = live.episode.status
    episodes.settle(live)
    return status if status in ("open", "corrupt") else "ended"


async def _resume(episodes: Episodes, found: _Found, journal: JournalFile | MemoryJournal) -> Live:
    """Register the episode as its journal tells it; corrupt when that does not fold."""
    saved, spec, entry = found.saved, found.spec, found.entry
    entry.users += 1
    folded = _Folded(entry.bundle.state, [entry])
    problem: str | None = None
    try:
        await _fold(episodes, found, folded)
    except (CorruptJournal, AstraError) as error:
        problem = _short(error)
    episode = Episode(
        spec,
        entry.bundle,
        found.task,
        None,
        await entry.world.open(folded.state),
        folded.far,
        journal,
        find_golden=lambda: _golden(episodes, spec),
        far_states=folded.far_states,
        max_waiting=episodes.settings.max_waiting_calls,
    )
    now = now_s()
    tokens = [str(saved.header.get("token_hash", ""))]
    opened_as = str(saved.header.get("request", ""))
    live = Live(episode, journal, tokens, now, now, opened_as, folded.entries)
    if problem is None:
        problem = _replay(live, saved.events)
    episodes.resume(live)
    if problem is not None:
        await episode.mark_corrupt(f"its journal does not fold ({problem})")
    return live


@dataclass
class _Folded:
    """What folding gave so far, and the bundles that are held for it."""

    state: State
    entries: list[Entry]
    far: dict[str, FarTool] = field(default_factory=dict)
    far_states: dict[str, State] = field(default_factory=dict)


async def _fold(episodes: Episodes, found: _Found, folded: _Folded) -> None:
    """Fill `folded`.

    Raises:
        CorruptJournal: something is not as it was.
        AstraError: a far distractor's bundle is not served any more.
    """
    saved, spec, entry = found.saved, found.spec, found.entry
    if spec.digest != entry.bundle.digest:
        raise CorruptJournal("the bundle has changed since")
    if saved.header.get("first_state") != entry.world.first_hash:
        raise CorruptJournal("the first state has changed since")
    folded.state = fold_state(entry.bundle.state, saved.events)
    if saved.ended:
        return  # nobody will call a distractor again
    worlds = saved.header.get("far_worlds", {})
    held: dict[str, Entry] = {}
    for item in spec.far:
        ref, _, name = item.rpartition("#")
        if ref not in held:
            other = await episodes.catalog.load(episodes.catalog.resolve(ref))
            other.users += 1
            held[ref] = other
            folded.entries.append(other)
        world = held[ref].world
        if world.world_digest != worlds.get(ref) or name not in world.tools:
            raise CorruptJournal("a far distractor has changed since")
        folded.far[name] = FarTool(world.tools[name], world)
    firsts = {ref: other.world.first_state for ref, other in held.items()}
    folded.far_states = fold_far(firsts, saved.events)


async def _golden(episodes: Episodes, spec: EpisodeSpec) -> Golden:
    """The golden run of an episode's task, in the world that it was opened in."""
    ref, task_id = split_task(spec.task)
    async with episodes.catalog.held(episodes.catalog.resolve(ref)) as entry:
        if entry.bundle.digest != spec.digest:
            raise EpisodeError("The bundle has changed since.", "Open a new episode.")
        return await entry.golden_run(task_of(entry, task_id))


def _replay(live: Live, events: Sequence[Mapping[str, Json]]) -> str | None:
    """Fold the events into the record; gives what did not fit, if anything."""
    for event in events:
        try:
            if event["event"] == "token":
                live.tokens.append(str(event["token_hash"]))
                continue
            answer = live.episode.replay_event(event)
            _remember(live, event, answer)
        except (KeyError, ValueError, TypeError, AstraError) as error:
            return _short(error)
    return None


def _remember(live: Live, event: Mapping[str, Json], answer: dict[str, Json] | None) -> None:
    request_id = event.get("request_id")
    if not request_id or answer is None:
        return
    episode_id = live.episode.spec.episode_id
    if event["event"] == "message":
        key = fingerprint("post_message", episode_id, event["message"]["text"])
    elif event["event"] == "submit":
        key = fingerprint("submit_answer", episode_id, event["answer"])
    else:
        key = fingerprint("close_episode", episode_id)
    live.requests.remember(request_id, key, answer)


def _short(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
