"""The host's side of the sandbox: `Sandbox`, `Template` (one bundle), `Worker` (one episode).

Owns the processes: a zygote that died is replaced at the next `template`; what lived under it is
lost (`WorkerLost`: a caller restores from its own copy of the state); `aclose` leaves nothing
running. Belongs to one event loop; every wait has a deadline; nothing untrusted runs here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import orjson

from astra_mcp.errors import LoadError, SandboxError, SandboxUnavailable, UsageError
from astra_mcp.sandbox import wire
from astra_mcp.sandbox.channel import LineBreach, LineClosed
from astra_mcp.sandbox.forker import Forker
from astra_mcp.sandbox.launch import Zygote
from astra_mcp.sandbox.reply import WorkerLost, epitaph
from astra_mcp.sandbox.wire import Effect, Order
from astra_mcp.sandbox.worker import Deadlines, Worker

Json = Any

MANDATORY: Final = ("seccomp", "no_new_privs", "rlimits", "selftest", "language")
OPTIONAL: Final = ("landlock", "setuid", "netns", "capabilities")
_LOAD_S: Final = 10.0
_FORK_S: Final = 30.0
#: However many episodes start at once: bundles whose code is loaded, workers that start.
_LOADS: Final = 4
_FORKS: Final = 16
_AFTERLIFE_S: Final = 2.0
_LINE_SLACK: Final = 16384
_NOTHING_RUNS: Final = "def nothing(state):\n    return {}\n"


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """How strict the sandbox is.

    Attributes:
        allow_missing: Mandatory layers that may be missing on this machine.
        simulate_missing: Layers to leave out as if the machine had none; for tests.
        wall_factor: Wall time of a call as a multiple of its CPU time, before it is killed.
        wall_margin_s: Seconds added to that.
    """

    allow_missing: frozenset[str] = frozenset()
    simulate_missing: frozenset[str] = frozenset()
    wall_factor: float = 4.0
    wall_margin_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Census:
    """The living processes of a sandbox, as far as is known.

    Attributes:
        zygote: Process id, or None.
        templates, workers: Process ids.
        started: Workers forked since the start, dead ones included.
    """

    zygote: int | None
    templates: Sequence[int]
    workers: Sequence[int]
    started: int


class Sandbox:
    """One zygote and the templates under it. Start with `Sandbox.start`, end with `aclose`.

    Attributes:
        layers: Layer name -> "on" or "off: why".
        started: Workers forked since the start.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.layers: Mapping[str, str] = {}
        self._zygote: Zygote | None = None
        self._booting = asyncio.Lock()
        self._templates: set[Template] = set()
        self.deadlines = Deadlines()
        self.started = 0
        self._loads = asyncio.Semaphore(_LOADS)
        self.forks = asyncio.Semaphore(_FORKS)
        self._closed = False

    @classmethod
    async def start(cls, settings: SandboxSettings = SandboxSettings()) -> Self:
        """Start a sandbox and prove its layers in a first worker.

        Raises:
            SandboxUnavailable: not Linux, or a mandatory layer is missing and not allowed to be.
            UsageError: `allow_missing` names no mandatory layer.
        """
        if unknown := sorted(settings.allow_missing - set(MANDATORY)):
            raise UsageError(
                f"There is no mandatory sandbox layer {', '.join(unknown)}.",
                f"Choose from {', '.join(MANDATORY)}.",
            )
        if sys.platform != "linux":
            raise SandboxUnavailable(
                f"The sandbox needs Linux, and this is {sys.platform}.",
                "Run it on Linux, in a container or in a virtual machine.",
            )
        sandbox = cls(settings)
        try:
            await sandbox._prove()
        except BaseException:
            await sandbox.aclose()
            raise
        return sandbox

    async def _prove(self) -> None:
        template = await self.template(
            _NOTHING_RUNS, {"nothing": "read"}, call_seconds=1.0, memory_mb=64,
            output_bytes=1024, now_s=0.0,
        )  # fmt: skip
        self.layers = template.layers
        await template.aclose()
        allowed = self.settings.allow_missing
        missing = [n for n in MANDATORY if self.layers.get(n) != "on" and n not in allowed]
        if missing:
            why = "; ".join(f"{name} ({self.layers.get(name, 'off')})" for name in missing)
            flags = " ".join(f"--accept-missing-layer {name}" for name in missing)
            raise SandboxUnavailable(
                f"A mandatory layer of the sandbox is missing on this machine: {why}.",
                f"Use a machine that has it, or run code you trust with {flags}.",
            )

    async def template(
        self,
        code: str,
        tools: Mapping[str, Effect],
        *,
        call_seconds: float,
        memory_mb: int,
        output_bytes: int,
        now_s: float,
        explain: bool = False,
    ) -> Template:
        """Load a bundle's code.

        Args:
            code: One module that defines every tool as `fn(state, *, ...) -> dict`.
            tools: Tool name -> whether it may change the state.
            call_seconds: CPU seconds that one call may use.
            memory_mb: Memory that a worker may use beyond the bare interpreter.
            output_bytes: Largest result as JSON.
            now_s: What every clock inside says at the start of a call, POSIX seconds.
            explain: Say which exception a crash was and where; for an author's terminal alone.

        Raises:
            LoadError: the code does not compile, is refused, fails at module level or lacks a tool.
        """
        life = int(60 + 100 * call_seconds)
        order = Order(
            code,
            dict(tools),
            call_seconds,
            _LOAD_S,
            life,
            memory_mb,
            output_bytes,
            now_s,
            explain=explain,
        )
        return await self._template(order)

    async def _template(self, order: Order) -> Template:
        async with self._loads:
            try:
                template = await self._open(order)
            except WorkerLost:  # the zygote died just now; a new one takes its place
                template = await self._open(order)
        self._templates.add(template)
        try:
            first = await template.worker({})
            first.kill()
        except BaseException:
            await template.aclose()
            raise
        return template

    async def _open(self, order: Order) -> Template:
        zygote = await self._running_zygote()
        try:
            forker = await zygote.forker.fork_server(wire.MAX_CHANGES, _FORK_S)
        except (LineClosed, TimeoutError) as error:
            raise WorkerLost(
                "The sandbox could not start a process.",
                "Try again; if it persists, this machine has no process or memory left.",
            ) from error
        pid = forker.process.pid
        try:
            forker.line.send(orjson.dumps(asdict(order)))
            async with asyncio.timeout(3 * _LOAD_S):
                answer = orjson.loads(await forker.line.expect())
        except (LineClosed, LineBreach, TimeoutError, ValueError) as error:
            status = await zygote.forker.wait_end(pid, _AFTERLIFE_S)
            forker.close()
            if status is None and not zygote.alive:
                raise WorkerLost("The sandbox's first process is gone.", "Try again.") from error
            raise LoadError(
                "The code could not be parsed within time and memory.", "Make it smaller."
            ) from None
        except BaseException:
            forker.close()
            raise
        if "error" in answer:
            forker.close()
            raise _not_loaded(answer["error"])
        return Template(self, zygote, forker, order)

    def census(self) -> Census:
        """Who lives now."""
        zygote = self._zygote
        living = [template for template in self._templates if template.alive]
        return Census(
            zygote.forker.process.pid if zygote is not None and zygote.alive else None,
            [template.pid for template in living],
            [worker.pid for one in living for worker in one.workers if worker.alive],
            self.started,
        )

    async def _running_zygote(self) -> Zygote:
        async with self._booting:
            if self._closed:
                raise SandboxError("The sandbox is closed.", "Start another one.")
            if self._zygote is None or not self._zygote.alive:
                if self._zygote is not None:
                    await self._zygote.stop()
                simulated = sorted(self.settings.simulate_missing)
                self._zygote = await Zygote.launch({"simulate_missing": simulated})
            return self._zygote

    async def aclose(self) -> None:
        """End every process of this sandbox and wait until they are gone."""
        self._closed = True
        for template in list(self._templates):
            template.kill()
        async with self._booting:
            zygote, self._zygote = self._zygote, None
            if zygote is not None:
                await zygote.stop()


class Template:
    """A bundle's code, loaded once; forks a worker per episode.

    Attributes:
        layers: Layers of the last worker it forked.
    """

    def __init__(self, sandbox: Sandbox, zygote: Zygote, forker: Forker, order: Order) -> None:
        self.layers: Mapping[str, str] = {}
        self.order = order
        self.deadlines = sandbox.deadlines
        self.workers: set[Worker] = set()
        self._sandbox = sandbox
        self._zygote = zygote
        self._forker = forker

    async def worker(self, state: Mapping[str, Mapping[str, Json]]) -> Worker:
        """Fork a worker with its own copy of `state`.

        Raises:
            WorkerLost: the template is gone, or the new process was killed from outside.
            LoadError: the code fails at module level or the state does not fit into its memory.
        """
        try:
            blob = orjson.dumps(dict(state))
        except orjson.JSONEncodeError as error:
            raise SandboxError(f"The state is no JSON: {error}.", "Mend the state.") from None
        if len(blob) > wire.MAX_FRAME:
            raise SandboxError(
                f"The state is larger than {wire.MAX_FRAME} bytes.", "Make it smaller."
            )
        async with self._sandbox.forks:
            return await self._born(blob, frozenset(state))

    async def _born(self, blob: bytes, tables: frozenset[str]) -> Worker:
        order = self.order
        limit = order.output_bytes + wire.MAX_CHANGES + _LINE_SLACK
        try:
            line, process = await self._forker.fork(limit, _FORK_S)
        except (LineClosed, TimeoutError) as error:
            raise self._no_process() from error
        self._sandbox.started += 1
        worker = Worker(self, line, process, tables)
        try:
            async with asyncio.timeout(_FORK_S + 3 * order.load_seconds):
                self.layers = orjson.loads(await line.expect())["layers"]
                line.send(blob)
                answer = orjson.loads(await line.expect())
        except (LineClosed, LineBreach, TimeoutError, ValueError) as error:
            raise await self._still_born(worker) from error
        except BaseException:
            worker.kill()
            raise
        if answer != {"ready": True}:
            worker.kill()
            raise _not_loaded(answer.get("error"))
        line.harden()
        return worker

    async def _still_born(self, worker: Worker) -> SandboxError:
        """Why a worker ended before it was ready."""
        ended = await self.ended(worker.pid)
        worker.kill()
        order = self.order
        if epitaph(ended, order.load_seconds) is None or not self.alive:
            return self._no_process()
        return LoadError(
            f"A worker ended before it was ready: code and state need more than {order.memory_mb}"
            " MB, or the module level crashes the interpreter.",
            "Raise limits.memory_mb, or make code and state smaller.",
        )

    def _no_process(self) -> SandboxError:
        if not self.alive:
            return WorkerLost("A process of the sandbox is gone.", "Load the bundle again.")
        return WorkerLost(
            "A new process of the sandbox did not start, or was killed from outside.",
            "Try again; if it persists, this machine has no process or memory left.",
        )

    @property
    def pid(self) -> int:
        """Its process id; 0 once it was killed."""
        return self._forker.process.pid

    @property
    def alive(self) -> bool:
        """Whether it can fork, as far as is known."""
        return self._forker.alive

    @property
    def wall_s(self) -> float:
        """Wall time after which a call is stopped from outside."""
        settings = self._sandbox.settings
        return settings.wall_factor * self.order.call_seconds + settings.wall_margin_s

    async def ended(self, pid: int) -> int | None:
        """Wait status of a worker; waits a moment for an end under way. None when it did not."""
        return await self._forker.wait_end(pid, _AFTERLIFE_S)

    def kill(self) -> None:
        """End it and its workers at once."""
        self._sandbox._templates.discard(self)
        for worker in list(self.workers):
            worker.kill()
        self._forker.close(group=True)

    async def aclose(self) -> None:
        """End it and its workers and wait until it is gone."""
        pid = self._forker.process.pid
        self.kill()
        if pid:
            await self._zygote.forker.wait_end(pid, _AFTERLIFE_S)


def _not_loaded(why: object) -> LoadError:
    return LoadError(
        f"The code cannot be loaded: {str(why)[: wire.MAX_MESSAGE]}.",
        "Change the code; docs/sandbox.md says what tools may do.",
    )
