"""Requests of the control plane as models; their JSON Schemas are what tools/list shows."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from astra_mcp.host.distractors import Band
from astra_mcp.settings import MAX_TEXT

RequestId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="Chosen by the caller; the same request sent again changes nothing",
    ),
]
EpisodeId = Annotated[str, Field(min_length=1, max_length=80, description="From open_episode")]


class Request(BaseModel):
    """Base: unknown fields are refused, nothing is coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ListTasks(Request):
    """List tasks that episodes can be opened for, a page at a time."""

    bundle: str | None = Field(
        default=None, max_length=120, description="Only tasks of this bundle id"
    )
    limit: int = Field(default=100, ge=1, le=1000, description="Bundles per page")
    cursor: str | None = Field(default=None, description="next_cursor of the page before")


class OpenEpisode(Request):
    """Open one attempt at one task and get the agent's endpoint and token."""

    task: str = Field(min_length=3, max_length=200, description="id@version#task, or id#task")
    request_id: RequestId
    seed: int = Field(default=0, description="Chooses faults and far distractors")
    fault_rate: float = Field(default=0.0, ge=0, le=0.9, description="Share of calls that fail")
    far_distractors: int = Field(default=0, ge=0, le=32, description="Tools of other bundles")
    far_band: Band = Field(default="any", description="How similar their bundles are")
    max_calls: int | None = Field(default=None, ge=1, le=1000, description="Default: the task's")
    idle_s: float | None = Field(default=None, gt=0, description="Lease without a request")
    total_s: float | None = Field(default=None, gt=0, description="Lease in all")
    agent_io: bool = Field(
        default=False, description="Also give the agent the tools ask_user and submit_answer"
    )


class PostMessage(Request):
    """Give the user a message of the agent; answers the user's next turn, a nudge, or the end."""

    episode_id: EpisodeId
    text: str = Field(max_length=MAX_TEXT)
    request_id: RequestId


class SubmitAnswer(Request):
    """Grade the attempt with this final answer and end the episode; an empty one is graded too."""

    episode_id: EpisodeId
    answer: str = Field(max_length=MAX_TEXT)
    request_id: RequestId


class GetEpisode(Request):
    """Read an episode: status, record, grade; with reveal also expected values and the plan."""

    episode_id: EpisodeId
    reveal: bool = False


class Heartbeat(Request):
    """Start the idle leases of open episodes anew, for agents that think long; names those open."""

    episode_ids: list[EpisodeId] = Field(max_length=10_000)


class CloseEpisode(Request):
    """End an episode without an answer; its reward is null."""

    episode_id: EpisodeId
    request_id: RequestId
