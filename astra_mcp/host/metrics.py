"""What a host counts while it works: calls, operations, episodes, waits. Plain numbers in memory.

Whoever does a thing owns its count and adds to it where it happens; exposition.py reads them when
somebody asks. Invariants: what a label may say is bounded and decided here (ids of served bundles,
names of control operations, codes of our own), never a word of an agent, of a tool's error or of a
task; per bundle only the `BUNDLES` latest used ones are kept. One event loop, so no lock: a call
costs some tenths of a microsecond, a tenth of what prometheus-client takes for the same series.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import Final

from astra_mcp.errors import HOST_CODES, AstraError

#: Upper bounds of latencies in seconds; the last bucket has none.
CALL_BOUNDS: Final = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 20.0,
)  # fmt: skip
WAIT_BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 30.0)
#: uvloop's timers are good to a millisecond.
LAG_BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
#: Bundles with a series of their own; of one more, the one called longest ago is forgotten.
BUNDLES: Final = 256

OK: Final = "ok"
#: The tool refused with a code of its own, which stands in no label.
TOOL_ERROR: Final = "tool_error"
#: An episode's fault, made on purpose; whatever the agent was told.
INJECTED: Final = "injected_fault"
#: The service failed in a way that nobody foresaw.
INTERNAL: Final = "internal"
#: The call was cut off: its deadline, or the end of the host.
STOPPED: Final = "stopped"


def _codes(kind: type[AstraError]) -> set[str]:
    return {kind.code}.union(*map(_codes, kind.__subclasses__()))


_KNOWN: Final = HOST_CODES | _codes(AstraError) | {INJECTED, INTERNAL, STOPPED}


def outcome_of(code: str) -> str:
    """The label of a result's code: "" is ok, a code that is not ours is the tool's own."""
    return OK if not code else code if code in _KNOWN else TOOL_ERROR


class Histogram:
    """How many values fell into which bucket, and their sum.

    Attributes:
        bounds: Upper bounds, ascending; a value equal to one is within it.
        counts: One count a bucket, not cumulative; the last is for what is above every bound.
        total: Sum of the values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Series:
    """Calls of one kind: how many ended how, and how long they took.

    Attributes:
        outcomes: Outcome -> how many.
        seconds: Wall time, from the checked request to its result.
    """

    __slots__ = ("outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.seconds = Histogram(CALL_BOUNDS)


class CallCounts:
    """Calls in all, and by a key that is a bundle's id or an operation's name.

    Args:
        most: Keys with a series of their own. A series that was dropped starts at 0 when its key
            comes back, which rates take for a restart; `all` never forgets.

    Attributes:
        all: Every call.
        by_key: The latest used keys, the one used longest ago first.
        dropped: How many series were forgotten.
    """

    __slots__ = ("all", "by_key", "dropped", "most")

    def __init__(self, most: int = BUNDLES) -> None:
        self.most = most
        self.all = Series()
        self.by_key: OrderedDict[str, Series] = OrderedDict()
        self.dropped = 0

    def add(self, key: str, outcome: str, seconds: float) -> None:
        """Count one call."""
        one = self.by_key.get(key)
        if one is None:
            one = self._new(key)
        else:
            self.by_key.move_to_end(key)
        every = self.all
        bucket = bisect_left(CALL_BOUNDS, seconds)
        for series in (one, every):
            series.outcomes[outcome] = series.outcomes.get(outcome, 0) + 1
            series.seconds.counts[bucket] += 1
            series.seconds.total += seconds

    def _new(self, key: str) -> Series:
        if len(self.by_key) >= self.most:
            self.by_key.popitem(last=False)
            self.dropped += 1
        series = self.by_key[key] = Series()
        return series


#: How the reason of a corrupt episode begins -> what it is counted as.
_CORRUPT: Final = (
    ("its journal does not fold", "journal_mismatch"),
    ("the sandbox failed", "sandbox_failed"),
    ("the grader failed", "grader_failed"),
)


class EpisodeCounts:
    """Episodes by what became of them; each is counted once, in the process that saw it happen.

    Attributes:
        opened: Opened by open_episode.
        restored: Brought back open from their journals at start.
        ended: Status -> how many.
        null_rewards: Why there is no reward -> how many: closed, expired, journal_mismatch,
            sandbox_failed, grader_failed, corrupt (for any other cause), ungraded.
    """

    __slots__ = ("ended", "null_rewards", "opened", "restored")

    def __init__(self) -> None:
        self.opened = 0
        self.restored = 0
        self.ended = dict.fromkeys(("graded", "closed", "expired", "corrupt"), 0)
        self.null_rewards: dict[str, int] = {}

    def end(self, status: str, reason: str, *, rewarded: bool) -> None:
        """Count one end."""
        self.ended[status] += 1
        if not rewarded:
            kind = _why_null(status, reason)
            self.null_rewards[kind] = self.null_rewards.get(kind, 0) + 1


def _why_null(status: str, reason: str) -> str:
    if status == "corrupt":
        return next((kind for start, kind in _CORRUPT if reason.startswith(start)), status)
    return "ungraded" if status == "graded" else status


class AdmissionCounts:
    """Requests for a slot.

    Attributes:
        waits: Seconds until a slot was taken, of those that got one.
        refused: How many were sent away.
    """

    __slots__ = ("refused", "waits")

    def __init__(self) -> None:
        self.waits = Histogram(WAIT_BOUNDS)
        self.refused = 0
