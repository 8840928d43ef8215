"""All episodes of a host: opening, tokens, leases, ending.

An episode is a handle in the URL or the bearer token, never a protocol session. Invariants: a token
is kept only as its hash and is dead when its episode ends; an episode that nobody uses ends within
its lease with a null reward. Restoring after a restart is restore.py, repeated requests are
requests.py.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from astra_mcp.episode import Episode, EpisodeSpec, FarTool, now_s
from astra_mcp.errors import BusyError, UsageError
from astra_mcp.host.catalog import Catalog, Entry
from astra_mcp.host.control_models import OpenEpisode
from astra_mcp.host.distractors import draw
from astra_mcp.host.journal import JournalFile, JournalFolder, MemoryJournal
from astra_mcp.host.requests import RequestMemory
from astra_mcp.host.service import McpService
from astra_mcp.host.tokens import new_token, token_hash
from astra_mcp.host.transport import Endpoint
from astra_mcp.rules import system_prompt
from astra_mcp.settings import FAR_POOL, HostSettings
from astra_mcp.task import Task

Json = Any


@dataclass
class Live:
    """An episode with what the host keeps about it."""

    episode: Episode
    entry: Entry
    journal: JournalFile | MemoryJournal
    token_hash: str
    opened: float
    last_seen: float
    opened_by: str
    """request_id of the open_episode that made it."""
    endpoints: dict[str | None, Endpoint] = field(default_factory=dict)
    held: bool = True

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
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: HostSettings,
        base_url: Callable[[], str],
        end_streams: Callable[[McpService], None],
    ) -> None:
        self._end_streams = end_streams
        self.catalog = catalog
        self._settings = settings
        self._base_url = base_url
        self.journals = JournalFolder(settings.journal)
        self._by_id: OrderedDict[str, Live] = OrderedDict()
        self._by_token: dict[str, Live] = {}
        self.requests = RequestMemory()
        self._opening = 0
        self._restored = False

    @property
    def open_count(self) -> int:
        """Open episodes."""
        return len(self._by_token)

    def by_token(self, token: str) -> Live | None:
        """The open episode of that token, or None for every other token."""
        return self._by_token.get(token_hash(token))

    def get(self, episode_id: str) -> Live:
        """The episode of that id, open or finished.

        Raises:
            UsageError: there is none.
        """
        if (live := self._by_id.get(episode_id)) is None:
            raise UsageError(
                f"There is no episode {episode_id[:80]!r} here.",
                "Use an id that open_episode gave; old finished ones are only in the journal.",
            )
        return live

    # ---- opening ----------------------------------------------------------------------

    async def open(self, request: OpenEpisode) -> dict[str, Json]:
        """Open an episode, or hand out anew the one that this request opened before a restart.

        Returns:
            What the caller needs to play it; the token is in nothing else.

        Raises:
            BusyError: the host is full.
            UsageError: no such task.
            ReplayError: the task's plan does not give what it declares.
        """
        for live in self._by_token.values() if self._restored else ():
            if live.opened_by == request.request_id:
                return self.reissue(live)
        if self.open_count + self._opening >= self._settings.max_episodes:
            raise BusyError(
                f"This host has {self._settings.max_episodes} open episodes and takes no more.",
                "Try again in 1 s.",
            )
        self._opening += 1
        try:
            live, token = await self._open(request)
        finally:
            self._opening -= 1
        return self._opened(live, token)

    async def _open(self, request: OpenEpisode) -> tuple[Live, str]:
        ref, task_id = split_task(request.task)
        async with self.catalog.held(self.catalog.resolve(ref)) as entry:
            task = task_of(entry, task_id)
            golden = await entry.golden_run(task)
            far = await self._far(entry, task, request)
            spec = self._spec(entry, task, request, far)
            environment = await entry.world.open()
            token = new_token()
            journal = self.journals.open(spec.episode_id)
            journal.append(
                {
                    "event": "open",
                    "spec": spec.model_dump(mode="json"),
                    "token_hash": token_hash(token),
                    "first_state": environment.state_hash,
                    "request_id": request.request_id,
                },
                durable=True,
            )
            episode = Episode(spec, entry.bundle, task, golden, environment, far, journal)
            live = self.admit(episode, entry, journal, token_hash(token), request.request_id)
            return live, token

    def admit(
        self,
        episode: Episode,
        entry: Entry,
        journal: JournalFile | MemoryJournal,
        hashed: str,
        opened_by: str,
    ) -> Live:
        """Register an episode under its id and the hash of its token."""
        now = now_s()
        live = Live(episode, entry, journal, hashed, now, now, opened_by)
        entry.users += 1
        self._by_id[episode.spec.episode_id] = live
        self._by_token[hashed] = live
        return live

    def _spec(
        self, entry: Entry, task: Task, request: OpenEpisode, far: Mapping[str, FarTool]
    ) -> EpisodeSpec:
        most = task.max_calls if request.max_calls is None else request.max_calls
        return EpisodeSpec(
            episode_id=f"ep_{secrets.token_hex(12)}",
            task=f"{entry.bundle.ref}#{task.id}",
            digest=entry.bundle.digest,
            seed=request.seed,
            fault_rate=request.fault_rate,
            far=[f"{tool.world.ref}#{name}" for name, tool in far.items()],
            max_calls=most,
            agent_io=request.agent_io,
            idle_s=min(request.idle_s or self._settings.idle_s, self._settings.idle_s),
            total_s=min(request.total_s or self._settings.total_s, self._settings.total_s),
        )

    async def _far(self, entry: Entry, task: Task, request: OpenEpisode) -> dict[str, FarTool]:
        if not request.far_distractors:
            return {}
        manifest = entry.bundle.manifest
        seed = f"{manifest.id}#{task.id}:{request.seed}"
        others = await self.catalog.others(manifest.id, FAR_POOL, seed)
        worlds = {other.world.ref: other.world for other in others}
        drawn = draw(
            manifest.tools,
            [(ref, list(world.tools.values())) for ref, world in worlds.items()],
            request.far_distractors,
            request.far_band,
            seed,
        )
        return {tool.name: FarTool(tool, worlds[ref]) for ref, tool in drawn}

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
            "canary": bundle.sealed.canary,
        }

    def reissue(self, live: Live) -> dict[str, Json]:
        """A new token for an open episode whose first one died with a restart of the host."""
        token = new_token()
        self._by_token.pop(live.token_hash, None)
        live.token_hash = token_hash(token)
        self._by_token[live.token_hash] = live
        live.touch()
        live.journal.append({"event": "token", "token_hash": live.token_hash}, durable=True)
        return self._opened(live, token)

    def restored(self) -> None:
        """Episodes of an earlier run are here: their requests may come again."""
        self._restored = True

    # ---- ending -----------------------------------------------------------------------

    def settle(self, live: Live) -> None:
        """Forget the token of an episode that has ended and let go of its bundle."""
        if live.episode.status == "open" or not live.held:
            return
        live.held = False
        self._by_token.pop(live.token_hash, None)
        for endpoint in live.endpoints.values():
            if endpoint.service is not None:
                self._end_streams(endpoint.service)
        live.endpoints.clear()
        live.entry.users -= 1
        live.journal.close()
        self._by_id.move_to_end(live.episode.spec.episode_id)
        finished = len(self._by_id) - len(self._by_token)
        for key in list(self._by_id):
            if finished <= self._settings.keep_finished:
                break
            if self._by_id[key].episode.status != "open":
                del self._by_id[key]
                finished -= 1

    async def sweep(self) -> None:
        """End every episode whose lease has run out, and settle those that ended by themselves."""
        now = now_s()
        for live in list(self._by_token.values()):
            spec = live.episode.spec
            over = now - live.last_seen > spec.idle_s or now - live.opened > spec.total_s
            if over and live.episode.status == "open":
                await live.episode.close("expired", "the lease ended without an answer")
            self.settle(live)

    async def aclose(self) -> None:
        """Stop serving; with a journal, open episodes wait on disk for the next start."""
        for live in list(self._by_token.values()):
            if self.journals.path is None:
                await live.episode.close("closed", "the host was stopped")
            else:
                await live.episode.suspend()
            live.journal.close()
        self._by_token.clear()


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
