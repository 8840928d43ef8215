"""Who gets one of the host's slots for episodes, and when to try again.

A request that finds the host full waits its turn: at most `max_waiting` of them, first come first
served, each for at most `wait_s`. Whoever is sent away is told after how many seconds a slot is
likely to be free, from how often slots became free lately. Invariant: a slot that was taken is
given back exactly once, also when its taker is cancelled while it waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from astra_mcp.concurrency import Gate
from astra_mcp.errors import BusyError
from astra_mcp.host.metrics import AdmissionCounts
from astra_mcp.settings import HostSettings

#: Bounds of the advice, in seconds.
SOONEST_S: Final = 1.0
LATEST_S: Final = 30.0
STOPPING_S: Final = 5.0
#: Weight of the newest interval in the average.
_NEWEST: Final = 0.1


class Admission:
    """The slots of a host.

    Args:
        settings: How many slots there are, and how many requests may wait how long.
        clock: Seconds, monotonic.

    Attributes:
        counts: How long requests waited, and how many were sent away.
    """

    def __init__(self, settings: HostSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts = AdmissionCounts()
        self._gate = Gate(settings.max_episodes, settings.max_waiting, settings.wait_s)
        self._clock = clock
        self._stopping = False
        self._freed: float | None = None
        self._interval: float | None = None

    @property
    def taken(self) -> int:
        """Slots in use."""
        return self._gate.inside

    @property
    def waiting(self) -> int:
        """Requests that wait for one."""
        return self._gate.waiting

    async def take(self) -> None:
        """Take a slot, now or in one's turn.

        Raises:
            BusyError: the host is full, with the seconds after which to try again.
        """
        came = self._clock()
        try:
            await self._gate.enter()
        except BusyError as error:
            self.counts.refused += 1
            raise self._full() from error
        self.counts.waits.observe(self._clock() - came)

    def take_anyway(self) -> None:
        """Take a slot for an episode that exists already, whatever the limit says."""
        self._gate.force()

    def give_back(self) -> None:
        """Free a slot; the next that waits has it at once."""
        now = self._clock()
        if self._freed is not None:
            last = now - self._freed
            mean = last if self._interval is None else self._interval
            self._interval = mean + _NEWEST * (last - mean)
        self._freed = now
        self._gate.leave()

    def drain(self) -> None:
        """Send away whoever waits: the host is stopping."""
        self._stopping = True
        self._gate.close()

    def retry_after_s(self) -> float:
        """Seconds after which one more request is likely to find a slot."""
        ahead = self._gate.waiting + 1
        guess = SOONEST_S if self._interval is None else ahead * self._interval
        return round(min(max(guess, SOONEST_S), LATEST_S), 1)

    def _full(self) -> BusyError:
        if self._stopping:
            after = STOPPING_S
            return BusyError("This host is stopping.", f"Try again in {after:g} s.", after)
        after = self.retry_after_s()
        return BusyError(
            f"This host has {self._gate.limit} open episodes and {self._gate.waiting} requests "
            "that wait for one.",
            f"Try again in {after:g} s.",
            after,
        )
