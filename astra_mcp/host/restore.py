"""Bringing episodes back after a restart: fold every journal, compare hashes, or say `corrupt`.

An open episode comes back open with its state, its turn and its answers to repeated requests; its
token stays valid. One whose journal does not fold comes back `corrupt` with a null reward; a file
that is no journal of a served bundle is reported and left alone. Nothing here ever grades.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from astra_mcp.attempt import Golden
from astra_mcp.bundle import State
from astra_mcp.episode import Episode, EpisodeSpec, FarTool
from astra_mcp.errors import AstraError
from astra_mcp.host.catalog import Entry
from astra_mcp.host.episodes import Episodes, Live, split_task, task_of
from astra_mcp.host.journal import CorruptJournal, Saved, fold_state, read_journal
from astra_mcp.host.requests import fingerprint
from astra_mcp.task import Task

Json = Any
log = logging.getLogger("astra_mcp.host")


async def restore(episodes: Episodes) -> dict[str, int]:
    """Fold every journal of the folder.

    Returns:
        How many episodes came back {"open", "ended", "corrupt"}, and how many files were
        "unreadable".
    """
    counts = {"open": 0, "ended": 0, "corrupt": 0, "unreadable": 0}
    for path in episodes.journals.saved():
        counts[await _restore_one(episodes, path)] += 1
    episodes.restored()
    return counts


async def _restore_one(episodes: Episodes, path: Path) -> str:
    try:
        saved = read_journal(path)
        spec = EpisodeSpec.model_validate(saved.header["spec"])
        ref, task_id = split_task(spec.task)
        entry = await episodes.catalog.load(episodes.catalog.resolve(ref))
        task = task_of(entry, task_id)
    except (CorruptJournal, KeyError, ValueError, AstraError, OSError) as error:
        log.error("journal %s cannot be restored: %s", path.name, error)
        return "unreadable"
    live = await _resume(episodes, saved, spec, entry, task)
    status = live.episode.status
    episodes.settle(live)
    if status == "open":
        return "open"
    return "corrupt" if status == "corrupt" else "ended"


async def _resume(
    episodes: Episodes, saved: Saved, spec: EpisodeSpec, entry: Entry, task: Task
) -> Live:
    problem: str | None = None
    state, golden = entry.bundle.state, Golden(digest=spec.digest, task=task.id, steps=[])
    far: dict[str, FarTool] = {}
    try:
        state = _folded(saved, spec, entry)
        golden = await entry.golden_run(task)
        far = await _far_again(episodes, spec)
    except (CorruptJournal, AstraError) as error:
        problem = str(error)
    environment = await entry.world.open(state)
    episode = Episode(spec, entry.bundle, task, golden, environment, far)
    hashed = str(saved.header.get("token_hash", ""))
    if problem is None:
        hashed, problem = _replay(episodes, episode, saved.events, hashed)
    journal = episodes.journals.open(spec.episode_id)
    episode.log = journal
    opened_by = str(saved.header.get("request_id", ""))
    live = episodes.admit(episode, entry, journal, hashed, opened_by)
    if problem is not None:
        await episode.mark_corrupt(f"its journal does not fold ({problem})")
    return live


def _folded(saved: Saved, spec: EpisodeSpec, entry: Entry) -> State:
    if spec.digest != entry.bundle.digest:
        raise CorruptJournal("the bundle has changed since")
    if saved.header.get("first_state") != entry.world.first_hash:
        raise CorruptJournal("the first state has changed since")
    return fold_state(entry.bundle.state, saved.events)


def _replay(
    episodes: Episodes, episode: Episode, events: list[dict[str, Json]], hashed: str
) -> tuple[str, str | None]:
    """Fold the events; gives the last token's hash and what did not fit, if anything."""
    for event in events:
        try:
            if event["event"] == "token":
                hashed = str(event["token_hash"])
                continue
            answer = episode.replay_event(event)
        except (KeyError, ValueError, AstraError) as error:
            return hashed, str(error).splitlines()[0]
        _remember(episodes, episode.spec.episode_id, event, answer)
    return hashed, None


def _remember(
    episodes: Episodes,
    episode_id: str,
    event: Mapping[str, Json],
    answer: dict[str, Json] | None,
) -> None:
    request_id = event.get("request_id")
    if not request_id or answer is None:
        return
    if event["event"] == "message":
        key = fingerprint("post_message", episode_id, event["message"]["text"])
    else:
        key = fingerprint("submit_answer", episode_id, event["answer"])
    episodes.requests.remember(request_id, key, answer)


async def _far_again(episodes: Episodes, spec: EpisodeSpec) -> dict[str, FarTool]:
    far: dict[str, FarTool] = {}
    for item in spec.far:
        ref, _, name = item.rpartition("#")
        other = await episodes.catalog.load(episodes.catalog.resolve(ref))
        if name not in other.world.tools:
            raise CorruptJournal("a far distractor is no longer served")
        far[name] = FarTool(other.world.tools[name], other.world)
    return far
