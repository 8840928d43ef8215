"""Worlds of trusted Python objects: the other implementation of the `Environment` interface.

For an operator's own classes, which run in the host's process without a sandbox: never for code
that a bundle brings. Invariants are those of world.py: arguments and results fit their schemas,
every failure is an outcome, every call has a deadline.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import orjson

from astra_mcp import errors
from astra_mcp.bundle import Server, State, ToolSpec
from astra_mcp.canonical import canonical_bytes, deeper_than, digest, state_hash
from astra_mcp.concurrency import Gate
from astra_mcp.errors import SandboxError, ToolFailure
from astra_mcp.settings import CALLS_WAITING, MAX_ARGUMENT_DEPTH, TURN_WAIT_S
from astra_mcp.world import Outcome, Progress, Validators, too_deep

Json = Any
CLOSE_S = 5.0


class TrustedWorld:
    """A world of trusted Python objects: each tool is a method of what `factory` makes.

    The object runs in the host's process, so only the operator's own code belongs here. A method
    may be async, may take a keyword `progress`, and fails by raising an exception with a text
    attribute `code`; any other exception is a crash. When the object has a method `snapshot`, what
    it returns ({table: {row id: row}}) is the state.
    """

    def __init__(
        self,
        ref: str,
        servers: Sequence[Server],
        tools: Sequence[ToolSpec],
        factory: Callable[[], object],
        call_seconds: float = 60.0,
    ) -> None:
        self.ref = ref
        self.servers = servers
        self.tools: Mapping[str, ToolSpec] = {tool.name: tool for tool in tools}
        specs = [tool.model_dump(mode="json") for tool in tools]
        self.world_digest = digest(ref.encode(), canonical_bytes(specs))
        self.call_seconds = call_seconds
        self.validators = Validators()
        self._factory = factory

    async def open(self, state: State | None = None) -> TrustedEnvironment:
        """A fresh object.

        Raises:
            SandboxError: `state` is given: a trusted object cannot be restored from rows.
        """
        if state is not None:
            raise SandboxError(
                f"{self.ref} is a trusted object and cannot be restored from a saved state.",
                "Open a new episode.",
            )
        return TrustedEnvironment(self, self._factory())

    async def aclose(self) -> None:
        """Nothing to end."""


class TrustedEnvironment:
    """One live object of a `TrustedWorld`."""

    def __init__(self, world: TrustedWorld, target: object) -> None:
        self._world = world
        self._target = target
        self._snapshot = getattr(target, "snapshot", None)
        self._methods: dict[str, tuple[Callable[..., Any], bool]] = {}
        self._gate = Gate(1, CALLS_WAITING, TURN_WAIT_S)
        self._state: State = {}
        self._hash = state_hash(self._state)
        self._refresh()

    @property
    def state(self) -> State:
        """The object's last snapshot, {} when it has none."""
        return self._state

    @property
    def state_hash(self) -> str:
        """sha256 hex of the snapshot."""
        return self._hash

    def _refresh(self) -> None:
        if self._snapshot is not None:
            self._state = orjson.loads(orjson.dumps(self._snapshot()))
            self._hash = state_hash(self._state)

    async def call(
        self, tool: str, args: Mapping[str, Json], progress: Progress | None = None
    ) -> Outcome:
        """Run the method of that name, within the world's `call_seconds`."""
        start = time.perf_counter()
        await self._gate.enter()
        try:
            before = self._hash
            result, failure = await self._guarded(tool, args, progress)
            self._refresh()
            after = self._hash
        finally:
            self._gate.leave()
        return Outcome(result, failure, {}, before, after, time.perf_counter() - start)

    async def _guarded(
        self, tool: str, args: Mapping[str, Json], progress: Progress | None
    ) -> tuple[Json, ToolFailure | None]:
        spec = self._world.tools.get(tool)
        if spec is None:
            return None, ToolFailure(errors.UNKNOWN_TOOL, "there is no such tool")
        if deeper_than(args, MAX_ARGUMENT_DEPTH):
            return None, too_deep()
        takes, gives = self._world.validators(spec)
        if (problem := takes.check(args)) is not None:
            return None, ToolFailure(errors.INVALID_ARGUMENTS, problem)
        try:
            result = await self._invoke(tool, args, progress)
        except TimeoutError:
            return None, ToolFailure(errors.TIMEOUT, "the tool took too long")
        except Exception as error:  # noqa: BLE001 - the boundary to an operator's own object
            code = getattr(error, "code", None)
            if isinstance(code, str):
                return None, ToolFailure(code, str(error)[:500])
            return None, ToolFailure(errors.CRASH, "the tool failed unexpectedly")
        if gives.check(result) is not None:
            message = "the tool gave a result that its output schema does not allow"
            return None, ToolFailure(errors.CONTRACT, message)
        return result, None

    async def _invoke(self, tool: str, args: Mapping[str, Json], progress: Progress | None) -> Json:
        method, takes_progress = self._method(tool)
        result = method(**args, progress=progress) if takes_progress else method(**args)
        if isinstance(result, dict) or not inspect.isawaitable(result):
            return result
        # Only what waits can be stopped, so a plain method is not charged for a deadline.
        with anyio.fail_after(self._world.call_seconds):
            return await result

    def _method(self, tool: str) -> tuple[Callable[..., Any], bool]:
        """The method of that name, and whether it takes `progress`; looked up once."""
        found = self._methods.get(tool)
        if found is None:
            method = getattr(self._target, tool)
            found = method, "progress" in inspect.signature(method).parameters
            self._methods[tool] = found
        return found

    def restore(self, state: State) -> None:
        """A trusted object keeps its own state.

        Raises:
            SandboxError: always.
        """
        raise SandboxError("A trusted object cannot go back.", "Open a new one.")

    async def aclose(self) -> None:
        """Close the object when it can be closed."""
        close = getattr(self._target, "close", None)
        if close is not None:
            done = close()
            if inspect.isawaitable(done):
                with anyio.move_on_after(CLOSE_S):
                    await done
