"""The calls of one worker: run a tool inside its limits, settle the state, compose the answer.

[tool, arguments, seed] -> {"r": result, "c": changed rows} or {"e": [code, message]}. Invariant: an
answer leaves the state committed or exactly as it was, and nothing but the state survives a call:
the module is executed afresh unless it provably keeps nothing, clock and randomness start anew.
Whatever a tool raises ends here; no text of it reaches the agent but a ToolError's.
"""

from __future__ import annotations

import gc
import json
import signal
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

from astra_mcp.sandbox import determinism, policy, wire
from astra_mcp.sandbox.facades import Namespace
from astra_mcp.sandbox.guards import TOOL
from astra_mcp.sandbox.wire import Order
from astra_mcp.sandbox.working import Changes, StateBreach, WorkingState

Json = Any
_REPEAT_S: Final = 0.05  # a tool that swallows the time-out meets it again


@dataclass(frozen=True, slots=True)
class Program:
    """A parsed bundle, ready to be executed by workers."""

    order: Order
    code: CodeType
    facts: policy.Facts
    namespace: Namespace

    def execute(self) -> dict[str, Any]:
        """Run the module; its globals.

        Raises:
            NameError: a tool of the manifest is no function there.
        """
        plain: dict[str, Any] = {"__name__": TOOL}
        names = self.namespace.fresh() if self.order.guarded else plain
        exec(self.code, names)
        for name in self.order.tools:
            if not callable(names.get(name)):
                raise NameError(f"the code defines no function {name}()")
        return names


class ToolTimeout(BaseException):
    """The call's CPU time is used up; no `except Exception` of a tool catches it."""


class ContractBreach(Exception):
    """The call did something a tool may not do; the text is for the agent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CallTimer:
    """CPU time per call, so that load on the machine does not change the outcome.

    A profiling timer raises in Python code; a virtual timer at twice the time ends the process when
    the tool sits in C code or swallows what is raised. The host's wall deadline is the last resort.
    """

    def __init__(self) -> None:
        self._armed = False
        signal.signal(signal.SIGPROF, self._on_time)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)

    def start(self, seconds: float) -> None:
        """Begin to count."""
        self._armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, 2 * seconds + 4 * _REPEAT_S)
        signal.setitimer(signal.ITIMER_PROF, seconds, _REPEAT_S)

    def stop(self) -> None:
        """Count no longer; a signal already on its way does nothing."""
        self._armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _on_time(self, *_: object) -> None:
        if self._armed:
            raise ToolTimeout


@dataclass(slots=True)
class Session:
    """The calls of one worker."""

    program: Program
    state: WorkingState
    timer: CallTimer
    _names: dict[str, Any] = field(default_factory=dict)
    _fresh: bool = False

    def load(self) -> str | None:
        """Execute the module once; why it cannot be loaded, or None."""
        order = self.program.order
        self._set_sources(b"load")
        try:
            try:
                self.timer.start(order.load_seconds)
                self._names = self.program.execute()
            except (ToolTimeout, MemoryError):
                raise
            except BaseException as error:  # noqa: BLE001 - whatever module-level code raises
                return f"{type(error).__name__} at module level: {_text(error)}"
            finally:
                self.timer.stop()
        except ToolTimeout:
            self.timer.stop()
            return f"the module level used more than {order.load_seconds:g} s of CPU time"
        except MemoryError:
            return f"the module level used more than {order.memory_mb} MB"
        except BaseException as error:  # noqa: BLE001 - its text raised in turn
            return f"{type(error).__name__} at module level"
        self._fresh = self.program.facts.keeps_nothing
        return None

    def answer(self, tool: str, args: dict[str, Json], seed: bytes) -> bytes:
        """The body of the reply to one call; leaves the state committed or as it was."""
        writes = self.program.order.tools[tool] == "write"
        try:
            result = self._run(tool, args, seed)
            changes, body = self._settle(writes)
        except ContractBreach as error:
            self.state.reload()
            return _failure(error.code, str(error))
        if writes:
            self.state.commit(changes)
        elif self.state.touched:
            self.state.reload()
        return b'{"r":%b,"c":%b}' % (result, body)

    def _run(self, tool: str, args: dict[str, Json], seed: bytes) -> bytes:
        """Call the tool inside its limits; its result as JSON."""
        order = self.program.order
        try:
            try:
                self.timer.start(order.call_seconds)
                self._set_sources(seed)
                if not self._fresh:
                    self._names.clear()  # functions and their globals hold each other
                    self._names = self.program.execute()
                self._fresh = self.program.facts.keeps_nothing
                return _result(self._names[tool](self.state.live, **args), order.output_bytes)
            except (ContractBreach, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever a tool raises
                raise _as_failure(error, order.explain) from None
            finally:
                self.timer.stop()
        except ToolTimeout:
            self.timer.stop()  # the signal may have come just before the first stop
            message = f"the tool used more than {order.call_seconds:g} s of CPU time"
            raise ContractBreach(wire.TIMEOUT, message) from None
        except MemoryError:
            gc.collect()
            raise _too_much_memory(order) from None
        except ContractBreach:
            raise
        except BaseException:  # noqa: BLE001 - SystemExit and a tool's own BaseExceptions
            raise _crash() from None

    def _set_sources(self, seed: bytes) -> None:
        determinism.set_clock(self.program.order.now_s)
        imports = self.program.facts.imports
        if not imports.isdisjoint(determinism.SEEDED):
            determinism.reseed(seed)
        if "decimal" in imports:
            determinism.reset_context()

    def _settle(self, may_write: bool) -> tuple[Changes, bytes]:
        """What the call changed, also as JSON."""
        try:
            changes = self.state.changes()
            body = wire.encode(changes) if changes else b"{}"
        except StateBreach as error:
            raise ContractBreach(wire.CONTRACT, str(error)) from None
        except MemoryError:
            raise _too_much_memory(self.program.order) from None
        except ValueError:
            raise ContractBreach(wire.CONTRACT, "the changed rows have no JSON form") from None
        if changes and not may_write:
            raise ContractBreach(wire.CONTRACT, "a tool that only reads changed the state")
        if len(body) > wire.MAX_CHANGES:
            message = f"the tool changed more than {wire.MAX_CHANGES} bytes of rows in one call"
            raise ContractBreach(wire.OUTPUT_LIMIT, message)
        return changes, body


def _result(value: Json, limit: int) -> bytes:
    if not isinstance(value, dict):
        raise ContractBreach(wire.CONTRACT, "the tool's result is no object")
    try:
        body = wire.encode(value)
        fault = wire.json_fault(value)
    except (ValueError, TypeError, RecursionError):
        raise ContractBreach(wire.CONTRACT, "the tool's result has no JSON form") from None
    if fault is not None:
        raise ContractBreach(wire.CONTRACT, f"the tool's result holds {fault}")
    if len(body) > limit:
        raise ContractBreach(wire.OUTPUT_LIMIT, f"the tool's result is larger than {limit} bytes")
    return body


def _as_failure(error: Exception, explain: bool) -> ContractBreach:
    """A tool's own `ToolError` with its code and text; anything else says nothing, unless asked."""
    code = getattr(error, "code", None)
    if type(error).__name__ != "ToolError" or type(code) is not str or not code:
        return ContractBreach(wire.CRASH, _explained(error)) if explain else _crash()
    return ContractBreach(code[: wire.MAX_CODE], _text(error))


def _explained(error: Exception) -> str:
    """Which exception, its text, and the last line of the tool's own code on its way."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == TOOL:
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f" (line {line} of tools.py)" if line else ""
    return f"{type(error).__name__}: {_text(error)}{where}"


def _too_much_memory(order: Order) -> ContractBreach:
    message = f"the tool used more than {order.memory_mb} MB of memory"
    return ContractBreach(wire.MEMORY_LIMIT, message)


def _crash() -> ContractBreach:
    return ContractBreach(wire.CRASH, "the tool failed unexpectedly")


def _text(error: BaseException) -> str:
    return str.__str__(str(error))[: wire.MAX_MESSAGE]


def _failure(code: str, message: str) -> bytes:
    body = json.dumps({"e": [code, message]}, ensure_ascii=False)
    return body.encode("utf-8", "replace")
