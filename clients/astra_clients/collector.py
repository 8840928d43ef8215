"""Plays tasks x agents x seeds against a running host and writes one record per episode.

Bounded: `concurrency` workers, each with one episode, on one connection pool. An episode that fails
becomes a record without a reward and the others go on; a host that cannot be reached any more stops
the collection, since all the rest would fail alike, and what was not played stays to be played.
Episodes that the output file has are skipped. A cancelled collection closes its episodes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, TextIO

import aiohttp
import anyio
import openai
import orjson
from yarl import URL

from astra_clients.agents import Agent, AgentSpec, chat_settings, make_agent
from astra_clients.agents.chat import make_client
from astra_clients.control import ControlClient, TaskInfo
from astra_clients.exchange import UNREACHABLE, McpSettings, new_pool
from astra_clients.output import RecordFile
from astra_clients.plan import CollectPlan, CollectSummary, Job, jobs_of
from astra_clients.progress import Reporter, reporting
from astra_clients.trajectory import play, record_of
from astra_mcp.bundle import Bundle
from astra_mcp.errors import AstraError, AuthError, ClientError, UsageError

Json = Any
OnRecord = Callable[[dict[str, Json]], None]
AgentMaker = Callable[[AgentSpec, Bundle | None, str, int], Agent]
_MIN_STRIKES: Final = 3


async def collect(
    plan: CollectPlan,
    on_record: OnRecord | None = None,
    *,
    maker: AgentMaker | None = None,
    progress: TextIO | None = None,
) -> CollectSummary:
    """Run a collection to its end.

    Args:
        plan: What to play, and where to.
        on_record: Called with each record after it was written.
        maker: Makes the agents, instead of `make_agent`; for agents of one's own.
        progress: Where progress goes; default: standard error.

    Returns:
        What was done; `aborted` says why it stopped early, if it did.

    Raises:
        UsageError: a task does not exist, a bundle is missing, or the output file is another's.
        AuthError: the control token is not accepted.
        ClientError: the host cannot be reached at the start, or the file cannot be written.
    """
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(new_pool())
        control = ControlClient(
            pool,
            plan.control_url,
            plan.token.get_secret_value(),
            busy_s=plan.deadlines.busy_s,
            settings=McpSettings(request_s=plan.deadlines.request_s),
        )
        infos = await resolve_tasks(control, plan)
        make = maker or await _shared_maker(stack, plan)
        _check_agents(plan, infos, make)
        configuration = plan.configuration([info.task for info in infos])
        file = stack.enter_context(
            RecordFile(
                plan.out,
                configuration,
                overwrite=plan.overwrite,
                retry_failed=plan.retry_failed,
            )
        )
        jobs = list(jobs_of(plan, infos))
        todo = [job for job in jobs if job.key not in file.done]
        summary = CollectSummary(plan.out, len(jobs), len(jobs) - len(todo))
        reporter = stack.enter_context(reporting(len(todo), progress))
        host = await host_versions(pool, plan.control_url)
        run = _Run(plan, pool, control, make, file, summary, reporter, host, on_record)
        await run.all(todo)
        return summary


@dataclass
class _Run:
    """One collection under way."""

    plan: CollectPlan
    pool: aiohttp.ClientSession
    control: ControlClient
    make: AgentMaker
    file: RecordFile
    summary: CollectSummary
    reporter: Reporter
    host: Mapping[str, Json]
    on_record: OnRecord | None
    strikes: int = 0
    """Episodes in a row that found no host."""
    stopped: AstraError | None = None
    """What ended the run for all."""

    async def all(self, todo: list[Job]) -> None:
        """Play them all."""
        started = time.monotonic()
        queue = iter(todo)
        try:
            async with anyio.create_task_group() as group:
                for _ in range(min(self.plan.concurrency, len(todo))):
                    group.start_soon(self._worker, queue)
        finally:
            self.summary.seconds = time.monotonic() - started
        if self.stopped is not None:
            raise self.stopped

    async def _worker(self, queue: Iterator[Job]) -> None:
        for job in queue:
            if self.summary.aborted is not None or self.stopped is not None:
                return
            agent = self.make(job.agent, job.bundle, job.task_id, job.seed)
            try:
                played = await play(self.pool, self.control, self.plan, job, agent)
            except AuthError as error:
                self.stopped = error
                return
            unreached = played.opened is None and played.code == UNREACHABLE
            self.strikes = self.strikes + 1 if unreached else 0
            if self.strikes > max(_MIN_STRIKES, self.plan.concurrency):
                self.summary.aborted = f"{played.reason}"
            if unreached:
                self.summary.unopened += 1
            else:
                self._keep(record_of(played, self.plan, self.host))

    def _write(self, record: dict[str, Json]) -> bool:
        try:
            self.file.append(record)
        except OSError as error:
            self.stopped = ClientError(
                f"{self.plan.out} cannot be written: {error.strerror}.",
                "Make room, then run the same command again: it resumes.",
            )
            return False
        return True

    def _keep(self, record: dict[str, Json]) -> None:
        if not self._write(record):
            return
        self.summary.add(record)
        done = self.summary.graded + self.summary.failures
        self.reporter.update(done, f"{self.summary.failures} without a reward")
        if self.on_record is not None:
            self.on_record(record)


async def resolve_tasks(control: ControlClient, plan: CollectPlan) -> list[TaskInfo]:
    """What the host says about each task of the plan, in its order.

    Raises:
        UsageError: the host does not serve a task, or serves another content of a loaded bundle.
    """
    by_bundle: dict[str, list[TaskInfo]] = defaultdict(list)
    infos: list[TaskInfo] = []
    for ref in plan.tasks:
        bundle_id = ref.task.partition("#")[0].partition("@")[0]
        if bundle_id not in by_bundle:
            by_bundle[bundle_id] = [task async for task in control.all_tasks(bundle_id)]
        found = [task for task in by_bundle[bundle_id] if _is(task.task, ref.task)]
        if not found:
            raise UsageError(
                f"The host serves no task {ref.task}.", "See its list_tasks for what there is."
            )
        if ref.bundle is not None and ref.bundle.digest != found[0].digest:
            raise UsageError(
                f"The host serves {ref.task} with another content than the loaded bundle.",
                "Load the bundle from the folder that the host serves, or restart the host.",
            )
        infos.append(found[0])
    return infos


def _is(full: str, ref: str) -> bool:
    """Whether `id@version#task` is what `ref` names, with or without its version."""
    bundle, _, task = full.partition("#")
    return ref in (full, f"{bundle.partition('@')[0]}#{task}")


async def host_versions(pool: aiohttp.ClientSession, control_url: str) -> dict[str, Json]:
    """What the host says about itself at /healthz; empty when it says nothing of use."""
    url = URL(control_url).origin() / "healthz"
    try:
        async with pool.get(url, timeout=aiohttp.ClientTimeout(total=5.0)) as response:
            said = orjson.loads(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return {}
    known = said if isinstance(said, dict) else {}
    names = {
        "version": "host",
        "sandbox": "sandbox",
        "missing_layers": "missing_layers",
        "unaudited": "unaudited",
    }
    return {name: known[key] for key, name in names.items() if key in known}


async def _shared_maker(stack: AsyncExitStack, plan: CollectPlan) -> AgentMaker:
    """`make_agent` with one model client for each chat agent of the plan."""
    clients: dict[str, openai.AsyncOpenAI] = {}
    for spec in plan.agents:
        if spec.kind == "chat":
            client = make_client(chat_settings(spec))
            clients[spec.name] = await stack.enter_async_context(client)

    def make(spec: AgentSpec, bundle: Bundle | None, task_id: str, seed: int) -> Agent:
        return make_agent(spec, bundle, task_id, seed, clients.get(spec.name))

    return make


def _check_agents(plan: CollectPlan, infos: list[TaskInfo], make: AgentMaker) -> None:
    """Make every agent once, so that a plan that cannot work fails before the first episode."""
    for spec in plan.agents:
        pairs = list(zip(plan.tasks, infos, strict=True))
        for ref, info in pairs if spec.sealed else pairs[:1]:
            make(spec, ref.bundle, info.task.rpartition("#")[2], plan.seeds[0])
