"""All episodes of a host: opening, tokens, leases, ending.

An episode is a handle in the URL or the bearer token, never a protocol session. Invariants: a token
is kept only as its hash, but for as long as its open_episode may be repeated, and is dead when its
episode ends; an episode that nobody uses ends within its lease with a null reward; what an episode
holds (slot, bundles, journal, processes) is given back exactly once. The id is a keyed hash of the
request_id that opened it, so a repeated request finds its episode without an index, also after a
restart. Reading journals is restore.py.
"""

from __future__ import annotations

import hmac
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from astra_mcp.episode import Episode
from astra_mcp.episode_data import EpisodeSpec, FarTool, now_s
from astra_mcp.errors import AstraError, BusyError, EpisodeError, JournalError, UsageError
from astra_mcp.host.admission import Admission
from astra_mcp.host.catalog import Catalog, Entry
from astra_mcp.host.control_models import OpenEpisode
from astra_mcp.host.distractors import draw
from astra_mcp.host.journal import JournalFile, JournalFolder, MemoryJournal
from astra_mcp.host.metrics import EpisodeCounts
from astra_mcp.host.requests import RequestMemory, fingerprint, reused
from astra_mcp.host.service import McpService
from astra_mcp.host.shards import id_mark, mark
from astra_mcp.host.tokens import new_token, token_hash
from astra_mcp.host.transport import Endpoint
from astra_mcp.rules import system_prompt
from astra_mcp.sandbox import WorkerLost
from astra_mcp.settings import FAR_POOL, HostSettings
from astra_mcp.task import Task
from astra_mcp.world import Environment

Json = Any
log = logging.getLogger("astra_mcp.host")
#: Longest wait for the call of an episode whose lease has run out, in seconds.
EXPIRE_S: Final = 20.0
#: After so many finished episodes the oldest journals are looked for.
PRUNE_EVERY: Final = 1000


@dataclass(eq=False)
class Live:
    """An episode with what the host keeps about it.

    Attributes:
        tokens: Hashes of its tokens; there are several when its open_episode was repeated after
            a restart, which knows the first one's hash only.
        opened_as: Fingerprint of the open_episode that made it.
        token: The token itself, until a restart.
        requests: Answers to its requests.
        entries: Bundles that it holds: its own, then those of its distractors.
        counted: Whether its end is one that this process has seen, and counts.
    """

    episode: Episode
    journal: JournalFile | MemoryJournal
    tokens: list[str]
    opened: float
    last_seen: float
    opened_as: str
    entries: Sequence[Entry]
    token: str | None = None
    requests: RequestMemory = field(default_factory=RequestMemory)
    endpoints: dict[str | None, Endpoint] = field(default_factory=dict)
    held: bool = True
    counted: bool = True
    expiring: bool = False

    def touch(self) -> None:
        """Somebody used it: the idle lease starts anew."""
        self.last_seen = now_s()


class Episodes:
    """The registry.

    Args:
        catalog: Bundles and worlds.
        settings: Limits and leases.
        base_url: Where the host listens, known once it does.
        end_streams: Called with each service of an episode that has ended.
        read: Brings a finished episode back from its journal; see restore.py.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: HostSettings,
        base_url: Callable[[], str],
        end_streams: Callable[[McpService], None],
        read: Callable[[Episodes, Path], Awaitable[object]],
    ) -> None:
        self._read_journal = read
        self._end_streams = end_streams
        self.catalog = catalog
        self.settings = settings
        self._base_url = base_url
        self.journals = JournalFolder(settings.journal, settings.keep_journals)
        self.admission = Admission(settings)
        self.counts = EpisodeCounts()
        self._open: dict[str, Live] = {}
        self._finished: OrderedDict[str, Live] = OrderedDict()
        self._by_token: dict[str, Live] = {}
        self._submitted: dict[str, Live] = {}
        self._opening = RequestMemory()
        self._reading = RequestMemory()
        self._since_prune = 0

    @property
    def open_count(self) -> int:
        """Open episodes."""
        return len(self._open)

    def touch(self, episode_id: str) -> bool:
        """Start the idle lease of an open episode anew; False when it is not open."""
        live = self._open.get(episode_id)
        if live is None or live.episode.status != "open":
            return False
        live.touch()
        return True

    def by_token(self, token: str) -> Live | None:
        """The open episode of that token, or None for every other token."""
        return self._by_token.get(token_hash(token))

    def submitted_by(self, token: str) -> Live | None:
        """The finished episode whose agent submitted its answer under that token, if any."""
        return self._submitted.get(token_hash(token))

    def known(self, episode_id: str) -> Live | None:
        """The episode of that id in memory, open or finished."""
        return self._open.get(episode_id) or self._finished.get(episode_id)

    def get(self, episode_id: str) -> Live:
        """The episode of that id, open or finished, in memory.

        Raises:
            UsageError: there is none.
        """
        live = self.known(episode_id)
        if live is None:
            raise UsageError(
                f"There is no episode {episode_id[:80]!r} here.",
                "Use an id that open_episode gave.",
            )
        return live

    async def find(self, episode_id: str) -> Live:
        """The episode of that id, in memory or from its journal.

        Raises:
            UsageError: there is none.
            EpisodeError: its journal cannot be read with what is served now.
        """
        path = None if self.known(episode_id) else self.journals.find(episode_id)
        if path is not None:
            await self._reading.once(episode_id, "", lambda: self._read(path))
            self._reading.forget(episode_id)
        return self.get(episode_id)

    async def _read(self, path: Path) -> dict[str, Json]:
        await self._read_journal(self, path)
        return {}

    # ---- opening ----------------------------------------------------------------------

    async def open(self, request: OpenEpisode) -> dict[str, Json]:
        """Open an episode, or give what this request was given before.

        Returns:
            What the caller needs to play it; the token is in nothing else. After a restart the
            token is another one, and the first one stays valid beside it.

        Raises:
            BusyError: the host is full.
            UsageError: no such task.
            ReplayError: the task's plan does not give what it declares.
            EpisodeError: the request_id belongs to another request.
            JournalError: the episode cannot be recorded, so it was not opened.
        """
        key = fingerprint("open_episode", request.model_dump(mode="json"))
        request_id = request.request_id
        answer = await self._opening.once(request_id, key, lambda: self._once(request, key))
        self._opening.forget(request_id)
        return answer

    async def _once(self, request: OpenEpisode, key: str) -> dict[str, Json]:
        episode_id = self._id_of(request.request_id)
        try:
            live = await self.find(episode_id)
        except UsageError:
            live = await self._admitted(request, episode_id, key)
        if live.opened_as != key:
            raise reused(request.request_id)
        return self._opened(live, live.token or await self._another_token(live))

    def _id_of(self, request_id: str) -> str:
        digest = hmac.digest(self.journals.salt, request_id.encode(), "sha256")
        return f"ep_{(id_mark(self.settings) + digest.hex())[:24]}"

    async def _admitted(self, request: OpenEpisode, episode_id: str, key: str) -> Live:
        await self.admission.take()
        try:
            return await self._open_one(request, episode_id, key)
        except WorkerLost as error:
            self.admission.give_back()
            raise BusyError(error.message, "Try again in 1 s.") from error
        except BaseException:
            self.admission.give_back()
            raise

    async def _open_one(self, request: OpenEpisode, episode_id: str, key: str) -> Live:
        ref, task_id = split_task(request.task)
        async with self.catalog.held(self.catalog.resolve(ref)) as entry:
            task = task_of(entry, task_id)
            golden = await entry.golden_run(task)
            entries, far = await self._far(entry, task, request)
            try:
                spec = self._spec(entry, task, request, episode_id, far)
                environment = await entry.world.open()
                token = new_token(mark(self.settings))
                try:
                    journal = await self._begin(spec, request, key, token, environment, far)
                except BaseException:
                    await environment.aclose()
                    raise
            except BaseException:
                _let_go(entries[1:])
                raise
            waiting = self.settings.max_waiting_calls
            episode = Episode(
                spec, entry.bundle, task, golden, environment, far, journal, max_waiting=waiting
            )
            entry.users += 1
            now = now_s()
            live = Live(episode, journal, [token_hash(token)], now, now, key, entries, token)
            self._register(live)
            self.counts.opened += 1
            return live

    async def _begin(
        self,
        spec: EpisodeSpec,
        request: OpenEpisode,
        key: str,
        token: str,
        environment: Environment,
        far: Mapping[str, FarTool],
    ) -> JournalFile | MemoryJournal:
        """Write the header and wait until it is on the disk."""
        journal = self.journals.open(spec.episode_id, new=True)
        try:
            journal.append(
                {
                    "event": "open",
                    "spec": spec.model_dump(mode="json"),
                    "token_hash": token_hash(token),
                    "first_state": environment.state_hash,
                    "request_id": request.request_id,
                    "request": key,
                    "far_worlds": {t.world.ref: t.world.world_digest for t in far.values()},
                }
            )
            await journal.commit()
        except BaseException:
            journal.discard()
            raise
        return journal

    def resume(self, live: Live) -> None:
        """Take in an episode of an earlier run, whatever the limit says; `settle` lets it go."""
        self.admission.take_anyway()
        self._register(live)
        live.counted = live.episode.status == "open"
        self.counts.restored += live.counted

    def _register(self, live: Live) -> None:
        self._open[live.episode.spec.episode_id] = live
        self._by_token |= dict.fromkeys(live.tokens, live)

    def _spec(
        self,
        entry: Entry,
        task: Task,
        request: OpenEpisode,
        episode_id: str,
        far: Mapping[str, FarTool],
    ) -> EpisodeSpec:
        most = task.max_calls if request.max_calls is None else request.max_calls
        settings = self.settings
        return EpisodeSpec(
            episode_id=episode_id,
            task=f"{entry.bundle.ref}#{task.id}",
            digest=entry.bundle.digest,
            seed=request.seed,
            fault_rate=request.fault_rate,
            far=[f"{tool.world.ref}#{name}" for name, tool in far.items()],
            max_calls=most,
            agent_io=request.agent_io,
            idle_s=min(request.idle_s or settings.idle_s, settings.idle_s),
            total_s=min(request.total_s or settings.total_s, settings.total_s),
        )

    async def _far(
        self, entry: Entry, task: Task, request: OpenEpisode
    ) -> tuple[list[Entry], dict[str, FarTool]]:
        """The bundles that the episode holds, its own first, and its far distractors."""
        if not request.far_distractors:
            return [entry], {}
        manifest = entry.bundle.manifest
        seed = f"{manifest.id}#{task.id}:{request.seed}"
        others = await self.catalog.others(manifest.id, FAR_POOL, seed)
        by_ref = {other.world.ref: other for other in others}
        drawn = draw(
            manifest.tools,
            [(ref, list(other.world.tools.values())) for ref, other in by_ref.items()],
            request.far_distractors,
            request.far_band,
            seed,
        )
        used = {ref for ref, _ in drawn}
        _let_go([other for ref, other in by_ref.items() if ref not in used])
        far = {tool.name: FarTool(tool, by_ref[ref].world) for ref, tool in drawn}
        return [entry, *(by_ref[ref] for ref in used)], far

    def _opened(self, live: Live, token: str) -> dict[str, Json]:
        spec, bundle = live.episode.spec, live.episode.bundle
        base = f"{self._base_url()}/episodes/{token}"
        servers = [server.name for server in bundle.manifest.servers]
        return {
            "episode_id": spec.episode_id,
            "task": spec.task,
            "digest": spec.digest,
            "world_digest": bundle.world_digest,
            "seed": spec.seed,
            "language": bundle.manifest.language,
            "system_prompt": system_prompt(bundle, spec.agent_io),
            "message": live.episode.task.turns[0].say,
            "endpoint": f"{base}/mcp",
            "endpoints": {name: f"{base}/{name}/mcp" for name in servers},
            "token": token,
            "max_calls": spec.max_calls,
            "idle_s": spec.idle_s,
            "total_s": spec.total_s,
            "canary": bundle.sealed.canary,
        }

    async def _another_token(self, live: Live) -> str:
        """A further token for an episode whose first one this process never knew.

        The first one stays valid: its holder may be in the middle of a call. That of an episode
        that has ended opens nothing, as the first one does not.
        """
        token = new_token(mark(self.settings))
        hashed = token_hash(token)
        if live.episode.status == "open":
            live.journal.append({"event": "token", "token_hash": hashed})
            await live.journal.commit()
            if live.held:
                live.tokens.append(hashed)
                self._by_token[hashed] = live
            live.touch()
        live.token = token
        return token

    # ---- ending -----------------------------------------------------------------------

    def settle(self, live: Live) -> None:
        """Give back what an episode that has ended holds, and forget its tokens; idempotent."""
        if live.episode.status == "open" or not live.held:
            return
        self._release(live)
        if live.counted:
            grade = live.episode.result
            rewarded = grade is not None and grade.value is not None
            self.counts.end(live.episode.status, live.episode.reason, rewarded=rewarded)
        live.journal.finish()
        self._since_prune += 1
        self.keep(live)

    def _release(self, live: Live) -> None:
        live.held = False
        del self._open[live.episode.spec.episode_id]
        for hashed in live.tokens:
            self._by_token.pop(hashed, None)
        for endpoint in live.endpoints.values():
            if endpoint.service is not None:
                self._end_streams(endpoint.service)
        live.endpoints.clear()
        _let_go(live.entries)
        self.admission.give_back()

    def keep(self, live: Live) -> None:
        """Remember a finished episode, and forget the oldest beyond `keep_finished`."""
        self._finished[live.episode.spec.episode_id] = live
        if live.episode.submitted_by is not None:
            self._submitted |= dict.fromkeys(live.tokens, live)
        while len(self._finished) > self.settings.keep_finished:
            _, oldest = self._finished.popitem(last=False)
            for hashed in oldest.tokens:
                self._submitted.pop(hashed, None)

    async def sweep(self) -> None:
        """End every episode whose lease has run out, and settle those that ended by themselves."""
        now = now_s()
        async with anyio.create_task_group() as tasks:
            for live in list(self._open.values()):
                spec = live.episode.spec
                over = now - live.last_seen > spec.idle_s or now - live.opened > spec.total_s
                if live.episode.status != "open":
                    self.settle(live)
                elif over and not live.expiring:
                    live.expiring = True
                    tasks.start_soon(self._expire, live)
        if self._since_prune >= PRUNE_EVERY:
            self._since_prune = 0
            with anyio.move_on_after(EXPIRE_S):
                await anyio.to_thread.run_sync(self.journals.prune, abandon_on_cancel=True)

    async def _expire(self, live: Live) -> None:
        """End one, at once when its call does not end or its end cannot be recorded."""
        reason = "the lease ended without an answer"
        try:
            with anyio.fail_after(EXPIRE_S):
                await live.episode.close("expired", reason)
        except (EpisodeError, BusyError, JournalError, TimeoutError) as error:
            log.error("an episode is ended without its journal: %s", type(error).__name__)
            await live.episode.abandon("expired", reason)
        self.settle(live)

    def drain(self) -> None:
        """Send away whoever waits for a slot: the host is stopping."""
        self.admission.drain()

    async def aclose(self) -> None:
        """Stop serving; with a journal, open episodes wait on disk for the next start."""
        self.drain()
        async with anyio.create_task_group() as tasks:
            for live in list(self._open.values()):
                tasks.start_soon(self._stop, live)
        self.journals.close()

    async def _stop(self, live: Live) -> None:
        try:
            if self.journals.path is None:
                await live.episode.close("closed", "the host was stopped")
            else:
                await live.episode.suspend()
        except AstraError as error:
            log.error("an episode was cut off: %s", error)
        finally:
            live.journal.close()
            if live.held:
                self._release(live)


def _let_go(entries: Sequence[Entry]) -> None:
    for entry in entries:
        entry.users -= 1


def split_task(task: str) -> tuple[str, str]:
    """(bundle reference, task id) of `id@version#task`.

    Raises:
        UsageError: it has another form.
    """
    ref, mark, task_id = task.rpartition("#")
    if not mark or not ref or not task_id:
        raise UsageError(f"{task[:120]!r} names no task.", "Write it as id@version#task.")
    return ref, task_id


def task_of(entry: Entry, task_id: str) -> Task:
    """The bundle's task of that id.

    Raises:
        UsageError: there is none.
    """
    try:
        return entry.bundle.task(task_id)
    except KeyError:
        raise UsageError(
            f"{entry.bundle.ref} has no task {task_id[:80]!r}.", "See list_tasks."
        ) from None
