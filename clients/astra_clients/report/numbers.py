"""What a report says, computed from records. Pure; reads each record once and keeps no text of it.

A reward that is null is no number: such episodes are counted beside, and no mean includes them.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from astra_mcp.errors import UsageError

Json = Any
K = TypeVar("K")
LABELS: Final = (
    "progress", "repeat", "idle", "distractor", "premature", "ungrounded", "invalid",
    "unknown_tool", "fault",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Episode:
    """The numbers of one record."""

    agent: str
    bundle: str
    task: str
    domain: str
    level: int
    hops: int
    value: float | None
    outcome: bool | None
    recall: float | None
    precision: float | None
    reason: str
    calls: int
    seconds: float
    """From the opening to the grade."""
    call_ms: tuple[float, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, record: Mapping[str, Json]) -> Episode:
        """The numbers of a record.

        Raises:
            UsageError: the record lacks one of them.
        """
        try:
            return cls._of(record)
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"A record lacks {error}.", "Give a file that `astra collect` wrote."
            ) from error

    @classmethod
    def _of(cls, record: Mapping[str, Json]) -> Episode:
        bundle, _, task = record["task"].partition("#")
        times, reward = record["timings"], record["reward"]
        return cls(
            agent=record["agent"],
            bundle=bundle.partition("@")[0],
            task=task,
            domain=record["domain"],
            level=record["level"],
            hops=record["hops"],
            value=reward["value"],
            outcome=reward["outcome"],
            recall=reward["recall"],
            precision=reward["precision"],
            reason=reward["reason"],
            calls=len(record["calls"]),
            seconds=times["open_s"] + times["play_s"] + times["grade_s"],
            call_ms=tuple(times["call_ms"]),
            labels=tuple(call["label"] for call in record["calls"] if call["label"]),
        )


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent over all tasks; times in seconds."""

    agent: str
    episodes: int
    failures: int
    reward: float | None
    outcome: float | None
    recall: float | None
    precision: float | None
    calls: int
    calls_per_episode: float
    calls_per_s: float | None
    p50_s: float | None
    p99_s: float | None
    call_p50_s: float | None
    call_p99_s: float | None
    labels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task over all agents; `rewards` has one mean per agent, None where there is none."""

    bundle: str
    task: str
    domain: str
    level: int
    hops: int
    rewards: tuple[float | None, ...]
    calls_per_s: float | None
    p50_s: float | None
    p99_s: float | None


@dataclass(frozen=True)
class Summary:
    """Everything that a report shows."""

    episodes: list[Episode]
    agents: list[AgentRow] = field(default_factory=list)
    tasks: list[TaskRow] = field(default_factory=list)
    failures: list[tuple[str, int]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    """Step labels that occur, in a fixed order."""

    @property
    def graded(self) -> int:
        """Episodes with a reward."""
        return sum(1 for episode in self.episodes if episode.value is not None)

    @property
    def calls(self) -> int:
        """Calls in all."""
        return sum(episode.calls for episode in self.episodes)

    @property
    def bundles(self) -> list[str]:
        """Bundles in the order of the table."""
        return list(dict.fromkeys(row.bundle for row in self.tasks))


def summarize(records: Iterable[Mapping[str, Json]]) -> Summary:
    """All numbers of a set of records."""
    episodes = [Episode.of(record) for record in records]
    by_agent = _group(episodes, lambda e: e.agent)
    names = sorted(by_agent)
    by_task = _group(episodes, lambda e: (e.level, e.bundle, e.task))
    failures = Counter(e.reason for e in episodes if e.value is None)
    labels = {label for e in episodes for label in e.labels}
    return Summary(
        episodes,
        [_agent_row(name, by_agent[name]) for name in names],
        [_task_row(by_task[key], names) for key in sorted(by_task)],
        failures.most_common(),
        [label for label in LABELS if label in labels] + sorted(labels - set(LABELS)),
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which `share` of the values lie, interpolated; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def mean(values: Iterable[float | bool | None]) -> float | None:
    """The mean of what is there; None when nothing is."""
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _group(episodes: list[Episode], key: Callable[[Episode], K]) -> dict[K, list[Episode]]:
    groups: dict[K, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(key(episode), []).append(episode)
    return groups


def _rate(episodes: list[Episode]) -> float | None:
    """Calls per second of one episode's time."""
    seconds = sum(e.seconds for e in episodes)
    return sum(e.calls for e in episodes) / seconds if seconds > 0 else None


def _agent_row(agent: str, episodes: list[Episode]) -> AgentRow:
    graded = [e for e in episodes if e.value is not None]
    times = [e.seconds for e in graded]
    call_s = [ms / 1000 for e in episodes for ms in e.call_ms]
    calls = sum(e.calls for e in episodes)
    return AgentRow(
        agent=agent,
        episodes=len(episodes),
        failures=len(episodes) - len(graded),
        reward=mean(e.value for e in graded),
        outcome=mean(e.outcome for e in graded),
        recall=mean(e.recall for e in graded),
        precision=mean(e.precision for e in graded),
        calls=calls,
        calls_per_episode=calls / len(episodes),
        calls_per_s=_rate(episodes),
        p50_s=percentile(times, 0.5),
        p99_s=percentile(times, 0.99),
        call_p50_s=percentile(call_s, 0.5),
        call_p99_s=percentile(call_s, 0.99),
        labels=Counter(label for e in episodes for label in e.labels),
    )


def _task_row(episodes: list[Episode], agents: list[str]) -> TaskRow:
    first = episodes[0]
    times = [e.seconds for e in episodes if e.value is not None]
    return TaskRow(
        bundle=first.bundle,
        task=first.task,
        domain=first.domain,
        level=first.level,
        hops=first.hops,
        rewards=tuple(mean(e.value for e in episodes if e.agent == agent) for agent in agents),
        calls_per_s=_rate(episodes),
        p50_s=percentile(times, 0.5),
        p99_s=percentile(times, 0.99),
    )
