"""Which bundles the host serves: known by their manifests' first lines, loaded when first used.

Ten thousand bundles start as fast as one: at start only ids and versions are read. Loaded bundles
with their worlds are kept in an LRU; one that an episode or session holds is never dropped. The
golden run of a task happens once per load and is kept with it.
"""

from __future__ import annotations

import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from astra_mcp.attempt import Golden
from astra_mcp.bundle import Bundle
from astra_mcp.concurrency import within
from astra_mcp.errors import BundleError, UsageError
from astra_mcp.golden import run_plan
from astra_mcp.sandbox import Sandbox
from astra_mcp.settings import LOAD_S
from astra_mcp.store import find_bundles, load_bundle, read_identity
from astra_mcp.task import Task
from astra_mcp.world import BundleWorld, World

log = logging.getLogger("astra_mcp.host")


@dataclass
class Entry:
    """A loaded bundle with its world; `users` counts the episodes and sessions that hold it."""

    bundle: Bundle
    world: BundleWorld
    users: int = 0
    golden: dict[str, Golden] = field(default_factory=dict)
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def golden_run(self, task: Task) -> Golden:
        """The task's golden run, made once.

        Raises:
            ReplayError: the plan does not give what the task declares.
        """
        if task.id not in self.golden:
            with within(LOAD_S, f"The golden run of {self.bundle.ref}#{task.id}"):
                async with self.lock:
                    if task.id not in self.golden:
                        self.golden[task.id] = await run_plan(self.world, task, self.bundle.digest)
        return self.golden[task.id]


@dataclass(frozen=True, slots=True)
class Held:
    """A world that stays loaded until `release` is called, once."""

    world: World
    title: str
    release: Callable[[], None]


class Catalog:
    """Bundles by id, and trusted worlds beside them.

    Args:
        paths: Bundle directories, folders of them, single-file JSON bundles.
        sandbox: Where worlds run.
        capacity: Loaded bundles kept when nobody holds them.
        trusted: Worlds of the operator's own objects by id; served without tasks.

    Attributes:
        unreadable: Why bundles found in a folder are not served, by file name: one that does not
            parse must not keep the others from being served. One that was named itself must.

    Raises:
        BundleError: nothing found that can be read, or two bundles of one id.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        sandbox: Sandbox,
        capacity: int = 256,
        trusted: Mapping[str, World] | None = None,
    ) -> None:
        self._trusted = dict(trusted or {})
        self._sandbox = sandbox
        self._capacity = capacity
        self._paths: dict[str, Path] = {}
        self._versions: dict[str, str] = {}
        self._loaded: OrderedDict[str, Entry] = OrderedDict()
        self._loading: dict[str, anyio.Lock] = {}
        self.unreadable: dict[str, BundleError] = {}
        for path in find_bundles(paths) if paths or not self._trusted else ():
            try:
                found = read_identity(path)
            except BundleError as error:
                if path in paths:
                    raise
                log.error("not served: %s", error)
                self.unreadable[path.name] = _named(error, path, path.name)
                continue
            self._register(path, *found)
        if self.unreadable and not self._paths:
            raise next(iter(self.unreadable.values()))

    def _register(self, path: Path, bundle_id: str, version: str) -> None:
        if bundle_id in self._paths or bundle_id in self._trusted:
            raise BundleError(
                f"Two bundles have the id {bundle_id}; one is at {path}.",
                "Serve one of them, or give one another id.",
            )
        self._paths[bundle_id] = path
        self._versions[bundle_id] = version

    @property
    def ids(self) -> list[str]:
        """Ids of every bundle served, in the order given."""
        return list(self._paths)

    @property
    def loaded_count(self) -> int:
        """Bundles in memory."""
        return len(self._loaded)

    def knows(self, bundle_id: str) -> bool:
        """Whether a bundle of that id is served."""
        return bundle_id in self._paths or bundle_id in self._trusted

    def resolve(self, ref: str) -> str:
        """The id in `id` or `id@version`.

        Raises:
            UsageError: no such bundle, or another version of it.
        """
        bundle_id, at, version = ref.partition("@")
        if bundle_id not in self._paths:
            raise UsageError(f"There is no bundle {bundle_id!r} here.", "See list_tasks.")
        if at and version != self._versions[bundle_id]:
            raise UsageError(
                f"{bundle_id} is served in version {self._versions[bundle_id]}, not {version}.",
                "Ask for the served version, or serve the other one.",
            )
        return bundle_id

    async def load(self, bundle_id: str) -> Entry:
        """The entry of a bundle, loaded now if it was not.

        Raises:
            BundleError: the files do not hold a valid bundle.
        """
        entry = self._loaded.get(bundle_id)
        if entry is None:
            with within(LOAD_S, f"Loading {bundle_id}"):
                async with self._loading.setdefault(bundle_id, anyio.Lock()):
                    entry = self._loaded.get(bundle_id) or await self._read(bundle_id)
        self._loaded.move_to_end(bundle_id)
        return entry

    async def _read(self, bundle_id: str) -> Entry:
        path = self._paths[bundle_id]
        try:
            bundle = await anyio.to_thread.run_sync(load_bundle, path, abandon_on_cancel=True)
        except BundleError as error:
            raise _named(error, path, bundle_id) from error
        entry = Entry(bundle, BundleWorld.from_bundle(bundle, self._sandbox), users=1)
        self._loaded[bundle_id] = entry
        try:
            await self.shrink()
        finally:
            entry.users -= 1
        return entry

    @asynccontextmanager
    async def held(self, bundle_id: str) -> AsyncIterator[Entry]:
        """An entry that is not dropped while the block runs."""
        entry = await self.load(bundle_id)
        entry.users += 1
        try:
            yield entry
        finally:
            entry.users -= 1

    async def hold(self, bundle_id: str) -> Held:
        """The world of that id, a bundle's or a trusted one, kept until it is released."""
        if (world := self._trusted.get(bundle_id)) is not None:
            return Held(world, world.ref, lambda: None)
        entry = await self.load(bundle_id)
        entry.users += 1

        def release() -> None:
            entry.users -= 1

        return Held(entry.world, entry.bundle.manifest.title, release)

    async def shrink(self) -> None:
        """Drop loaded bundles beyond the capacity that nobody holds, least recently used first."""
        idle = [key for key, entry in self._loaded.items() if entry.users == 0]
        for key in idle[: max(0, len(self._loaded) - self._capacity)]:
            entry = self._loaded.get(key)
            if entry is not None and entry.users == 0:  # it may have changed while one was closed
                del self._loaded[key]
                with anyio.CancelScope(shield=True):
                    await entry.world.aclose()

    async def others(self, bundle_id: str, count: int, seed: str) -> list[Entry]:
        """Up to `count` other bundles drawn by `seed`, for far distractors.

        One that cannot be loaded is passed over. Each is held: the caller counts `users` down.
        """
        ids = sorted(other for other in self._paths if other != bundle_id)
        drawn = random.Random(seed).sample(ids, min(count, len(ids)))
        found: list[Entry] = []
        try:
            for other in drawn:
                try:
                    entry = await self.load(other)
                except BundleError as error:
                    log.warning("no distractors from %s: %s", other, error)
                    continue
                entry.users += 1
                found.append(entry)
        except BaseException:
            for entry in found:
                entry.users -= 1
            raise
        return found

    async def aclose(self) -> None:
        """End every world."""
        for world in [*self._trusted.values(), *(e.world for e in self._loaded.values())]:
            await world.aclose()
        self._loaded.clear()


def _named(error: BundleError, path: Path, name: str) -> BundleError:
    """The error with the bundle's name for its place on this machine: callers are elsewhere."""
    return BundleError(
        error.message.replace(str(path), name), error.remedy.replace(str(path), name)
    )
