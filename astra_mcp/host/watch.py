"""Watching a host: what is counted for every call, and the page that /metrics shows.

`Watch.called` runs once a call on the hot path, so it only counts. Everything that can be looked up
is looked up when somebody scrapes: a host that nobody watches pays for counters alone. No line
holds a token, a sealed value, an episode's id or a word of an agent; the page is still not an
agent's to read, since it tells what others do (app.py asks for a token).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import anyio

from astra_mcp import __version__
from astra_mcp.host.exposition import (
    Family,
    calls,
    counter,
    counters,
    gauge,
    histogram,
    info,
    render,
)
from astra_mcp.host.metrics import (
    LAG_BOUNDS,
    AdmissionCounts,
    CallCounts,
    EpisodeCounts,
    Histogram,
    outcome_of,
)
from astra_mcp.host.process import Readings
from astra_mcp.host.service import McpService

LAG_EVERY_S: Final = 0.25
_CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")


class Spans(Protocol):
    """Who wants to hear of each call, besides the counters; tracing.py has one."""

    def called(
        self, service: McpService, tool: str, outcome: str, seconds: float, *, control: bool
    ) -> None:
        """One call has just ended."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a host holds at this moment.

    Attributes:
        gauges: Name of the metric without its prefix -> help text and value.
        episodes, admission: Their counts.
        workers_started: Workers forked since the start.
        responses: HTTP answers by the first digit of the status.
        process: What the operating system says.
    """

    gauges: Mapping[str, tuple[str, float]]
    episodes: EpisodeCounts
    admission: AdmissionCounts
    workers_started: int
    responses: Sequence[int]
    process: Readings


class Watch:
    """The counters of one host.

    Args:
        control: The control plane's service, whose calls are operations and not tool calls.
        spans: Also told of each call; None costs nothing.
    """

    def __init__(self, control: McpService, spans: Spans | None = None) -> None:
        self.calls = CallCounts()
        self.operations = CallCounts()
        self.lag = Histogram(LAG_BOUNDS)
        self._started = time.time()
        self._control = control
        self._spans = spans

    def called(self, service: McpService, tool: str, code: str, seconds: float) -> None:
        """Count one call that has just ended.

        Args:
            tool: What the client called it; stands in a label only when it is an operation.
            code: Code of the failure, "" when it succeeded.
            seconds: Wall time.
        """
        outcome = outcome_of(code)
        control = service is self._control
        if control:
            known = tool in service.tools().names
            self.operations.add(tool if known else "unknown", outcome, seconds)
        else:
            self.calls.add(service.name, outcome, seconds)
        if self._spans is not None:
            self._spans.called(service, tool, outcome, seconds, control=control)

    async def measure_lag(self) -> None:
        """See how late the event loop wakes a sleeper, until cancelled."""
        while True:
            due = anyio.current_time() + LAG_EVERY_S
            await anyio.sleep(LAG_EVERY_S)
            self.lag.observe(max(0.0, anyio.current_time() - due))

    def page(self, facts: Facts) -> bytes:
        """Everything in the text format of Prometheus."""
        return render([*self._families(facts)])

    def _families(self, facts: Facts) -> Iterator[Family]:
        yield info("astra_build_info", "Version of the host.", {"version": __version__})
        yield from self._call_families()
        yield from _episode_families(facts)
        for name, (text, value) in facts.gauges.items():
            yield gauge(f"astra_{name}", text, value)
        yield counter(
            "astra_sandbox_workers_started_total",
            "Workers forked; much faster than episodes and sessions open means that they die.",
            facts.workers_started,
        )
        yield counters(
            "astra_http_responses_total",
            "HTTP answers by class of status.",
            "class",
            dict(zip(_CLASSES, facts.responses[1:], strict=True)),
        )
        yield histogram(
            "astra_event_loop_lag_seconds",
            f"How late a timer fired, tried every {LAG_EVERY_S} s.",
            [({}, self.lag)],
        )
        yield from self._process_families(facts.process)

    def _call_families(self) -> Iterator[Family]:
        every, bundles = self.calls.all, self.calls.by_key
        by_bundle = [({"bundle": key}, one) for key, one in bundles.items()]
        operations = [({"operation": key}, one) for key, one in self.operations.by_key.items()]
        yield calls("astra_tool_calls_total", "Tool calls by outcome.", [({}, every)])
        yield histogram(
            "astra_tool_call_seconds", "Wall time of tool calls.", [({}, every.seconds)]
        )
        yield calls(
            "astra_bundle_tool_calls_total",
            f"Tool calls of the {self.calls.most} bundles called last, by outcome.",
            by_bundle,
        )
        yield histogram(
            "astra_bundle_tool_call_seconds",
            "Wall time of their tool calls.",
            [(labels, one.seconds) for labels, one in by_bundle],
        )
        yield counter(
            "astra_bundle_series_dropped_total",
            "Bundles whose series were dropped for those of another.",
            self.calls.dropped,
        )
        yield calls(
            "astra_control_operations_total", "Operations of the control plane.", operations
        )
        yield histogram(
            "astra_control_operation_seconds",
            "Wall time of operations of the control plane.",
            [(labels, one.seconds) for labels, one in operations],
        )

    def _process_families(self, seen: Readings) -> Iterator[Family]:
        yield gauge("process_start_time_seconds", "Start, POSIX seconds.", self._started)
        yield counter("process_cpu_seconds_total", "CPU time of the host.", seen.cpu_s)
        yield gauge("process_resident_memory_bytes", "Resident memory of the host.", seen.rss_bytes)
        yield gauge(
            "astra_tree_resident_memory_bytes",
            "Resident memory of the host and its sandbox; shared pages count once a process.",
            seen.tree_rss_bytes,
        )
        yield gauge(
            "astra_tree_proportional_memory_bytes",
            "The same with shared pages shared out, estimated from a sample of the workers.",
            seen.tree_pss_bytes,
        )
        yield gauge("process_open_fds", "Open descriptors of the host.", seen.open_fds)
        yield gauge("process_max_fds", "Descriptors that the host may have.", seen.max_fds)


def _episode_families(facts: Facts) -> Iterator[Family]:
    counts, admission = facts.episodes, facts.admission
    yield counter("astra_episodes_opened_total", "Episodes opened.", counts.opened)
    yield counter(
        "astra_episodes_restored_total", "Open episodes taken over at start.", counts.restored
    )
    yield counters("astra_episodes_ended_total", "Episodes by end.", "status", counts.ended)
    yield counters(
        "astra_null_rewards_total",
        "Episodes that ended without a reward, by cause.",
        "reason",
        counts.null_rewards,
    )
    yield histogram(
        "astra_admission_wait_seconds",
        "How long open_episode waited for a slot that it got.",
        [({}, admission.waits)],
    )
    yield counter(
        "astra_admission_refused_total", "Requests for a slot sent away.", admission.refused
    )
