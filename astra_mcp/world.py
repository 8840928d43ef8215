"""One call in one world: the `Environment` interface, and bundles' worlds in the sandbox.

A world is a pure function (state, tool, args) -> (result | failure, new state). `BundleWorld` runs
it in the sandbox, but the host owns the state: a worker proposes changed rows, this module checks
and applies them, and a worker that dies is replaced from the host's copy. Invariants: a failed call
commits nothing; arguments and results fit their schemas, else the call failed; a failure never
names what the agent did not send. Trusted Python objects are trusted.py; turns, faults and grading
are not known here.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self

import anyio
import orjson

from astra_mcp import errors
from astra_mcp.bundle import Bundle, Manifest, Server, State, ToolSpec, world_digest
from astra_mcp.canonical import deeper_than, state_hash
from astra_mcp.concurrency import Gate
from astra_mcp.errors import ToolFailure
from astra_mcp.sandbox import Reply, Sandbox, Template, Worker, WorkerLost
from astra_mcp.schema import Validator, validator_for
from astra_mcp.settings import (
    CALLS_WAITING,
    MAX_ARGUMENT_DEPTH,
    MAX_CHANGE_BYTES,
    MAX_STATE_BYTES,
    TURN_WAIT_S,
)

Json = Any
Changes = Mapping[str, Mapping[str, Json]]
ENDED: Final = "this environment has ended"
Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class Outcome(NamedTuple):
    """What one call gave.

    Attributes:
        result: Structured result, or None when the call failed.
        failure: Why it failed, or None.
        changes: {table: {row id: row, or None when removed}} that the call wrote.
        state_before, state_after: sha256 hex of the state.
        seconds: Wall time.
    """

    result: Json
    failure: ToolFailure | None
    changes: Changes
    state_before: str
    state_after: str
    seconds: float


class Environment(Protocol):
    """One live copy of a world; calls run one after the other, in bounded time."""

    async def call(
        self, tool: str, args: Mapping[str, Json], progress: Progress | None = None
    ) -> Outcome:
        """Run one call; every failure of the tool is in the outcome.

        Raises:
            BusyError: too many calls wait here; this one did not run.
        """

    @property
    def state(self) -> State:
        """The host's own copy of the state; never mutated in place."""

    @property
    def state_hash(self) -> str:
        """sha256 hex of `state`."""

    def restore(self, state: State) -> None:
        """Go back to an earlier `state` of this copy, as if the calls since had not been."""

    async def aclose(self) -> None:
        """End it and free what it holds."""


class World(Protocol):
    """What environments are opened of."""

    ref: str
    world_digest: str
    servers: Sequence[Server]
    tools: Mapping[str, ToolSpec]

    async def open(self, state: State | None = None) -> Environment:
        """A fresh copy, in its first state or in `state`."""

    async def aclose(self) -> None:
        """End every process that serves it."""


class Validators:
    """Validators of a world's tools by name, looked up once for each tool.

    They are compiled once for equal schemas in the whole process; finding one there costs as much
    as the check itself.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[Validator, Validator]] = {}

    def __call__(self, spec: ToolSpec) -> tuple[Validator, Validator]:
        """Validators of a tool's arguments and of its result."""
        found = self._found.get(spec.name)
        if found is None:
            found = validator_for(spec.input_schema), validator_for(spec.output_schema)
            self._found[spec.name] = found
        return found


def apply_changes(state: State, changes: Changes, limit: int = MAX_CHANGE_BYTES) -> State:
    """The state after `changes`, sharing every unchanged table with `state`.

    Args:
        limit: Most bytes of JSON that the changes may have; the default is that of one call.

    Raises:
        ValueError: a change names an unknown table, is no row, or is too large.
    """
    if len(orjson.dumps(changes)) > limit:
        raise ValueError("changes are too large")
    new = dict(state)
    for table, rows in changes.items():
        if table not in state or not isinstance(rows, Mapping):
            raise ValueError("a change names no table of the world")
        merged = dict(new[table])
        for row_id, row in rows.items():
            if row is None:
                merged.pop(row_id, None)
            elif isinstance(row, dict):
                merged[row_id] = row
            else:
                raise ValueError("a changed row is no object")
        new[table] = merged
    return new


def changes_between(first: State, last: State) -> dict[str, dict[str, Json]]:
    """The changes that `apply_changes` makes `last` of `first` with; both have the same tables."""
    found: dict[str, dict[str, Json]] = {}
    for table, rows in last.items():
        before = first[table]
        if rows is before:
            continue
        changed: dict[str, Json] = {
            key: row for key, row in rows.items() if key not in before or _other(before[key], row)
        }
        changed |= dict.fromkeys(key for key in before if key not in rows)
        if changed:
            found[table] = changed
    return found


def _other(before: Json, row: Json) -> bool:
    """Whether a row is written otherwise; Python takes 1, 1.0 and True for equal."""
    return before is not row and orjson.dumps(before) != orjson.dumps(row)


def too_deep() -> ToolFailure:
    """The failure of a call whose arguments no record can hold."""
    problem = f"the arguments are nested more than {MAX_ARGUMENT_DEPTH} deep"
    return ToolFailure(errors.INVALID_ARGUMENTS, problem)


def _checked_state(state: State) -> str:
    raw = orjson.dumps(state, option=orjson.OPT_SORT_KEYS)
    if len(raw) > MAX_STATE_BYTES:
        raise ValueError("the state is too large")
    return hashlib.sha256(raw).hexdigest()


class BundleWorld:
    """A bundle's world in the sandbox; one template per world, one worker per environment."""

    def __init__(
        self,
        manifest: Manifest,
        code: str,
        state: State,
        sandbox: Sandbox,
        world_digest: str,
        explain: bool = False,
    ) -> None:
        self.explain = explain
        self.ref = f"{manifest.id}@{manifest.version}"
        self.manifest = manifest
        self.servers: Sequence[Server] = manifest.servers
        self.tools: Mapping[str, ToolSpec] = manifest.by_name
        self.world_digest = world_digest
        self.validators = Validators()
        self.first_state = state
        self.first_hash = state_hash(state)
        self._code = code
        self._sandbox = sandbox
        self._template: Template | None = None
        self._lock = anyio.Lock()

    @classmethod
    def from_bundle(cls, bundle: Bundle, sandbox: Sandbox, explain: bool = False) -> Self:
        """The world of a whole bundle.

        Args:
            explain: Say why a tool crashed or broke its schema; for an author's terminal alone.
        """
        world = bundle.world_digest
        return cls(bundle.manifest, bundle.code, bundle.state, sandbox, world, explain)

    @classmethod
    def from_public(cls, manifest: Manifest, code: str, state: State, sandbox: Sandbox) -> Self:
        """The world of a bundle without its sealed part."""
        return cls(manifest, code, state, sandbox, world_digest(manifest, code, state))

    async def worker(self, state: State) -> Worker:
        """A new worker holding `state`; a template that died is made anew, once.

        Raises:
            LoadError: the code does not load.
            SandboxError: the sandbox is gone.
        """
        for attempt in (1, 2):
            template = await self._ready_template()
            try:
                return await template.worker(state)
            except WorkerLost:
                async with self._lock:
                    # A template that lives has only lost the new process: it makes another one.
                    if self._template is template and not template.alive:
                        self._template = None
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    async def _ready_template(self) -> Template:
        async with self._lock:
            if self._template is None:
                limits = self.manifest.limits
                self._template = await self._sandbox.template(
                    self._code,
                    {name: spec.effects for name, spec in self.tools.items()},
                    call_seconds=limits.call_seconds,
                    memory_mb=limits.memory_mb,
                    output_bytes=limits.output_bytes,
                    now_s=self.manifest.now.timestamp(),
                    explain=self.explain,
                )
            return self._template

    async def open(self, state: State | None = None) -> BundleEnvironment:
        """A fresh environment, or one restored to `state`.

        A fresh one starts its worker now, so that code that does not load shows at once; a
        restored one starts it at its first call, so that a thousand episodes restart quickly.
        """
        environment = BundleEnvironment(self, self.first_state if state is None else state)
        if state is None:
            try:
                await environment.start()
            except BaseException:
                await environment.aclose()
                raise
        return environment

    async def aclose(self) -> None:
        """End the template and with it every worker."""
        async with self._lock:
            template, self._template = self._template, None
        if template is not None:
            await template.aclose()


class BundleEnvironment:
    """One live copy of a `BundleWorld`."""

    def __init__(self, world: BundleWorld, state: State) -> None:
        self._world = world
        self._state = state
        self._hash = world.first_hash if state is world.first_state else state_hash(state)
        self._worker: Worker | None = None
        self._gate = Gate(1, CALLS_WAITING, TURN_WAIT_S)
        self._closed = False

    @property
    def state(self) -> State:
        """The host's own copy of the state."""
        return self._state

    @property
    def state_hash(self) -> str:
        """sha256 hex of the state."""
        return self._hash

    async def start(self) -> None:
        """Start the worker now, in place of any other, unless the environment ends meanwhile."""
        self._drop_worker()
        worker = await self._world.worker(self._state)
        if self._closed:
            worker.kill()
        else:
            self._worker = worker

    async def call(
        self, tool: str, args: Mapping[str, Json], progress: Progress | None = None
    ) -> Outcome:
        """Run one call in the sandbox; a worker lost without the tool's doing costs one re-run."""
        start = time.perf_counter()
        await self._gate.enter()
        try:
            before = self._hash
            result, failure, changes = await self._checked_call(tool, args)
            after = self._hash
        finally:
            self._gate.leave()
        return Outcome(result, failure, changes, before, after, time.perf_counter() - start)

    async def _checked_call(
        self, tool: str, args: Mapping[str, Json]
    ) -> tuple[Json, ToolFailure | None, Changes]:
        spec = self._world.tools.get(tool)
        if spec is None:
            return None, ToolFailure(errors.UNKNOWN_TOOL, "there is no such tool"), {}
        if deeper_than(args, MAX_ARGUMENT_DEPTH):
            return None, too_deep(), {}
        takes, gives = self._world.validators(spec)
        if (problem := takes.check(args)) is not None:
            return None, ToolFailure(errors.INVALID_ARGUMENTS, problem), {}
        if self._closed:
            return None, ToolFailure(errors.UNAVAILABLE, ENDED), {}
        reply = await self._run(tool, args)
        if reply.failure is not None:
            return None, reply.failure, {}
        if (problem := gives.check(reply.result)) is not None:
            # The worker's copy may hold the write already: drop it, the host's copy stands.
            self._drop_worker()
            message = "the tool gave a result that its output schema does not allow"
            if self._world.explain:
                message = f"{message}: {problem}"
            return None, ToolFailure(errors.CONTRACT, message), {}
        return self._commit(spec, reply)

    def _commit(self, spec: ToolSpec, reply: Reply) -> tuple[Json, ToolFailure | None, Changes]:
        changes = reply.changes or {}
        if not changes:
            return reply.result, None, {}
        try:
            if spec.effects != "write":
                raise ValueError("a read tool wrote")
            state = apply_changes(self._state, changes)
            after = _checked_state(state)
        except (ValueError, TypeError):
            self._drop_worker()
            message = "the tool made a change that the world does not allow"
            return None, ToolFailure(errors.CONTRACT, message), {}
        self._state, self._hash = state, after
        return reply.result, None, changes

    async def _run(self, tool: str, args: Mapping[str, Json]) -> Reply:
        seed = self._seed(tool, args)
        for _ in range(2):
            try:
                worker = self._worker
                if worker is None or not worker.alive:
                    await self.start()
                    worker = self._worker
                if worker is not None:
                    return await worker.call(tool, args, seed)
            except WorkerLost:
                self._drop_worker()
            if self._closed:  # ended meanwhile: a worker started now would outlive everybody
                return Reply(failure=ToolFailure(errors.UNAVAILABLE, ENDED))
        raise WorkerLost(
            "A call lost its worker twice without the tool's doing.",
            "See `astra doctor` and whether this machine kills processes for memory.",
        )

    def _seed(self, tool: str, args: Mapping[str, Json]) -> bytes:
        key = (self._world.world_digest, self._hash, tool)
        raw = orjson.dumps([key, args], option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(raw).digest()

    def _drop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def restore(self, state: State) -> None:
        """Go back to an earlier state; the next call starts a worker from it."""
        self._drop_worker()
        self._state, self._hash = state, state_hash(state)

    async def aclose(self) -> None:
        """Kill the worker; later calls fail."""
        self._closed = True
        self._drop_worker()
