"""Thousands of episodes while clients, workers and the host itself are killed.

Scripted agents play every committed task through the client library against `astra serve` in a
process of its own. A share of the clients dies at a random moment: half of those tasks are
cancelled, half lose their sockets. Workers get SIGKILL all the time; half-way the host does, and
starts again on the same port and journal, with every episode that was under way.

Promises checked at the end, against what clients were told and against the journals: every grade
that somebody was told is there and is the same; nothing is graded that nobody submitted; golden
attempts got 1.0; everything else has a null reward; descriptors, processes and memory are back
where they were after the warm-up.

    python -m tests.soak.soak --episodes 10000
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio
import orjson

from astra_clients.agents import AgentContext, GoldenAgent, NullAgent
from astra_clients.control import ControlClient, EpisodeRequest, EpisodeView
from astra_clients.exchange import McpSettings, new_pool
from astra_clients.mcp_client import McpClient
from astra_mcp.errors import AstraError
from astra_mcp.grade import Grade
from astra_mcp.host.journal import read_journal
from astra_mcp.store import load_bundle
from astra_mcp.task import Task
from tests.soak.processes import TOKEN, HostProcess

ENVS = Path(__file__).parents[2] / "synthesized_envs"
#: Patient enough to wait for a host that is starting again.
PATIENT = McpSettings(request_s=90.0, retries=9)
#: What may be left over at the end: descriptors of sockets that are just closing, and memory that
#: Python keeps after it was used (finished episodes stay in memory up to --keep-finished).
SPARE_FDS = 3
SPARE_RSS_KIB = 64 * 1024


@dataclass(frozen=True)
class Options:
    """How long, how wide and how rough."""

    episodes: int = 10_000
    concurrency: int = 24
    warm_up: int = 200
    seed: int = 0
    killed_clients: float = 0.25
    """Share of clients that die."""
    dies_within_s: float = 0.6
    worker_kills_s: float = 0.1
    """A worker is killed so often."""
    idle_s: float = 5.0
    host_kills: int = 1


@dataclass
class Attempt:
    """What one client asked for and what it was told."""

    index: int
    task: Task
    ref: str
    kind: str
    fate: str
    dies_after_s: float
    episode_id: str | None = None
    submitting: bool = False
    told: Grade | None = None
    failed: str | None = None

    @property
    def request(self) -> EpisodeRequest:
        """How it is opened; a repetition finds the same episode."""
        return EpisodeRequest(task=self.ref, seed=self.index)


@dataclass
class Soak:
    """One run."""

    options: Options
    host: HostProcess
    attempts: list[Attempt] = field(default_factory=list)
    done: int = 0
    worker_kills: int = 0
    host_starts_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    starting: bool = False
    """The host proves its sandbox in a first worker, which is nobody's episode."""
    kinds: Counter[str] = field(default_factory=Counter)

    async def run(self) -> dict[str, Any]:
        """Play everything, check everything; `problems` is empty when all is well."""
        began = time.monotonic()
        options = self.options
        await anyio.to_thread.run_sync(self.host.start)
        self.host_starts_s.append(round(self.host.start_s, 3))
        tasks = _tasks()
        await self._play([self._draw(tasks, i, safe=True) for i in range(options.warm_up)])
        baseline = await self._quiet()
        rest = [self._draw(tasks, options.warm_up + i) for i in range(options.episodes)]
        async with anyio.create_task_group() as group:
            group.start_soon(self._kill_workers)
            group.start_soon(self._kill_host)
            await self._play(rest)
            group.cancel_scope.cancel()
        played_s = time.monotonic() - began
        final = await self._quiet()
        self._compare(baseline, final)
        await self._check_all()
        self._check_journals()
        code = await anyio.to_thread.run_sync(self.host.stop)
        if code != 0:
            self._problem(f"the host ended with exit code {code}")
        return {
            "episodes": len(self.attempts),
            "outcomes": dict(sorted(self.kinds.items())),
            "clients_killed": dict(Counter(a.fate for a in self.attempts if a.fate != "lives")),
            "workers_killed": self.worker_kills,
            "hosts_killed": len(self.host_starts_s) - 1,
            "host_start_s": self.host_starts_s,
            "baseline": baseline,
            "final": final,
            "spare": {"fds": SPARE_FDS, "rss_kib": SPARE_RSS_KIB},
            "play_s": round(played_s, 1),
            "check_s": round(time.monotonic() - began - played_s, 1),
            "options": asdict(options),
            "problems": self.problems,
        }

    def _draw(self, tasks: list[tuple[str, Task]], index: int, safe: bool = False) -> Attempt:
        rng = random.Random(f"{self.options.seed}:{index}")
        ref, task = tasks[index % len(tasks)] if safe else rng.choice(tasks)
        dies = not safe and rng.random() < self.options.killed_clients
        fate = rng.choice(["cancelled", "sockets lost"]) if dies else "lives"
        kind = rng.choice(["golden", "golden", "null"])
        attempt = Attempt(index, task, ref, kind, fate, rng.random() * self.options.dies_within_s)
        self.attempts.append(attempt)
        return attempt

    # ---- playing ----------------------------------------------------------------------

    async def _play(self, attempts: list[Attempt]) -> None:
        queue = iter(attempts)
        async with anyio.create_task_group() as group:
            for _ in range(self.options.concurrency):
                group.start_soon(self._client, queue)

    async def _client(self, queue: Iterator[Attempt]) -> None:
        """Plays one attempt after the other, on one pool until it loses that."""
        for attempt in queue:
            async with new_pool() as pool, anyio.create_task_group() as group:
                if attempt.fate == "cancelled":
                    group.cancel_scope.deadline = anyio.current_time() + attempt.dies_after_s
                elif attempt.fate == "sockets lost":
                    group.start_soon(_lose, pool, attempt.dies_after_s)
                await self._attempt(pool, attempt)
                group.cancel_scope.cancel()
            self.done += 1

    async def _attempt(self, pool: Any, attempt: Attempt) -> None:
        settings = PATIENT if attempt.fate != "sockets lost" else McpSettings(retries=0)
        control = _control(pool, self.host.url, settings)
        try:
            opened = await control.open_episode(attempt.request, _request_id(attempt))
            attempt.episode_id = opened.episode_id
            agent = GoldenAgent(attempt.task) if attempt.kind == "golden" else NullAgent()
            mcp = McpClient(pool, opened.endpoint, settings=settings)
            context = AgentContext(opened=opened, mcp=mcp, control=control)
            answer = await agent.run(context)
            attempt.submitting = True
            attempt.told = await context.submit(answer)
        except (AstraError, RuntimeError) as error:  # RuntimeError: a session closed under way
            attempt.failed = f"{type(error).__name__}: {str(error)[:200]}"

    async def _kill_workers(self) -> None:
        rng = random.Random(f"workers:{self.options.seed}")
        while True:
            await anyio.sleep(self.options.worker_kills_s)
            try:
                workers = [] if self.starting else self.host.workers()
                if workers:
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    self.worker_kills += 1
            except ProcessLookupError:
                continue  # it had ended already

    async def _kill_host(self) -> None:
        kills, total = self.options.host_kills, self.options.episodes
        for n in range(kills):
            while self.done < self.options.warm_up + total * (n + 1) / (kills + 1):  # noqa: ASYNC110
                await anyio.sleep(0.01)
            self.starting = True
            await anyio.to_thread.run_sync(self.host.kill)
            await anyio.to_thread.run_sync(self.host.start)
            self.starting = False
            self.host_starts_s.append(round(self.host.start_s, 3))

    async def _quiet(self) -> dict[str, int]:
        """Resources once every lease is over and no connection is left."""
        with anyio.fail_after(60 + 4 * self.options.idle_s):
            while (await anyio.to_thread.run_sync(self.host.health))["episodes"]:  # noqa: ASYNC110
                await anyio.sleep(0.1)
        lowest = self.host.resources()
        with anyio.move_on_after(5):
            while True:  # closing sockets and dying workers take a moment
                await anyio.sleep(0.2)
                now = self.host.resources()
                lowest = {key: min(value, now[key]) for key, value in lowest.items()}
        return lowest

    # ---- checking ---------------------------------------------------------------------

    def _problem(self, text: str) -> None:
        self.problems.append(text)

    def _compare(self, baseline: dict[str, int], final: dict[str, int]) -> None:
        spare = {"processes": 0, "fds": SPARE_FDS, "rss_kib": SPARE_RSS_KIB}
        for name, extra in spare.items():
            if final[name] > baseline[name] + extra:
                self._problem(f"{name}: {final[name]} at the end, {baseline[name]} before")

    async def _check_all(self) -> None:
        async with new_pool() as pool:
            control = _control(pool, self.host.url, PATIENT)
            queue = iter(self.attempts)

            async def check() -> None:
                for attempt in queue:
                    await self._check(control, attempt)

            async with anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(check)

    async def _check(self, control: ControlClient, attempt: Attempt) -> None:
        if attempt.episode_id is None:  # died before it heard of its episode: ask again
            opened = await control.open_episode(attempt.request, _request_id(attempt))
            attempt.episode_id = opened.episode_id
            await control.close_episode(opened.episode_id)
        view = await control.get_episode(attempt.episode_id)
        self.kinds[f"{attempt.kind}, {view.status}"] += 1
        for problem in _wrong_with(attempt, view):
            self._problem(f"attempt {attempt.index} ({attempt.fate}, {attempt.kind}): {problem}")

    def _check_journals(self) -> None:
        """No journal holds a grade that no client had asked for."""
        asked = {a.episode_id for a in self.attempts if a.submitting}
        told = {a.episode_id for a in self.attempts if a.told is not None}
        graded: set[str] = set()
        for path in self.host.journal.rglob("*.jsonl"):
            saved = read_journal(path)
            if any(event["event"] == "submit" for event in saved.events):
                graded.add(path.stem)
        if invented := graded - asked:
            self._problem(f"{len(invented)} grades that nobody asked for")
        if lost := told - graded:
            self._problem(f"{len(lost)} grades are in no journal")


def _wrong_with(attempt: Attempt, view: EpisodeView) -> list[str]:
    """What of an episode contradicts what its client did and was told."""
    found = []
    grade, told = view.grade, attempt.told
    if grade is None:
        return ["it has not ended"]
    if told is not None and (view.status != "graded" or grade != told):
        found.append("the grade is not the one that its client was told")
    if view.status == "graded" and not attempt.submitting:
        found.append("it was graded and nobody had submitted")
    if view.status != "graded" and grade.value is not None:
        found.append(f"it is {view.status} and has a reward")
    if view.status == "graded":
        right = (1.0, True) if attempt.kind == "golden" else (0.0, False)
        if (grade.f1, grade.outcome) != right:
            found.append(f"f1 {grade.f1}, outcome {grade.outcome}")
    if told is None and attempt.fate == "lives" and view.status not in ("corrupt", "expired"):
        found.append(f"it is {view.status}, its client lived and was told {attempt.failed}")
    return found


async def _lose(pool: Any, after_s: float) -> None:
    await anyio.sleep(after_s)
    await pool.close()


def _control(pool: Any, url: str, settings: McpSettings) -> ControlClient:
    return ControlClient(pool, f"{url}/control/mcp", TOKEN, busy_s=120.0, settings=settings)


def _request_id(attempt: Attempt) -> str:
    return f"soak-{attempt.index}"


def _tasks() -> list[tuple[str, Task]]:
    bundles = [load_bundle(path) for path in sorted(ENVS.iterdir()) if path.is_dir()]
    return [(f"{b.ref}#{task.id}", task) for b in bundles for task in b.sealed.tasks]


async def soak(options: Options) -> dict[str, Any]:
    """Run one soak in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="astra-soak-") as folder:
        given = [
            "--idle-s", f"{options.idle_s:g}", "--max-episodes", str(4 * options.concurrency),
            "--wait-s", "5", "--keep-finished", "200",
        ]  # fmt: skip
        host = HostProcess(Path(folder), [ENVS], given)
        try:
            return await Soak(options, host).run()
        finally:
            if host.process is not None and host.process.poll() is None:
                host.kill()


def main() -> None:
    """Run it and print the summary as JSON; exit code 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=Options.episodes)
    parser.add_argument("--concurrency", type=int, default=Options.concurrency)
    parser.add_argument("--seed", type=int, default=Options.seed)
    parser.add_argument("--host-kills", type=int, default=Options.host_kills)
    given = parser.parse_args()
    summary = anyio.run(soak, Options(**vars(given)))
    print(orjson.dumps(summary, option=orjson.OPT_INDENT_2).decode())
    sys.exit(1 if summary["problems"] else 0)


if __name__ == "__main__":
    main()
