"""Task groups whose single failure comes out as itself, and gates that nobody waits at for ever.

anyio wraps even one exception into a group; our errors are meant for a person, who wants the one
sentence. Several failures at once stay a group. A gate is a lock or a set of slots with two bounds
that locks do not have: how many may wait, and how long each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
from anyio.abc import TaskGroup

from astra_mcp.errors import BusyError


@asynccontextmanager
async def task_group() -> AsyncIterator[TaskGroup]:
    """Like `anyio.create_task_group`, but one exception is raised bare."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Stop the block after `seconds`; the caller is told to try again.

    Raises:
        BusyError: it took longer.
    """
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise BusyError(f"{what} takes longer than {seconds:g} s.", "Try again later.") from error


class _Waiter:
    """One that waits at a gate, and whether it was let in."""

    __slots__ = ("inside", "woken")

    def __init__(self) -> None:
        self.woken = anyio.Event()
        self.inside = False


class Gate:
    """At most `limit` are inside; others wait in the order in which they came.

    Args:
        limit: How many may be inside.
        most: How many may wait.
        wait_s: How long one may wait, in seconds.

    Attributes:
        inside: How many are inside; may exceed `limit` after `force`.
    """

    __slots__ = ("_closed", "_queue", "_wait_s", "inside", "limit", "most")

    def __init__(self, limit: int, most: int, wait_s: float) -> None:
        self.inside = 0
        self.limit = limit
        self.most = most
        self._wait_s = wait_s
        self._queue: list[_Waiter] = []  # a deque takes 600 bytes when it is empty
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    async def enter(self, *, first: bool = False, counted: bool = True) -> None:
        """Come in, now or in one's turn; whoever does calls `leave` once.

        Args:
            first: Wait before all others.
            counted: Whether `most` applies; without it only the time is bounded.

        Raises:
            BusyError: as many wait as may, the wait was too long, or the gate is closed.
        """
        if self._closed:
            raise BusyError("This is being stopped.", "Try again later.")
        if self.inside < self.limit and not self._queue:
            self.inside += 1
            return
        if counted and len(self._queue) >= self.most:
            raise BusyError(f"{len(self._queue)} others are waiting already.", "Try again later.")
        await self._wait(first)

    async def _wait(self, first: bool) -> None:
        me = _Waiter()
        if first:
            self._queue.insert(0, me)
        else:
            self._queue.append(me)
        try:
            with anyio.move_on_after(self._wait_s):
                await me.woken.wait()
        except BaseException:
            self._withdraw(me)
            raise
        if not me.inside:
            self._withdraw(me)
            raise BusyError("The wait was too long.", "Try again later.")

    def _withdraw(self, waiter: _Waiter) -> None:
        if waiter.inside:
            self.leave()
        elif waiter in self._queue:
            self._queue.remove(waiter)

    def force(self) -> None:
        """Come in whatever the limit says."""
        self.inside += 1

    def leave(self) -> None:
        """Go out; the next that waits comes in."""
        self.inside -= 1
        while self._queue and self.inside < self.limit:
            waiter = self._queue.pop(0)
            waiter.inside = True
            self.inside += 1
            waiter.woken.set()

    def close(self) -> None:
        """Send everybody that waits away, and let nobody in any more."""
        self._closed = True
        while self._queue:
            self._queue.pop(0).woken.set()
