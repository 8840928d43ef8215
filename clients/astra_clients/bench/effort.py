"""How much a run measures: `FULL` for numbers to publish, `QUICK` for a look, `TINY` for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Effort:
    """What one run does.

    Attributes:
        name: Stands in the output.
        rounds: How often each server is measured, in turn with the others.
        warm_s, run_s: Seconds of load before and while it is measured, per round and concurrency.
        concurrencies: Connections that call at the same time.
        episodes: Graded episodes played for the rate, and opened one by one for the latency.
        idle_episodes: Episodes that stay open and idle while the host's memory is read.
        bundles: Bundles that the large host registers.
        client_calls: Calls per client and concurrency.
        world_calls: Calls of the world without any network.
    """

    name: str
    rounds: int
    warm_s: float
    run_s: float
    concurrencies: tuple[int, ...]
    episodes: int
    idle_episodes: int
    bundles: int
    client_calls: int
    world_calls: int


FULL: Final = Effort("full", 7, 0.5, 2.0, (1, 16, 64), 400, 1000, 10_000, 2000, 10_000)
QUICK: Final = Effort("quick", 2, 0.15, 0.35, (1, 16, 64), 80, 200, 10_000, 200, 2000)
TINY: Final = Effort("tiny", 1, 0.05, 0.1, (1, 16), 8, 10, 50, 20, 50)
