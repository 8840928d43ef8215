"""What runs inside: the template, which parses a bundle's code, and the worker, which executes it.

A template runs no tool code; that happens in workers, each under the narrowest lock, so nothing it
does can reach its siblings or their parent. A worker loads the state and the module once and then
answers calls one at a time (session.py). Imports nothing but its own folder, RestrictedPython and
the standard library; every process here ends at once when its parent or its host goes away.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from astra_mcp.sandbox import determinism, lockdown, policy, wire
from astra_mcp.sandbox.facades import Namespace
from astra_mcp.sandbox.forkserver import ForkServer
from astra_mcp.sandbox.session import CallTimer, Program, Session
from astra_mcp.sandbox.wire import Order
from astra_mcp.sandbox.working import WorkingState

Json = Any
_TEMPLATE_MB: Final = 512


@dataclass(frozen=True, slots=True)
class Base:
    """What the zygote prepared for all templates.

    Attributes:
        layers: Name -> "on" or "off: why", as far as known before a worker exists.
        filters: seccomp programs by process kind; empty when that layer is missing.
        namespace: Makes the globals of tool modules.
        mapped_bytes: Address space of the zygote, on top of which memory limits count.
    """

    layers: Mapping[str, str]
    filters: Mapping[str, lockdown.Filter]
    namespace: Namespace
    mapped_bytes: int

    def lock(self, kind: str) -> None:
        """Narrow this process to what a `kind` ("template", "worker") needs."""
        if kind in self.filters:
            self.filters[kind].install()


def template(fd: int, base: Base) -> None:
    """A template process: parse what the host sends, then fork workers; runs no tool code."""
    os.setsid()
    base.lock("template")
    order = Order(**json.loads(wire.FrameReader(fd).read()[1]))
    ceiling = base.mapped_bytes + (max(_TEMPLATE_MB, order.memory_mb) << 20)
    lockdown.limit(resource.RLIMIT_AS, ceiling)
    try:
        program = Program(order, *_parse(order), base.namespace)
    except (policy.PolicyError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        _send(fd, {"error": str(error)[: wire.MAX_MESSAGE] or type(error).__name__})
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    _send(fd, {"layers": dict(base.layers)})
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
    ForkServer(control, lambda worker_fd: worker(worker_fd, program, base)).serve()


def _parse(order: Order) -> tuple[CodeType, policy.Facts]:
    if not order.guarded:
        return compile(order.code, "<tools>", "exec", dont_inherit=True), policy.Facts(
            determinism.SEEDED, False
        )
    return policy.compile_source(order.code), policy.facts(order.code)


def _send(fd: int, value: Json) -> None:
    wire.write_frame(fd, wire.NO_TAG, wire.encode(value))


def worker(fd: int, program: Program, base: Base) -> None:
    """A worker process: lock, prove the lock, load state and code, then serve calls."""
    order = program.order
    lockdown.limit(resource.RLIMIT_AS, base.mapped_bytes + (order.memory_mb << 20))
    lockdown.limit(resource.RLIMIT_CPU, order.life_seconds, order.life_seconds + 1)
    timer = CallTimer()
    base.lock("worker")
    _send(fd, {"layers": {**base.layers, "selftest": _proof(base)}})
    reader = wire.FrameReader(fd)
    gc.enable()
    state = WorkingState(json.loads(reader.read()[1]))
    session = Session(program, state, timer)
    failure = session.load()
    _send(fd, {"error": failure} if failure is not None else {"ready": True})
    while True:
        tag, body = reader.read()
        tool, args, seed = json.loads(body)
        wire.write_frame(fd, tag, session.answer(tool, args, bytes.fromhex(seed)))


def _proof(base: Base) -> str:
    simulated = base.layers.get("selftest")
    return simulated if simulated is not None else lockdown.self_test()
