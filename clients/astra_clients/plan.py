"""What a collection is told and what it reports: data only.

The configuration is everything that decides what the records hold (tasks, agents, seeds, faults,
distractors, limits), and nothing else: not the host's address, its token, the speed, or the clock.
Two runs with one configuration may share an output file; see `astra_clients.output`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from astra_clients.agents import AgentSpec
from astra_clients.control import EpisodeRequest, FarBand, TaskInfo
from astra_mcp.bundle import Bundle
from astra_mcp.canonical import canonical_bytes, digest

Json = Any


class _Plan(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, arbitrary_types_allowed=True
    )


class TaskRef(_Plan):
    """One task to play."""

    task: str = Field(pattern=r"^[^#\s]+#[^#\s]+$")
    """`id@version#task`, or `id#task` for whatever version the host serves."""
    bundle: Bundle | None = Field(default=None, exclude=True, repr=False)
    """The loaded bundle, for agents that know the plan."""


class Deadlines(_Plan):
    """Longest waits, in seconds."""

    request_s: float = Field(default=60.0, gt=0)
    """One request to the host, retries included."""
    busy_s: float = Field(default=120.0, gt=0)
    """A host that has no room."""
    episode_s: float = Field(default=1800.0, gt=0)
    """One agent in one episode."""


class CollectPlan(_Plan):
    """A collection: every task by every agent with every seed."""

    control_url: str
    """The control plane, such as http://127.0.0.1:8000/control/mcp."""
    token: SecretStr
    """The control token."""
    tasks: tuple[TaskRef, ...] = Field(min_length=1)
    agents: tuple[AgentSpec, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    out: Path
    """JSONL file; one record per finished episode."""
    overwrite: bool = False
    """Start anew even when `out` holds records."""
    retry_failed: bool = False
    """Play episodes that ended without a reward again; their old records go."""
    concurrency: int = Field(default=8, ge=1, le=4096)
    """Episodes played at once."""
    fault_rate: float = Field(default=0.0, ge=0.0, le=0.9)
    """Share of calls that fail on purpose."""
    far_distractors: int = Field(default=0, ge=0, le=32)
    """Tools of other bundles to mix in."""
    far_band: FarBand = "any"
    """How similar those bundles are."""
    max_calls: int | None = Field(default=None, ge=1, le=1000)
    """Calls per episode; default: the task's own limit."""
    deadlines: Deadlines = Deadlines()

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        for what, names in (
            ("agents", [agent.name for agent in self.agents]),
            ("tasks", [ref.task for ref in self.tasks]),
            ("seeds", list(map(str, self.seeds))),
        ):
            if len(names) != len(set(names)):
                raise ValueError(f"{what} must be distinct, got {names[:20]}")
        return self

    def configuration(self, tasks: list[str]) -> dict[str, Json]:
        """What decides the records, with every task under its full name."""
        return {
            "tasks": tasks,
            "agents": [agent.model_dump(mode="json") for agent in self.agents],
            "seeds": list(self.seeds),
            "fault_rate": self.fault_rate,
            "far_distractors": self.far_distractors,
            "far_band": self.far_band,
            "max_calls": self.max_calls,
        }

    def request(self, task: str, seed: int) -> EpisodeRequest:
        """The request that opens one of its episodes."""
        return EpisodeRequest(
            task=task,
            seed=seed,
            fault_rate=self.fault_rate,
            far_distractors=self.far_distractors,
            far_band=self.far_band if self.far_distractors else None,
            max_calls=self.max_calls,
        )


def configuration_hash(configuration: dict[str, Json]) -> str:
    """`sha256:...` of a configuration."""
    return digest(canonical_bytes(configuration))


Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play."""

    agent: AgentSpec
    info: TaskInfo
    bundle: Bundle | None
    seed: int

    @property
    def key(self) -> Key:
        """(agent, task, digest, seed): what makes a record the record of this job."""
        return (self.agent.name, self.info.task, self.info.digest, self.seed)

    @property
    def task_id(self) -> str:
        """The task's id within its bundle."""
        return self.info.task.rpartition("#")[2]


def jobs_of(plan: CollectPlan, infos: list[TaskInfo]) -> Iterator[Job]:
    """All episodes of a plan; `infos` in the order of its tasks."""
    for ref, info in zip(plan.tasks, infos, strict=True):
        for agent in plan.agents:
            for seed in plan.seeds:
                yield Job(agent, info, ref.bundle, seed)


@dataclass
class CollectSummary:
    """What a collection did.

    Attributes:
        out: The file with the records.
        planned: Episodes of the plan.
        resumed: Of them, already in the file.
        graded: Played now, with a reward.
        failed: Played now, without one: reason -> how often.
        unopened: Found no host; they have no record and are played by the next run.
        rewards: Rewards of this run by agent.
        calls: Calls made in this run.
        seconds: Wall time of the run.
        aborted: Why the run stopped early, or None.
    """

    out: Path
    planned: int = 0
    resumed: int = 0
    graded: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    unopened: int = 0
    rewards: dict[str, list[float]] = field(default_factory=dict)
    calls: int = 0
    seconds: float = 0.0
    aborted: str | None = None

    @property
    def failures(self) -> int:
        """Episodes of this run that have no reward."""
        return sum(self.failed.values())

    @property
    def complete(self) -> bool:
        """Whether every planned episode has a record, and each of this run a reward."""
        played = self.graded + self.failures
        return self.aborted is None and not self.failures and self.resumed + played == self.planned

    def add(self, record: dict[str, Json]) -> None:
        """Count one record."""
        self.calls += len(record["calls"])
        reward = record["reward"]
        if reward["value"] is None:
            reason = str(reward["reason"])
            self.failed[reason] = self.failed.get(reason, 0) + 1
            return
        self.graded += 1
        self.rewards.setdefault(record["agent"], []).append(reward["value"])

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {
            "out": str(self.out),
            "planned": self.planned,
            "resumed": self.resumed,
            "graded": self.graded,
            "failed": self.failed,
            "unopened": self.unopened,
            "mean_reward": {k: statistics.fmean(v) for k, v in sorted(self.rewards.items())},
            "calls": self.calls,
            "seconds": round(self.seconds, 3),
            "calls_per_s": round(self.calls / self.seconds, 1) if self.seconds else 0.0,
            "aborted": self.aborted,
        }

    def lines(self) -> list[str]:
        """For people."""
        lines = [
            f"{self.graded} of {self.planned} episodes graded in {self.seconds:.1f} s, "
            f"{self.resumed} were there before, {self.failures} without a reward."
        ]
        for agent, values in sorted(self.rewards.items()):
            lines.append(f"  {agent}: mean reward {statistics.fmean(values):.3f} of {len(values)}")
        lines += [f"  no reward, {count}x: {why}" for why, count in sorted(self.failed.items())]
        if self.unopened:
            lines.append(f"  {self.unopened} found no host and were not opened; run again.")
        if self.aborted is not None:
            lines.append(f"Stopped early: {self.aborted} Run the same command again to resume.")
        return lines
