"""What the grader looks at: the record of one attempt at one task, and the golden run of its plan.

Frozen data, written by episode.py and read by grade.py; nothing here decides anything.
"""

from __future__ import annotations

from typing import Any, Literal

from astra_mcp.match.models import Strict

Json = Any


class Failure(Strict):
    """Why a call did not succeed, as the agent saw it."""

    code: str
    message: str


class Call(Strict):
    """One call that the agent made, in order; refused and failed ones are calls too."""

    index: int
    """0, 1, 2 ... within the episode."""
    turn: str
    """Id of the latest user turn when the call came in."""
    tool: str
    args: Json
    result: Json = None
    """Structured result; None when the call failed."""
    failure: Failure | None = None
    fault: Literal["unavailable", "timeout"] | None = None
    """Set when the failure was injected by the episode, not made by the tool."""
    origin: Literal["world", "distractor", "none"] = "world"
    """`world`: a tool of the bundle. `distractor`: a far one, of another bundle. `none`: no such
    tool was served (unknown, or hidden in this turn)."""
    state_before: str
    state_after: str
    """sha256 of the world's state; equal unless the call wrote."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.failure is None


class Message(Strict):
    """One message of the agent to the user (not the submitted answer)."""

    text: str
    turn: str
    """Latest user turn when it was posted."""
    calls_before: int
    """How many calls had been made."""
    opened: str | None = None
    """Id of the user turn that it opened, if it did."""


class Attempt(Strict):
    """Everything that the grader may look at."""

    calls: list[Call]
    messages: list[Message]
    answer: str | None
    """The submitted text; None when the episode ended without a submission."""
    final_state: dict[str, dict[str, dict[str, Json]]]
    """The world's state at the end, from the host's own copy."""
    seed: int = 0


class GoldenStep(Strict):
    """One step of the plan as it ran: arguments with every `$expr` bound, and the result."""

    id: str
    tool: str
    turn: str
    args: dict[str, Json]
    result: Json


class Golden(Strict):
    """The plan, run once in the real world; what default evidence is frozen from."""

    digest: str
    task: str
    steps: list[GoldenStep]

    @property
    def results(self) -> dict[str, Json]:
        """Results by step id, the data that expressions are evaluated on."""
        return {step.id: step.result for step in self.steps}
