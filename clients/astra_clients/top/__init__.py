"""A host's metrics as a table that lives: `scrape` reads, `snapshot` computes, `screen` shows.

`watch` is the loop of `astra top`. Rates and percentiles are of the time between two looks, so the
first number comes after one interval. Knows the host only by the page that Prometheus reads.
"""

from __future__ import annotations

from astra_clients.top.scrape import Scrape, fetch, parse
from astra_clients.top.snapshot import Snapshot, compare
from astra_clients.top.watch import first_snapshot, watch

__all__ = ["Scrape", "Snapshot", "compare", "fetch", "first_snapshot", "parse", "watch"]
