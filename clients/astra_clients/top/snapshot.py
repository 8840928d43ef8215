"""What two looks at a host say about the time between them. Pure.

A counter that went back belongs to a host that was restarted: it counts from 0. Percentiles come
from histogram buckets, so they are right to the bucket and interpolated within it. Of a host of
several processes every sample has a label `shard`; all of them are added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from astra_clients.top.scrape import Labels, Scrape

Json = Any
OK: Final = "ok"
BUSIEST: Final = 20
Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Busy:
    """One bundle in the time between; latencies in milliseconds, None without a call."""

    bundle: str
    calls_s: float
    errors_s: float
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A host in the time between two looks; None is what the host does not tell.

    Attributes:
        seconds: How long that time was.
        version: The host's.
        processes, processes_up: How many processes the host has, and how many of them answer.
        uptime_s: Since its start.
        calls_s, errors_s, operations_s: Tool calls, those of them that failed, and operations of
            the control plane, a second.
        errors: Outcome -> failed calls a second.
        p50_ms, p99_ms: Latency of tool calls; lag_p99_ms: of the event loop.
        opened_s: Episodes opened a second.
        ended: Status -> how many since the host's start.
        null_rewards: Reason -> how many since the host's start.
        http_s: Class of status -> answers a second.
        now: Gauges by name without `astra_`: episodes_open, sandbox_workers and so on.
        admission_wait_p99_ms, refused_s: Of the requests for a slot.
        rss_bytes, open_fds, max_fds, cpu: The process; cpu in cores.
        tree_rss_bytes, tree_pss_bytes: The host and its sandbox, shared pages counted once a
            process, or shared out.
        busiest: Bundles with calls in that time, most calls first.
    """

    seconds: float
    version: str
    processes: int
    processes_up: int
    uptime_s: float | None
    calls_s: float
    errors_s: float
    operations_s: float
    errors: Mapping[str, float]
    p50_ms: float | None
    p99_ms: float | None
    lag_p99_ms: float | None
    opened_s: float
    ended: Mapping[str, int]
    null_rewards: Mapping[str, int]
    http_s: Mapping[str, float]
    now: Mapping[str, int]
    admission_wait_p99_ms: float | None
    refused_s: float
    rss_bytes: int | None
    tree_rss_bytes: int | None
    tree_pss_bytes: int | None
    open_fds: int | None
    max_fds: int | None
    cpu: float
    busiest: Sequence[Busy]

    def as_json(self) -> dict[str, Json]:
        """The same as plain JSON."""
        return asdict(self)


GAUGES: Final = (
    "episodes_open",
    "sessions_open",
    "plays_open",
    "calls_in_flight",
    "http_connections",
    "bundles",
    "bundles_loaded",
    "sandbox_templates",
    "sandbox_workers",
    "admission_slots",
    "admission_taken",
    "admission_waiting",
)


def compare(before: Scrape, after: Scrape, now_s: float) -> Snapshot:
    """The host between two looks.

    Args:
        now_s: POSIX seconds, for how long the host has run.
    """
    seconds = max(after.at - before.at, 1e-3)
    grown = _Growth(before, after)
    by_outcome = grown.by_label("astra_tool_calls_total", "outcome")
    errors = {key: n / seconds for key, n in by_outcome.items() if key != OK and n}
    latency = _buckets(grown.of("astra_tool_call_seconds_bucket"))
    started = after.value("process_start_time_seconds", min)
    gauges = {name: after.value(f"astra_{name}") for name in GAUGES}
    gauges["bundles"] = after.value("astra_bundles", max)  # each process serves all of them
    shards = [value for _, value in after.each("astra_shard_up")] or [1]
    return Snapshot(
        seconds=round(seconds, 3),
        version=next((labels["version"] for labels, _ in after.each("astra_build_info")), ""),
        processes=len(shards),
        processes_up=int(sum(shards)),
        uptime_s=None if started is None else round(max(0.0, now_s - started), 1),
        calls_s=sum(by_outcome.values()) / seconds,
        errors_s=sum(errors.values()),
        operations_s=grown.total("astra_control_operations_total") / seconds,
        errors=errors,
        p50_ms=_ms(percentile(latency, 0.5)),
        p99_ms=_ms(percentile(latency, 0.99)),
        lag_p99_ms=_ms(percentile(_buckets(grown.of("astra_event_loop_lag_seconds_bucket")), 0.99)),
        opened_s=grown.total("astra_episodes_opened_total") / seconds,
        ended=_whole(after, "astra_episodes_ended_total", "status"),
        null_rewards=_whole(after, "astra_null_rewards_total", "reason"),
        http_s={
            key: n / seconds
            for key, n in grown.by_label("astra_http_responses_total", "class").items()
        },
        now={name: int(value) for name, value in gauges.items() if value is not None},
        admission_wait_p99_ms=_ms(
            percentile(_buckets(grown.of("astra_admission_wait_seconds_bucket")), 0.99)
        ),
        refused_s=grown.total("astra_admission_refused_total") / seconds,
        rss_bytes=_int(after.value("process_resident_memory_bytes")),
        tree_rss_bytes=_int(after.value("astra_tree_resident_memory_bytes")),
        tree_pss_bytes=_int(after.value("astra_tree_proportional_memory_bytes")),
        open_fds=_int(after.value("process_open_fds")),
        max_fds=_int(after.value("process_max_fds")),
        cpu=grown.total("process_cpu_seconds_total") / seconds,
        busiest=_busiest(grown, seconds),
    )


class _Growth:
    """By how much counters have grown from one look to the next."""

    def __init__(self, before: Scrape, after: Scrape) -> None:
        self._before = before
        self._after = after
        self._seen = {
            labels.get("shard") for samples in before.samples.values() for labels, value in samples
        } - {labels["shard"] for labels, up in before.each("astra_shard_up") if not up}

    def of(self, name: str) -> list[tuple[Labels, float]]:
        """Growth of each series of one metric, of processes that answered both times."""
        old = {_key(labels): value for labels, value in self._before.each(name)}
        found = []
        for labels, value in self._after.each(name):
            if labels.get("shard") not in self._seen:
                continue
            was = old.get(_key(labels), 0.0)
            found.append((labels, value if value < was else value - was))
        return found

    def total(self, name: str) -> float:
        """Growth of all of them."""
        return sum(value for _, value in self.of(name))

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Growth by one label."""
        found: dict[str, float] = {}
        for labels, value in self.of(name):
            key = labels.get(label, "")
            found[key] = found.get(key, 0.0) + value
        return found


def _busiest(grown: _Growth, seconds: float) -> list[Busy]:
    counts: dict[str, list[float]] = {}
    for labels, value in grown.of("astra_bundle_tool_calls_total"):
        pair = counts.setdefault(labels["bundle"], [0.0, 0.0])
        pair[0] += value
        pair[1] += value if labels["outcome"] != OK else 0.0
    called = sorted((key for key in counts if counts[key][0]), key=lambda key: -counts[key][0])
    shown = called[:BUSIEST]
    latencies: dict[str, list[tuple[Labels, float]]] = {key: [] for key in shown}
    for labels, value in grown.of("astra_bundle_tool_call_seconds_bucket"):
        if labels["bundle"] in latencies:
            latencies[labels["bundle"]].append((labels, value))
    return [
        Busy(
            key,
            counts[key][0] / seconds,
            counts[key][1] / seconds,
            _ms(percentile(_buckets(latencies[key]), 0.5)),
            _ms(percentile(_buckets(latencies[key]), 0.99)),
        )
        for key in shown
    ]


def _key(labels: Labels) -> Key:
    return tuple(sorted(labels.items()))


def _buckets(samples: Iterable[tuple[Labels, float]]) -> list[tuple[float, float]]:
    """(upper bound, values up to it) of one histogram, ascending."""
    found: dict[float, float] = {}
    for labels, value in samples:
        bound = float(labels["le"])
        found[bound] = found.get(bound, 0.0) + value
    return sorted(found.items())


def percentile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """The value below which `share` of a histogram lies; None for an empty one.

    Of what is above the last bound nothing is known but that: the bound is given.
    """
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return None
    wanted, low, seen = share * total, 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted and count > seen:
            if math.isinf(bound):
                return low
            return low + (bound - low) * (wanted - seen) / (count - seen)
        low, seen = bound, count
    return low


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)


def _whole(scrape: Scrape, name: str, label: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for labels, value in scrape.each(name):
        found[labels[label]] = found.get(labels[label], 0) + int(value)
    return found
