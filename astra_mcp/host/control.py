"""The control plane: operations on episodes as MCP tools, for trainers and collectors.

A service like any other on the transport; whoever holds the control token may call it. Expected
values and plans are in one answer only: get_episode with reveal. Errors are tool results
`code: message remedy`, so that a client needs one way to read them; `busy` says in its structured
content, too, after how many seconds to try again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
from pydantic import ValidationError

from astra_mcp import __version__, errors
from astra_mcp.episode import Episode
from astra_mcp.errors import AstraError, BusyError, UnknownResource, UnknownTool, UsageError
from astra_mcp.golden import declared
from astra_mcp.host.catalog import Catalog, Entry
from astra_mcp.host.control_models import (
    CloseEpisode,
    GetEpisode,
    Heartbeat,
    ListTasks,
    OpenEpisode,
    PostMessage,
    Request,
    SubmitAnswer,
)
from astra_mcp.host.episodes import Episodes, Live
from astra_mcp.host.requests import fingerprint
from astra_mcp.host.service import (
    CallContext,
    ResourceContent,
    ResourcePage,
    ResourceProvider,
    ToolListing,
    ToolResult,
)
from astra_mcp.task import Task
from astra_mcp.world import changes_between

Json = Any
Handler = Callable[[Any], Awaitable[dict[str, Json]]]


class ControlService:
    """The control plane as a service; see `astra_mcp.host.control_models` for the requests."""

    name = "astra-control"
    version = __version__
    title: str | None = "ASTRA-MCP control plane"
    instructions: str | None = (
        "Open an episode, let the agent play it at its endpoint, post its messages, submit its "
        "answer, read the grade."
    )

    def __init__(self, catalog: Catalog, episodes: Episodes) -> None:
        self._catalog = catalog
        self._episodes = episodes
        self.resources: ResourceProvider | None = ControlResources(catalog, episodes)
        self._handlers: dict[str, tuple[type[Request], Handler]] = {
            "list_tasks": (ListTasks, self._list_tasks),
            "open_episode": (OpenEpisode, self._open),
            "post_message": (PostMessage, self._post),
            "submit_answer": (SubmitAnswer, self._submit),
            "get_episode": (GetEpisode, self._get),
            "close_episode": (CloseEpisode, self._close),
            "heartbeat": (Heartbeat, self._heartbeat),
        }
        self._listing = ToolListing(
            [
                {
                    "name": name,
                    "description": " ".join((model.__doc__ or name).split()),
                    "inputSchema": model.model_json_schema(),
                }
                for name, (model, _) in self._handlers.items()
            ]
        )

    def tools(self) -> ToolListing:
        """The control operations; they never change."""
        return self._listing

    def subscribe(self, on_tools_changed: Callable[[], None]) -> Callable[[], None]:
        """Nothing ever changes, so nothing is kept."""
        return lambda: None

    async def call_tool(
        self, name: str, arguments: Mapping[str, Json], ctx: CallContext
    ) -> ToolResult:
        """Run one control operation."""
        if name not in self._handlers:
            raise UnknownTool(name)
        model, handler = self._handlers[name]
        try:
            request = model.model_validate(dict(arguments))
        except ValidationError as error:
            return ToolResult.error(errors.INVALID_ARGUMENTS, _first_problem(error))
        try:
            return ToolResult.ok(await handler(request))
        except BusyError as error:
            hint = {"code": error.code, "retry_after_s": error.retry_after_s}
            return ToolResult(hint, f"{error.code}: {error}", is_error=True, code=error.code)
        except AstraError as error:
            return ToolResult.error(error.code, str(error))

    # ---- operations -------------------------------------------------------------------

    async def _list_tasks(self, request: ListTasks) -> dict[str, Json]:
        ids = self._catalog.ids
        if request.bundle is not None:
            ids = [self._catalog.resolve(request.bundle)]
        start = _cursor(request.cursor)
        tasks: list[dict[str, Json]] = []
        broken: list[dict[str, str]] = []
        if request.bundle is None and start == 0:
            lost = self._catalog.unreadable.items()
            broken += [{"bundle": name, "error": str(error)} for name, error in lost]
        for bundle_id in ids[start : start + request.limit]:
            try:
                entry = await self._catalog.load(bundle_id)
            except AstraError as error:
                broken.append({"bundle": bundle_id, "error": str(error)})
                continue
            tasks += [_task_line(entry, task) for task in entry.bundle.sealed.tasks]
        end = start + request.limit
        return {
            "tasks": tasks,
            "broken": broken,
            "next_cursor": str(end) if end < len(ids) else None,
        }

    async def _open(self, request: OpenEpisode) -> dict[str, Json]:
        return await self._episodes.open(request)

    async def _post(self, request: PostMessage) -> dict[str, Json]:
        live = await self._episodes.find(request.episode_id)
        live.touch()

        async def run() -> dict[str, Json]:
            reply = await live.episode.post_message(request.text, request.request_id)
            return reply.model_dump(mode="json")

        key = fingerprint("post_message", request.episode_id, request.text)
        return await live.requests.once(request.request_id, key, run)

    async def _submit(self, request: SubmitAnswer) -> dict[str, Json]:
        live = await self._episodes.find(request.episode_id)

        async def run() -> dict[str, Json]:
            grade = await live.episode.submit(request.answer, request.request_id)
            self._episodes.settle(live)
            return grade.model_dump(mode="json")

        key = fingerprint("submit_answer", request.episode_id, request.answer)
        return await live.requests.once(request.request_id, key, run)

    async def _close(self, request: CloseEpisode) -> dict[str, Json]:
        live = await self._episodes.find(request.episode_id)

        async def run() -> dict[str, Json]:
            await live.episode.close(request_id=request.request_id)
            self._episodes.settle(live)
            return {"status": live.episode.status, "reason": live.episode.reason}

        key = fingerprint("close_episode", request.episode_id)
        return await live.requests.once(request.request_id, key, run)

    async def _get(self, request: GetEpisode) -> dict[str, Json]:
        live = await self._episodes.find(request.episode_id)
        live.touch()
        seen = episode_json(live)
        return seen | await reveal_json(live) if request.reveal else seen

    async def _heartbeat(self, request: Heartbeat) -> dict[str, Json]:
        return {"open": [key for key in request.episode_ids if self._episodes.touch(key)]}


def episode_json(live: Live) -> dict[str, Json]:
    """An episode as get_episode shows it; holds no expected value."""
    episode = live.episode
    return {
        "episode_id": episode.spec.episode_id,
        "task": episode.spec.task,
        "digest": episode.spec.digest,
        "status": episode.status,
        "reason": episode.reason,
        "calls": len(episode.calls),
        "turn_count": sum(1 for item in episode.transcript if item["role"] == "user"),
        "grade": episode.result.model_dump(mode="json") if episode.result else None,
        "spec": episode.spec.model_dump(mode="json"),
        "record": {
            "messages": episode.transcript,
            "calls": [call.model_dump(mode="json") for call in episode.calls],
            "attempt": attempt_json(episode),
        },
    }


def attempt_json(episode: Episode) -> dict[str, Json]:
    """What the grader saw beside the calls: enough to grade the attempt again later."""
    attempt = episode.attempt()
    opened = {message.opened for message in attempt.messages}
    turns = episode.task.turns
    return {
        "turns": [
            {"id": turn.id, "say": turn.say}
            for turn in turns
            if turn is turns[0] or turn.id in opened
        ],
        "messages": [message.model_dump(mode="json") for message in attempt.messages],
        "answer": attempt.answer,
        "changes": changes_between(episode.bundle.state, attempt.final_state),
        "state_hash": episode.environment.state_hash,
    }


async def reveal_json(live: Live) -> dict[str, Json]:
    """The sealed part of an episode's task: expected values and the golden calls."""
    episode = live.episode
    golden = await episode.golden_run()
    return {
        "expected": {name: expect.value for name, expect in declared(episode.task)},
        "plan": [step.model_dump(mode="json") for step in golden.steps],
    }


def _task_line(entry: Entry, task: Task) -> dict[str, Json]:
    return {
        "task": f"{entry.bundle.ref}#{task.id}",
        "digest": entry.bundle.digest,
        "title": entry.bundle.manifest.title,
        "domain": entry.bundle.manifest.domain,
        "level": task.difficulty.level,
        "hops": task.difficulty.hops,
        "features": task.difficulty.features,
        "turns": len(task.turns),
        "max_calls": task.max_calls,
    }


def _cursor(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > 9:
        raise UsageError("The cursor is not one of list_tasks.", "Pass next_cursor unchanged.")
    return int(cursor)


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "arguments"
    return f"{where}: {first['msg']}. See tools/list for what this operation takes."


class ControlResources:
    """astra:// resources: what the control tools give, for clients that read rather than call."""

    def __init__(self, catalog: Catalog, episodes: Episodes) -> None:
        self._catalog = catalog
        self._episodes = episodes

    def list_resources(self, cursor: str | None) -> ResourcePage:
        """One resource per bundle, a hundred a page."""
        try:
            start = _cursor(cursor)
        except UsageError as error:
            raise ValueError(error.message) from error
        ids = self._catalog.ids
        items = [
            {"uri": f"astra://bundles/{key}", "name": key, "mimeType": "application/json"}
            for key in ids[start : start + 100]
        ]
        return ResourcePage(items, str(start + 100) if start + 100 < len(ids) else None)

    def list_templates(self, cursor: str | None) -> ResourcePage:
        """Templates of the episodes' resources."""
        kinds = ("trajectory", "grade")
        episodes = [
            {"uriTemplate": f"astra://episodes/{{id}}/{kind}", "name": kind} for kind in kinds
        ]
        return ResourcePage([*episodes, {"uriTemplate": "astra://bundles/{id}", "name": "bundle"}])

    async def read(self, uri: str) -> Sequence[ResourceContent]:
        """The resource as JSON."""
        parts = uri.removeprefix("astra://").split("/") if uri.startswith("astra://") else []
        try:
            value = await self._value(parts)
        except AstraError as error:
            raise UnknownResource(uri[:200]) from error
        if value is None:
            raise UnknownResource(uri[:200])
        return [ResourceContent(uri, text=orjson.dumps(value).decode())]

    async def _value(self, parts: list[str]) -> Json:
        if len(parts) == 2 and parts[0] == "bundles":
            entry = await self._catalog.load(self._catalog.resolve(parts[1]))
            public = entry.bundle.manifest.model_dump(mode="json")
            return public | {"digest": entry.bundle.digest}
        if len(parts) == 3 and parts[0] == "episodes" and parts[2] in ("trajectory", "grade"):
            seen = episode_json(await self._episodes.find(parts[1]))
            return seen if parts[2] == "trajectory" else {"grade": seen["grade"]}
        return None
