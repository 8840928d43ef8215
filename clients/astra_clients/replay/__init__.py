"""Recordings of `--record`, played again without a model on a host of one's own, and compared.

Against the bundle that was recorded every answer must be the same, byte by byte; `filling` lists
what is overlooked. Another bundle, recognised by its digest, is refused unless that is allowed. A
recording that was changed, or that lacks an exchange, is never called identical.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import aiohttp

from astra_clients.exchange import new_pool
from astra_clients.replay.filling import Filling, request_ids
from astra_clients.replay.player import Difference, Player
from astra_mcp.bundle import Bundle
from astra_mcp.errors import AstraError, RecordingError
from astra_mcp.host.app import Host
from astra_mcp.host.run import hosting
from astra_mcp.host.tape import Exchange, Recording, read_recording
from astra_mcp.settings import HostSettings

__all__ = ["Difference", "Replayed", "Replayer"]

Json = Any
log = logging.getLogger(__name__)
Verdict = Literal["identical", "different", "refused", "damaged", "incomplete"]
_LEASE_S: Final = 24 * 3600.0
SHOWN: Final = 20


@dataclass
class Replayed:
    """What came of one file.

    Attributes:
        file: The recording.
        task, episode_id: Of the recorded episode.
        verdict: `identical`; `different`; `refused`: another bundle; `damaged`: not what the host
            wrote; `incomplete`: an exchange is missing.
        reason: One sentence, "" when it is identical.
        exchanges: How many the recording holds.
        compared: Of them, sent and compared; the rest had no answer to compare with.
        other_digest: Whether the bundle is another one.
        differences: In order, the first `SHOWN`.
    """

    file: Path
    task: str = ""
    episode_id: str = ""
    verdict: Verdict = "identical"
    reason: str = ""
    exchanges: int = 0
    compared: int = 0
    other_digest: bool = False
    differences: list[Difference] = field(default_factory=list)


def _ends(exchange: Exchange) -> bool:
    """Whether a request ended the episode."""
    return b'"submit_answer"' in exchange.body or b'"close_episode"' in exchange.body


class Replayer:
    """Replays files on a host of its own in this process.

    Recordings of one request_id cannot be told apart by one host: the second gets a fresh one.

    Args:
        bundles: What is served.
        missing: Sandbox layers that may be missing.
    """

    def __init__(self, bundles: Sequence[Path], missing: Sequence[str] = ()) -> None:
        self._bundles = bundles
        self._settings = HostSettings(
            unaudited=True,
            idle_s=_LEASE_S,
            total_s=_LEASE_S,
            accept_missing_layers=frozenset(missing),
        )
        self._token = secrets.token_urlsafe(32)
        self._opened: set[str] = set()
        self._stack = AsyncExitStack()
        self._host: Host
        self._pool: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._host = await self._stack.enter_async_context(
            hosting(self._bundles, self._settings, self._token)
        )
        self._pool = await self._stack.enter_async_context(new_pool())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _fresh_for(self, recording: Recording) -> None:
        """Start the host anew when a recording with one of these request_ids was played on it."""
        ids = request_ids(recording.exchanges)
        if ids & self._opened:
            await self._stack.aclose()
            self._opened.clear()
            await self.__aenter__()
        self._opened |= ids

    async def replay(self, file: Path, *, allow_other_digest: bool = False) -> Replayed:
        """Replay one file.

        Raises:
            UsageError: it is no recording, or the host does not serve its bundle.
        """
        done = Replayed(file)
        try:
            await self._replay(file, done, allow_other_digest)
        except AstraError:
            raise
        except Exception as error:
            # A file that was put together by hand: the others must get their verdict all the same.
            log.debug("replay of %s failed", file.name, exc_info=error)
            done.verdict = "damaged"
            done.reason = f"It has no form that the host writes ({type(error).__name__})."
        return done

    async def _replay(self, file: Path, done: Replayed, allow_other_digest: bool) -> None:
        try:
            recording = read_recording(file)
        except RecordingError as error:
            done.verdict, done.reason = "damaged", error.message
            return
        header = recording.header
        done.task, done.episode_id = header["task"], header["episode_id"]
        done.exchanges = len(recording.exchanges)
        cut = next((n for n, e in enumerate(recording.exchanges) if e.cut is not None), None)
        if cut is not None:
            done.verdict = "incomplete"
            done.reason = f"Exchange {cut} is missing: {recording.exchanges[cut].cut}."
            return
        if recording.torn:
            done.verdict, done.reason = "incomplete", "Its last line is torn."
            return
        await self._fresh_for(recording)
        bundle = await self._bundle(header["task"])
        changed = await self._changed(header, bundle)
        done.other_digest = bool(changed)
        if changed and not allow_other_digest:
            done.verdict = "refused"
            done.reason = f"The digest differs: {changed}."
            return
        await self._play(recording, bundle, done)
        if done.verdict == "identical" and not any(map(_ends, recording.exchanges)):
            done.verdict = "incomplete"  # a lost end leaves no gap in the chain
            done.reason = "It does not reach the end of its episode."

    async def _bundle(self, task: str) -> Bundle:
        catalog = self._host.catalog
        entry = await catalog.load(catalog.resolve(task.partition("@")[0]))
        return entry.bundle

    async def _changed(self, header: dict[str, Json], bundle: Bundle) -> str:
        """What is not the bundle that was recorded; "" when all is."""
        if header["digest"] != bundle.digest:
            return f"{bundle.ref} has {bundle.digest}, the recording {header['digest']}"
        for ref, digest in header["far"].items():
            other = await self._bundle(ref)
            if other.world_digest != digest:
                return f"the world of far distractors {other.ref} is not the recorded {ref}"
        return ""

    async def _play(self, recording: Recording, bundle: Bundle, done: Replayed) -> None:
        header = recording.header
        filling = Filling()
        filling.add(header["task"].partition("#")[0], bundle.ref)
        filling.add(header["digest"], bundle.digest)
        filling.add(header["world_digest"], bundle.world_digest)
        filling.add(header["canary"], bundle.sealed.canary)
        player = Player(self._pool, self._host.url, self._token, recording, filling)
        try:
            await player.run()
        except RecordingError as error:
            done.verdict, done.reason = "incomplete", error.message
            return
        self._check_far(header, player)
        done.compared = player.compared
        if player.differences:
            first = player.differences[0]
            done.verdict = "different"
            done.reason = (
                f"{len(player.differences)} of {done.compared} answers differ, first exchange "
                f"{first.exchange} ({first.request}) in its {first.what}."
            )
            done.differences = player.differences[:SHOWN]

    def _check_far(self, header: dict[str, Json], player: Player) -> None:
        live = self._host.episodes.known(player.episode_id)
        if live is not None and live.episode.spec.far != header["spec"]["far"]:
            player.far_differ(header["spec"]["far"], live.episode.spec.far)
