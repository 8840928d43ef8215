"""One episode played by one agent, and the record of it.

`play` never raises for what goes wrong in one episode: an agent that crashes, a model that is gone
or a host that fails gives a record whose reward is null with the reason. What it does raise stops
the whole collection: `AuthError` for a control token that is not accepted. Records hold answers by
nature, and carry the bundle's canary; they hold no token.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import anyio

from astra_clients.agents import Agent, AgentContext, openai_tool
from astra_clients.attempts import attempt_fields
from astra_clients.control import ControlClient, EpisodeView, OpenedEpisode
from astra_clients.exchange import McpSettings
from astra_clients.mcp_client import McpClient
from astra_clients.output import SCHEMA
from astra_clients.plan import CollectPlan, Job
from astra_mcp import __version__
from astra_mcp.concurrency import task_group
from astra_mcp.errors import AstraError, AuthError
from astra_mcp.grade import Grade, no_grade

Json = Any
_CLEANUP_S: Final = 5.0
#: Heartbeats per idle lease.
BEATS: Final = 3


@dataclass
class Played:
    """What came of one episode; its parts fill up as it goes."""

    job: Job
    opened: OpenedEpisode | None = None
    ctx: AgentContext | None = None
    view: EpisodeView | None = None
    grade: Grade | None = None
    reason: str | None = None
    code: str | None = None
    """Code of the error that ended it, if it was one of ours."""
    open_s: float = 0.0
    play_s: float = 0.0
    grade_s: float = 0.0
    versions: dict[str, Json] = field(default_factory=dict)


async def play(
    pool: aiohttp.ClientSession, control: ControlClient, plan: CollectPlan, job: Job, agent: Agent
) -> Played:
    """Open one episode, let the agent play it, submit, read the record.

    Raises:
        AuthError: the control token is not accepted.
    """
    played = Played(job)
    started = time.perf_counter()
    try:
        played.opened = await control.open_episode(plan.request(job.info.task, job.seed))
    except AuthError:
        raise
    except AstraError as error:
        played.reason, played.code = f"not opened: {error.message}", error.code
        return played
    played.open_s = time.perf_counter() - started
    await _play_opened(pool, control, plan, played, agent)
    return played


async def _play_opened(
    pool: aiohttp.ClientSession,
    control: ControlClient,
    plan: CollectPlan,
    played: Played,
    agent: Agent,
) -> None:
    opened = played.opened
    assert opened is not None
    settings = McpSettings(request_s=plan.deadlines.request_s)
    try:
        async with McpClient(pool, opened.endpoint, settings=settings) as mcp:
            played.ctx = AgentContext(opened, mcp, control)
            answer = await _run(agent, played, plan.deadlines.episode_s)
            if played.reason is None:
                started = time.perf_counter()
                played.grade = await played.ctx.submit(answer)
                played.grade_s = time.perf_counter() - started
        played.view = await control.get_episode(opened.episode_id)
    except AstraError as error:
        # The grade, when there is one, stands: only the record of the calls may be missing.
        if played.grade is None:
            played.reason, played.code = f"host failed: {error.message}", error.code
    finally:
        if played.grade is None:
            await _give_up(control, played)


async def _run(agent: Agent, played: Played, episode_s: float) -> str | None:
    """The agent's answer; what goes wrong in it becomes the reason."""
    ctx = played.ctx
    assert ctx is not None
    started = time.perf_counter()
    try:
        with anyio.move_on_after(episode_s):
            async with task_group() as tasks:
                tasks.start_soon(_keep_open, ctx)
                answer = await agent.run(ctx)
                tasks.cancel_scope.cancel()
            return answer
        played.reason = f"agent did not end within {episode_s:g} s"
    except AstraError as error:
        played.reason, played.code = f"agent failed: {error.message}", error.code
    except Exception as error:  # noqa: BLE001  any agent may be run here; none may stop the others
        played.reason = f"agent crashed: {type(error).__name__}: {str(error)[:300]}"
    finally:
        played.play_s = time.perf_counter() - started
    return None


async def _keep_open(ctx: AgentContext) -> None:
    """Tell the host now and then that the agent is alive, however long it thinks."""
    while (idle_s := ctx.opened.idle_s) is not None:
        await anyio.sleep(idle_s / BEATS)
        try:
            await ctx.control.heartbeat([ctx.opened.episode_id])
        except AstraError:
            continue  # a host that is gone is for the agent's next call to find


async def _give_up(control: ControlClient, played: Played) -> None:
    """Free the episode's place at the host and keep what it recorded, if it still answers."""
    assert played.opened is not None
    episode_id = played.opened.episode_id
    with anyio.move_on_after(_CLEANUP_S, shield=True):
        try:
            await control.close_episode(episode_id)
            played.view = await control.get_episode(episode_id)
        except AstraError as error:
            played.versions["cleanup"] = error.message


def record_of(played: Played, plan: CollectPlan, host: Mapping[str, Json]) -> dict[str, Json]:
    """The record of one episode.

    Args:
        played: What came of it.
        plan: What it was opened with.
        host: Versions of the host, such as its sandbox layers.
    """
    job, opened, view = played.job, played.opened, played.view
    grade = played.grade or no_grade(played.reason or "no reward")
    ctx = played.ctx
    spec = view.spec if view else {}
    calls = _calls(view, grade)
    record = {
        "schema": SCHEMA,
        "agent": job.agent.name,
        "task": job.info.task,
        "digest": opened.digest if opened else job.info.digest,
        "world_digest": opened.world_digest if opened else None,
        "episode_id": opened.episode_id if opened else None,
        "seed": job.seed,
        "canary": opened.canary if opened else None,
        "title": job.info.title,
        "domain": job.info.domain,
        "level": job.info.level,
        "hops": job.info.hops,
        "features": job.info.features,
        "language": opened.language if opened else None,
        "messages": ctx.messages if ctx else [],
        **_tools(ctx),
        "calls": calls,
        "grade": grade.model_dump(mode="json"),
        "reward": grade.summary(),
        "limits": {
            "max_calls": opened.max_calls if opened else job.info.max_calls,
            "idle_s": spec.get("idle_s"),
            "total_s": spec.get("total_s"),
        },
        "faults": {
            "rate": plan.fault_rate,
            "injected": sum(1 for call in calls if call["fault"] is not None),
        },
        "far_distractors": {
            "count": plan.far_distractors,
            "band": plan.far_band,
            "tools": spec.get("far", []),
        },
        "timings": {
            "open_s": round(played.open_s, 6),
            "play_s": round(played.play_s, 6),
            "grade_s": round(played.grade_s, 6),
            "call_ms": ctx.call_ms if ctx else [],
        },
        "usage": ctx.usage if ctx else {},
        "versions": {"astra_mcp": __version__, **host, **played.versions},
    }
    return record | attempt_fields(record, view)


def _tools(ctx: AgentContext | None) -> dict[str, Json]:
    lists = [[openai_tool(tool) for tool in tools] for tools in ctx.tools_by_turn] if ctx else []
    fields: dict[str, Json] = {"tools": lists[0] if lists else []}
    if len(lists) > 1:
        fields["tools_by_turn"] = lists
    return fields


def _calls(view: EpisodeView | None, grade: Grade) -> list[dict[str, Json]]:
    """The host's record of each call with what the grader says about it."""
    graded = {call.index: call for call in grade.calls}
    calls = []
    for call in view.record.get("calls", []) if view else []:
        of = graded.get(call["index"])
        calls.append(
            {
                "index": call["index"],
                "turn": call["turn"],
                "tool": call["tool"],
                "args": call["args"],
                "result": call["result"],
                "failure": call["failure"],
                "fault": call["fault"],
                "origin": call["origin"],
                "state_before": call.get("state_before"),
                "state_after": call.get("state_after"),
                "seconds": call["seconds"],
                "label": of.label if of else None,
                "credit": of.credit if of else None,
                "counted": of.counted if of else None,
                "evidence_for": list(of.evidence_for) if of else [],
            }
        )
    return calls
