"""The host's side of one worker: one call at a time, each with an end.

A failure that the tool caused is data (`Reply.failure`); a worker that ended without the tool's
doing raises `WorkerLost`. After any breach of the protocol the worker is killed and the call is a
`crash`; a cancelled call costs the worker too, so that its answer never meets the next call.
CPU time is measured inside; the wall deadline here is for what escapes that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

import orjson

from astra_mcp import errors
from astra_mcp.errors import ToolFailure
from astra_mcp.sandbox.channel import Line, LineBreach, LineClosed
from astra_mcp.sandbox.forker import Process
from astra_mcp.sandbox.reply import Reply, WorkerLost, crashed, epitaph, out_of_time, read_reply
from astra_mcp.sandbox.wire import Order

Json = Any
_SWEEP_S: Final = 0.05
MAX_ARGUMENTS: Final = 4 << 20


class Home(Protocol):
    """What a worker needs of the template it comes from."""

    order: Order
    deadlines: Deadlines
    workers: set[Worker]

    @property
    def alive(self) -> bool:
        """Whether the template can still be asked."""

    @property
    def wall_s(self) -> float:
        """Wall time of one call."""

    async def ended(self, pid: int) -> int | None:
        """Wait status of a worker that ended."""


class Worker:
    """One episode's process: a working copy of the state, one call at a time.

    Attributes:
        pid: Its process id.
    """

    def __init__(self, home: Home, line: Line, process: Process, tables: frozenset[str]) -> None:
        self.pid = process.pid
        self._home = home
        self._line = line
        self._process = process
        self._tables = tables
        self._turn = asyncio.Lock()
        self._killed = False
        self._overdue = False
        self._changed_bytes = 0
        home.workers.add(self)

    @property
    def alive(self) -> bool:
        """Whether it can take a call, as far as is known."""
        return not (self._killed or self._line.closed)

    async def call(self, tool: str, args: Mapping[str, Json], seed: bytes) -> Reply:
        """Call one tool.

        Args:
            tool: A tool of the template.
            args: Its arguments.
            seed: Decides all randomness inside this call.

        Raises:
            WorkerLost: the worker went away without the tool's doing.
        """
        order = self._home.order
        if tool not in order.tools:
            return Reply(failure=ToolFailure(errors.UNKNOWN_TOOL, "there is no such tool"))
        try:
            body = orjson.dumps([tool, dict(args), seed.hex()])
        except orjson.JSONEncodeError:
            message = "the arguments have no JSON form, or are nested too deeply"
            return Reply(failure=ToolFailure(errors.INVALID_ARGUMENTS, message))
        if len(body) > MAX_ARGUMENTS:
            message = f"the arguments are larger than {MAX_ARGUMENTS} bytes"
            return Reply(failure=ToolFailure(errors.INVALID_ARGUMENTS, message))
        async with self._turn:
            try:
                answer = await self._exchange(body)
                reply = read_reply(
                    answer,
                    writes=order.tools[tool] == "write",
                    tables=self._tables,
                    output_bytes=order.output_bytes,
                )
                self._count(reply, len(answer))
                return reply
            except LineBreach:
                self.kill()
                return crashed()
            except LineClosed:
                return await self._post_mortem()

    async def _exchange(self, body: bytes) -> bytes:
        if self._killed:
            raise WorkerLost("The worker was stopped.", "Start another one from the state.")
        deadlines = self._home.deadlines
        deadlines.add(self, self._home.wall_s)
        try:
            return await self._line.request(body)
        except asyncio.CancelledError:
            self.kill()  # else its answer would wait there for the next call
            raise
        finally:
            deadlines.remove(self)

    def _count(self, reply: Reply, size: int) -> None:
        """Rows that a worker reports may not outgrow what it could hold."""
        if reply.changes:
            self._changed_bytes += size
            if self._changed_bytes > self._home.order.memory_mb << 20:
                raise LineBreach

    async def _post_mortem(self) -> Reply:
        """The reply of a call whose worker is gone."""
        order = self._home.order
        if self._overdue:
            return out_of_time(order.call_seconds)
        if self._killed:
            raise WorkerLost("The worker was stopped.", "Start another one from the state.")
        ended = await self._home.ended(self.pid)
        alone = ended is None and self._home.alive
        self.kill()
        if alone:  # it closed its line and lives on, which no healthy worker does
            return crashed()
        reply = epitaph(ended, order.call_seconds)
        if reply is None:
            raise WorkerLost(
                "A worker went away without its tool's doing.", "Start another one from the state."
            )
        return reply

    def expire(self) -> None:
        """Kill it because its call took too much wall time."""
        self._overdue = True
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self._killed = True
        self._home.workers.discard(self)
        self._process.kill()
        self._line.close()


class Deadlines:
    """Kills workers whose call is overdue; one timer for all, as one per call would cost more."""

    def __init__(self) -> None:
        self._due: dict[Worker, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, worker: Worker, seconds: float) -> None:
        """Give `worker` that many seconds from now."""
        loop = self._loop
        if loop is None:  # see channel.py
            loop = self._loop = asyncio.get_running_loop()
        self._due[worker] = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_later(_SWEEP_S, self._sweep, loop)

    def remove(self, worker: Worker) -> None:
        """Its call is over."""
        self._due.pop(worker, None)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._timer = loop.call_later(_SWEEP_S, self._sweep, loop) if self._due else None
        for worker in [worker for worker, due in self._due.items() if due < now]:
            worker.expire()
