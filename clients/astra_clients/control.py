"""The control plane of a host, typed: open, message, submit, read, close, list.

Each operation that changes something carries a `request_id`, made once and kept over every repeat,
so that a lost answer never acts twice. A busy host is waited for, as long as it says (Retry-After,
or `retry_after_s` of a busy answer) and no longer than `busy_s`. Errors: `AuthError` (token),
`BusyError` (still busy), `ClientError` (everything else, with the host's own words). The control
token never enters a message.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import aiohttp
import anyio
from pydantic import BaseModel, ConfigDict, ValidationError

from astra_clients.exchange import McpSettings
from astra_clients.mcp_client import McpClient, ToolResponse
from astra_mcp.errors import AuthError, BusyError, ClientError
from astra_mcp.grade import Grade

Json = Any
M = TypeVar("M", bound=BaseModel)
FarBand = Literal["any", "high", "medium", "low"]
_MAX_BUSY_WAIT_S: Final = 5.0


class _Reply(BaseModel):
    """Base of what the host answers; a newer host may add fields."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class TaskInfo(_Reply):
    """One task that the host serves; nothing of it is sealed."""

    task: str
    """`id@version#task`."""
    digest: str
    title: str
    domain: str
    level: int
    hops: int
    features: list[str] = []
    turns: int = 1
    max_calls: int


class TaskPage(_Reply):
    """One page of tasks."""

    tasks: list[TaskInfo]
    next_cursor: str | None = None


class OpenedEpisode(_Reply):
    """A live attempt: what the agent starts from, and where it finds its tools."""

    episode_id: str
    task: str
    digest: str
    world_digest: str
    seed: int
    language: str
    system_prompt: str
    message: str
    endpoint: str
    endpoints: dict[str, str] = {}
    token: str
    max_calls: int
    idle_s: float | None = None
    """The episode ends when nobody uses it for so long; `heartbeat` counts as use."""
    total_s: float | None = None
    canary: str


class UserReply(_Reply):
    """What the user says to a message of the agent."""

    kind: Literal["user", "nudge", "end"]
    text: str | None = None
    tools_changed: bool = False


class EpisodeView(_Reply):
    """An episode as the control plane shows it."""

    episode_id: str
    task: str
    digest: str
    status: Literal["open", "graded", "closed", "expired", "corrupt"]
    calls: int
    turn_count: int
    grade: Grade | None = None
    reason: str | None = None
    spec: dict[str, Json] = {}
    """What the episode was opened with, such as `far`: its far distractors."""
    expected: Json = None
    plan: Json = None
    record: dict[str, Json] = {}


class Closed(_Reply):
    """How an episode ended."""

    status: str
    reason: str | None = None


class _Beating(_Reply):
    """Which of the episodes asked about are open."""

    open: list[str]


class EpisodeRequest(BaseModel):
    """What `open_episode` may be told; None leaves the host's default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    seed: int = 0
    fault_rate: float = 0.0
    far_distractors: int = 0
    far_band: FarBand | None = None
    max_calls: int | None = None
    idle_s: float | None = None
    total_s: float | None = None
    agent_io: bool = False


class ControlClient:
    """Operations of the control plane at one URL.

    Args:
        pool: A session made by `new_pool`.
        url: Such as `http://127.0.0.1:8000/control/mcp`.
        token: The control token.
        busy_s: Longest wait for a busy host, in seconds, for each operation.
        settings: Deadlines and retries of one request.
    """

    def __init__(
        self,
        pool: aiohttp.ClientSession,
        url: str,
        token: str,
        *,
        busy_s: float = 60.0,
        settings: McpSettings | None = None,
    ) -> None:
        self._mcp = McpClient(pool, url, token=token, settings=settings)
        self._busy_s = busy_s

    async def list_tasks(
        self, bundle: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> TaskPage:
        """One page of the tasks that the host serves."""
        args = {"bundle": bundle, "limit": limit, "cursor": cursor}
        return _model(TaskPage, await self._call("list_tasks", args))

    async def all_tasks(self, bundle: str | None = None) -> AsyncIterator[TaskInfo]:
        """Every task, page by page."""
        cursor: str | None = None
        seen: set[str | None] = set()
        while cursor not in seen:
            seen.add(cursor)
            page = await self.list_tasks(bundle, cursor=cursor)
            for task in page.tasks:
                yield task
            if page.next_cursor is None:
                return
            cursor = page.next_cursor
        raise ClientError(
            "The host's list of tasks repeats a cursor.", "Report it to the host's owner."
        )

    async def open_episode(
        self, request: EpisodeRequest, request_id: str | None = None
    ) -> OpenedEpisode:
        """Start an attempt.

        Raises:
            BusyError: the host had no room within `busy_s`.
        """
        args = request.model_dump(exclude_none=True)
        return _model(OpenedEpisode, await self._mutate("open_episode", args, request_id))

    async def post_message(
        self, episode_id: str, text: str, request_id: str | None = None
    ) -> UserReply:
        """Give the user a message of the agent."""
        args = {"episode_id": episode_id, "text": text}
        return _model(UserReply, await self._mutate("post_message", args, request_id))

    async def submit_answer(
        self, episode_id: str, answer: str, request_id: str | None = None
    ) -> Grade:
        """Grade the attempt with this answer; the episode ends."""
        args = {"episode_id": episode_id, "answer": answer}
        return _model(Grade, await self._mutate("submit_answer", args, request_id))

    async def get_episode(self, episode_id: str, reveal: bool = False) -> EpisodeView:
        """The episode and its record; `reveal` adds expected values and the plan (private)."""
        args = {"episode_id": episode_id, "reveal": reveal}
        return _model(EpisodeView, await self._call("get_episode", args))

    async def heartbeat(self, episode_ids: Sequence[str]) -> list[str]:
        """Start the idle leases of these episodes anew, while agents think.

        Returns:
            Those that are open.
        """
        reply = await self._call("heartbeat", {"episode_ids": list(episode_ids)})
        return _model(_Beating, reply).open

    async def close_episode(self, episode_id: str, request_id: str | None = None) -> Closed:
        """End an episode without an answer; its reward is null."""
        args = {"episode_id": episode_id}
        return _model(Closed, await self._mutate("close_episode", args, request_id))

    async def _mutate(
        self, tool: str, args: dict[str, Json], request_id: str | None
    ) -> dict[str, Json]:
        request_id = request_id or uuid.uuid4().hex
        return await self._call(tool, {**args, "request_id": request_id}, request_id)

    async def _call(
        self, tool: str, args: Mapping[str, Json], call_id: str | None = None
    ) -> dict[str, Json]:
        """Call a control tool, waiting for a busy host as long as that is allowed."""
        given = {key: value for key, value in args.items() if value is not None}
        # Reading twice does no harm, so a read is repeatable, too.
        call_id = call_id or uuid.uuid4().hex
        deadline = time.monotonic() + self._busy_s
        while True:
            try:
                return _structured(tool, await self._mcp.call_tool(tool, given, call_id))
            except BusyError as busy:
                wait_s = min(max(busy.retry_after_s, 0.01), _MAX_BUSY_WAIT_S)
                if time.monotonic() + wait_s >= deadline:
                    raise
            await anyio.sleep(wait_s)
            # The host remembers answers by call id, refusals included: ask under a new one. What
            # keeps the operation from acting twice is its request_id, which stays.
            call_id = uuid.uuid4().hex


def _structured(tool: str, response: ToolResponse) -> dict[str, Json]:
    if response.is_error:
        raise _error(tool, response)
    if response.structured is None:
        raise ClientError(
            f"The host answered {tool} without a structured result.",
            "Check that the URL is a control plane of this version.",
        )
    return response.structured


def _error(tool: str, response: ToolResponse) -> Exception:
    words = response.text.removeprefix(f"{response.code}: ")
    if response.code == BusyError.code:
        after = (response.structured or {}).get("retry_after_s")
        after_s = float(after) if isinstance(after, int | float) else 1.0
        return BusyError(words, "Try again later, or open fewer episodes at once.", after_s)
    if response.code == AuthError.code:
        return AuthError(words, "Check the control token.")
    return ClientError(f"{tool} failed, {response.code}: {words}")


def _model(model: type[M], value: dict[str, Json]) -> M:
    """The reply as a model.

    Raises:
        ClientError: the host answers in a form that this client does not know.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise ClientError(
            f"The host's answer does not fit {model.__name__}: {first['loc']}: {first['msg']}.",
            "Use a client and a host of the same version.",
        ) from error
