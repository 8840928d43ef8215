"""The data of an episode: what it was opened with, what the user answers, where it is written down.

Models and small records only; what happens in an episode is episode.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from pydantic import Field

from astra_mcp.bundle import State, ToolSpec
from astra_mcp.match.models import Strict
from astra_mcp.world import Environment, Outcome, World

Json = Any
Status = Literal["open", "graded", "closed", "expired", "corrupt"]

_NOT_KEPT: Final[set[str]] = set()


class EpisodeSpec(Strict):
    """What an episode was opened with; the journal's header."""

    episode_id: str
    task: str
    """`id@version#task`."""
    digest: str
    seed: int = 0
    fault_rate: float = Field(default=0.0, ge=0.0, le=0.9)
    far: list[str] = []
    """Far distractors as `bundle ref#tool`."""
    max_calls: int
    agent_io: bool = False
    idle_s: float
    total_s: float

    def model_post_init(self, context: Any, /) -> None:
        """Drop the names of the fields that were given: 700 bytes, and nobody asks for them."""
        object.__setattr__(self, "__pydantic_fields_set__", _NOT_KEPT)


class UserReply(Strict):
    """What the user says to a message of the agent."""

    kind: Literal["user", "nudge", "end"]
    text: str | None = None
    tools_changed: bool = False


@dataclass(frozen=True, slots=True)
class FarTool:
    """A distractor of another bundle, with the world that answers for it."""

    spec: ToolSpec
    world: World


@dataclass
class FarCall:
    """A call in a distractor's world, which has a state of its own."""

    ref: str
    environment: Environment
    before: State
    outcome: Outcome | None = None

    @property
    def event(self) -> dict[str, Json]:
        """What the journal keeps of it."""
        assert self.outcome is not None
        changes, after = self.outcome.changes, self.outcome.state_after
        return {"far": {"ref": self.ref, "changes": changes, "state_after": after}}

    def undo(self) -> None:
        """Take it back."""
        if self.outcome is not None and self.outcome.changes:
            self.environment.restore(self.before)


class Log(Protocol):
    """Where an episode writes what happened, before anybody is told; raises JournalError."""

    def append(self, event: Mapping[str, Json]) -> None:
        """Write one event."""

    async def commit(self) -> None:
        """Wait until the last event is on the disk; an event that raises was not written."""


class NoLog:
    """Keeps nothing."""

    def append(self, event: Mapping[str, Json]) -> None:
        """Drop the event."""

    async def commit(self) -> None:
        """Nothing to wait for."""


def now_s() -> float:
    """Monotonic seconds; leases and deadlines use nothing else."""
    return time.monotonic()
