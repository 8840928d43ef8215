"""Slots, queues, leases and stopping: who gets in, who is sent away, that every wait ends."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest

from astra_clients.control import ControlClient, EpisodeRequest
from astra_clients.exchange import new_pool
from astra_clients.mcp_client import McpClient
from astra_mcp import episode as episode_module
from astra_mcp.errors import AstraError, AuthError, BusyError, ClientError, JournalError, LoadError
from astra_mcp.host.admission import Admission
from astra_mcp.host.journal import JournalFile
from astra_mcp.sandbox import Template, Worker, WorkerLost
from astra_mcp.settings import HostSettings
from astra_mcp.world import BundleEnvironment
from tests.e2e.conftest import CONTROL_TOKEN, Rig, Rigger
from tests.e2e.nasty import nasty_bundle
from tests.soak.processes import descendants

TASK = "nasty@1.0.0#t1"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def raw_control(rig: Rig) -> McpClient:
    """The control plane without the client's patience."""
    return McpClient(rig.pool, f"{rig.host.url}/control/mcp", token=CONTROL_TOKEN)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is sure to come."""
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.005)


@asynccontextmanager
async def running(*calls: Callable[[], Awaitable[Any]]) -> AsyncIterator[list[Any]]:
    """These calls run while the block does; the list fills with what they give."""
    results: list[Any] = []

    async def one(call: Callable[[], Awaitable[Any]]) -> None:
        results.append(await call())

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(one, call)
        yield results


# ---- slots ------------------------------------------------------------------------------


async def test_a_request_that_finds_no_slot_gets_the_next_that_is_freed(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty, max_episodes=1, wait_s=60) as rig:
        first = await rig.open(TASK)
        async with running(lambda: rig.open(TASK)) as opened:
            await until(lambda: rig.host.episodes.admission.waiting == 1)
            assert rig.host.health()["waiting"] == 1
            await rig.control.submit_answer(first.episode_id, "")
        assert opened[0].episode_id != first.episode_id
        assert rig.host.episodes.open_count == 1


async def test_a_wait_that_is_too_long_ends_with_the_seconds_to_try_again(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty, max_episodes=1, wait_s=0.01) as rig:
        await rig.open(TASK)
        args = {"task": TASK, "request_id": "r1"}
        refused = await raw_control(rig).call_tool("open_episode", args)
        assert (refused.is_error, refused.code) == (True, "busy")
        assert refused.structured == {"code": "busy", "retry_after_s": 1.0}
        assert "Try again in 1 s." in refused.text
        with pytest.raises(BusyError) as caught:
            await rig.open(TASK)
        assert caught.value.retry_after_s == 1.0
        assert rig.host.episodes.admission.waiting == 0


async def test_a_full_queue_refuses_at_once(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty, max_episodes=1, max_waiting=1, wait_s=60) as rig:
        first = await rig.open(TASK)
        async with running(lambda: rig.open(TASK)):
            await until(lambda: rig.host.episodes.admission.waiting == 1)
            with anyio.fail_after(20), pytest.raises(BusyError):
                await rig.open(TASK)
            await rig.control.close_episode(first.episode_id)


async def test_plain_routes_answer_503_with_retry_after(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty, max_env_sessions=1) as rig:
        for path, body in (("/play/nasty", {}), ("/envs/nasty/mcp", initialize())):
            headers = {"accept": "application/json, text/event-stream"}
            url = f"{rig.host.url}{path}"
            statuses = []
            for _ in range(2):
                async with rig.pool.post(url, json=body, headers=headers) as response:
                    statuses.append(response.status)
                    after = response.headers.get("retry-after")
            assert statuses == [200, 503]
            assert after is not None
            assert int(after) >= 1


def initialize() -> dict[str, Any]:
    info = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    return LIST | {"method": "initialize", "params": params}


async def test_the_advice_follows_how_often_slots_become_free() -> None:
    now = 0.0
    admission = Admission(HostSettings(max_episodes=100), lambda: now)
    for _ in range(50):
        await admission.take()
        admission.give_back()
        now += 3.0
    assert admission.retry_after_s() == pytest.approx(3.0, abs=0.1)
    for _ in range(200):
        await admission.take()
        admission.give_back()
        now += 0.01
    assert admission.retry_after_s() == 1.0


async def test_a_client_that_is_killed_frees_its_slot_within_the_lease(
    rig_of: Rigger, nasty: Path
) -> None:
    """The next request waits for it and gets in; nobody has to ask twice."""
    async with rig_of(nasty, max_episodes=1, wait_s=60, idle_s=0.3) as rig:
        dead = await rig.open(TASK)
        with anyio.fail_after(30):
            opened = await rig.open(TASK)
        assert opened.episode_id != dead.episode_id
        view = await rig.control.get_episode(dead.episode_id)
        assert view.status == "expired"
        assert view.grade is not None
        assert view.grade.value is None


async def test_a_waiting_client_that_hangs_up_takes_no_slot(rig_of: Rigger, nasty: Path) -> None:
    """Its request is answered to nobody, and the episode ends with its lease."""
    async with rig_of(nasty, max_episodes=1, wait_s=60, idle_s=0.3) as rig:
        first = await rig.open(TASK)
        with anyio.move_on_after(0.05):
            await rig.open(TASK)
        await rig.control.close_episode(first.episode_id)
        with anyio.fail_after(30):
            await rig.open(TASK)
        await until(lambda: rig.host.episodes.open_count == 0)
        assert rig.host.episodes.admission.taken == 0


# ---- leases -----------------------------------------------------------------------------


async def test_a_heartbeat_keeps_an_episode_whose_agent_thinks(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig:
        mine, other = await rig.open(TASK), await rig.open(TASK)
        assert mine.idle_s == 600.0
        for opened in (mine, other):
            rig.host.episodes.get(opened.episode_id).last_seen -= 599.9
        beating = await rig.control.heartbeat([mine.episode_id, "ep_of_nobody"])
        assert beating == [mine.episode_id]
        await anyio.sleep(0.15)
        await rig.host.sweep()
        assert (await rig.control.get_episode(mine.episode_id)).status == "open"
        assert (await rig.control.get_episode(other.episode_id)).status == "expired"
        assert await rig.control.heartbeat([other.episode_id]) == []


async def test_no_heartbeat_extends_the_lease_in_all(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        live = rig.host.episodes.get(opened.episode_id)
        live.opened -= 3600.1
        await rig.control.heartbeat([opened.episode_id])
        await rig.host.sweep()
        assert live.episode.status == "expired"


async def test_the_client_library_beats_for_an_agent_that_thinks_longer_than_the_lease(
    rig_of: Rigger, nasty: Path
) -> None:
    from astra_clients.agents import AgentContext
    from astra_clients.trajectory import Played, _run

    class Thinker:
        async def run(self, ctx: AgentContext) -> str:
            await anyio.sleep(1.6)
            return "ANSWER: 2"

    async with rig_of(nasty, idle_s=0.8) as rig:
        opened = await rig.open(TASK)
        context = AgentContext(opened=opened, mcp=rig.agent(opened), control=rig.control)
        played = Played(job=None, opened=opened, ctx=context)  # type: ignore[arg-type]
        assert await _run(Thinker(), played, 60.0) == "ANSWER: 2"
        assert (await rig.control.get_episode(opened.episode_id)).status == "open"


# ---- one episode ------------------------------------------------------------------------


async def test_more_calls_than_may_wait_are_refused_uncounted(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty, max_waiting_calls=2) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        gate = rig.host.episodes.get(opened.episode_id).episode._gate
        async with running(*[lambda: agent.call_tool("spin", {})] * 3) as answers:
            await until(lambda: gate.waiting == 2)
            refused = await agent.call_tool("count", {})
            assert refused.code == "busy"
        assert [answer.code for answer in answers] == ["timeout"] * 3
        assert not (await agent.call_tool("count", {})).is_error
        view = await rig.control.get_episode(opened.episode_id)
        assert [call["tool"] for call in view.record["calls"]] == ["spin"] * 3 + ["count"]


async def test_closing_waits_for_the_call_that_runs_and_for_no_other(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        gate = rig.host.episodes.get(opened.episode_id).episode._gate
        async with running(*[lambda: agent.call_tool("spin", {})] * 5) as answers:
            await until(lambda: gate.waiting == 4)
            closed = await rig.control.close_episode(opened.episode_id)
            assert closed.status == "closed"
        assert sorted(answer.code for answer in answers) == ["episode"] * 4 + ["timeout"]
        view = await rig.control.get_episode(opened.episode_id)
        assert len(view.record["calls"]) == 1


async def test_a_call_does_not_wait_for_its_turn_for_ever(
    rig_of: Rigger, nasty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_module, "TURN_WAIT_S", 0.01)
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        gate = rig.host.episodes.get(opened.episode_id).episode._gate
        async with running(lambda: agent.call_tool("spin", {})):
            await until(lambda: gate.inside == 1)
            assert (await agent.call_tool("count", {})).code == "busy"


async def test_a_lease_ends_even_when_a_call_hangs_and_nothing_is_recorded_after(
    rig_of: Rigger, nasty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("astra_mcp.host.episodes.EXPIRE_S", 0.05)
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        live = rig.host.episodes.get(opened.episode_id)
        async with running(lambda: rig.agent(opened).call_tool("spin", {})) as answers:
            await until(lambda: live.episode._gate.inside == 1)
            live.opened -= 1e6
            await rig.host.sweep()
            assert live.episode.status == "expired"
            assert rig.host.episodes.admission.taken == 0
        assert answers[0].is_error
        assert live.episode.calls == []


async def test_messages_of_one_episode_have_a_limit(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        for n in range(episode_module.MAX_MESSAGES):
            await rig.control.post_message(opened.episode_id, f"{n}")
        with pytest.raises(ClientError, match="messages"):
            await rig.control.post_message(opened.episode_id, "one more")
        assert (await rig.control.submit_answer(opened.episode_id, "x")).value == 0.0


# ---- processes --------------------------------------------------------------------------


async def test_many_episodes_at_once_start_few_processes_at_a_time(
    rig_of: Rigger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = most = 0
    born = Template._born

    async def counted(self: Template, *args: Any) -> Worker:
        nonlocal starting, most
        starting += 1
        most = max(most, starting)
        try:
            return await born(self, *args)
        finally:
            starting -= 1

    monkeypatch.setattr(Template, "_born", counted)
    for n in range(8):
        path = tmp_path / f"nasty{n}.json"
        path.write_bytes(orjson.dumps(nasty_bundle(id=f"nasty{n}")))
    async with rig_of(tmp_path) as rig:
        tasks = [f"nasty{n % 8}#t1" for n in range(80)]
        async with running(*[lambda t=task: rig.open(t) for task in tasks]) as opened:
            pass
        assert len(opened) == 80
        assert rig.host.episodes.open_count == 80
        assert 2 <= most <= 16


# ---- nothing leaks ----------------------------------------------------------------------


def usage(rig: Rig) -> dict[str, int]:
    """What open episodes hold."""
    gc.collect()
    host = rig.host
    return {
        "slots": host.episodes.admission.taken,
        "open": host.episodes.open_count,
        "tokens": len(host.episodes._by_token),
        "users": sum(entry.users for entry in host.catalog._loaded.values()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "workers": sum(depth == 3 for depth in descendants(os.getpid()).values()),
    }


async def expire_all(rig: Rig) -> None:
    """The lease of every open episode ends now."""
    for live in list(rig.host.episodes._open.values()):
        live.opened -= 1e6
    await rig.host.sweep()


@pytest.mark.parametrize("journalled", [False, True])
async def test_whatever_fails_while_episodes_come_and_go_nothing_is_left(
    rig_of: Rigger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journalled: bool
) -> None:
    """Hundreds of episodes; each step of opening, calling and ending fails now and then."""
    rng = random.Random(7)
    paths = [tmp_path / f"b{n}.json" for n in range(3)]
    for path in paths:
        path.write_bytes(orjson.dumps(nasty_bundle(id=path.stem)))
    failing = False

    def sometimes(error: Exception) -> None:
        if failing and rng.random() < 0.06:
            raise error

    append, commit, start = JournalFile.append, JournalFile.commit, BundleEnvironment.start
    call = Worker.call

    def bad_append(self: JournalFile, event: Any) -> None:
        sometimes(JournalError("The disk is full.", "Make room."))
        append(self, event)

    async def bad_commit(self: JournalFile) -> None:
        sometimes(JournalError("The disk is full.", "Make room."))
        await commit(self)

    async def bad_start(self: BundleEnvironment) -> None:
        sometimes(LoadError("It does not load.", "Mend it."))
        await start(self)
        sometimes(WorkerLost("It is gone.", "Again."))

    async def bad_call(self: Worker, *args: Any) -> Any:
        sometimes(WorkerLost("It is gone.", "Again."))
        return await call(self, *args)

    monkeypatch.setattr(JournalFile, "append", bad_append)
    monkeypatch.setattr(JournalFile, "commit", bad_commit)
    monkeypatch.setattr(BundleEnvironment, "start", bad_start)
    monkeypatch.setattr(Worker, "call", bad_call)

    async def life(rig: Rig, n: int) -> None:
        """One client, which may be cancelled at any moment."""
        with anyio.move_on_after(rng.choice([0.01, 0.05, 60])):
            try:
                far = rng.choice([0, 0, 3])
                opened = await rig.open(f"b{n % 3}#t1", far_distractors=far, seed=n)
                for tool, args in (("put", {"key": "b", "value": 41}), ("count", {})):
                    await rig.agent(opened).call_tool(tool, args)
                end = rng.choice(["submit", "close", "leave"])
                if end == "submit":
                    await rig.control.submit_answer(opened.episode_id, "ANSWER: 2")
                elif end == "close":
                    await rig.control.close_episode(opened.episode_id)
            except AstraError:
                return

    folder = tmp_path / "journal" if journalled else None
    options: dict[str, Any] = {"loaded_bundles": 2, "max_episodes": 40, "journal": folder}
    async with rig_of(*paths, **options) as rig:
        for n in range(3):  # every bundle was loaded once
            opened = await rig.open(f"b{n}#t1")
            await rig.control.close_episode(opened.episode_id)
        await expire_all(rig)
        before = usage(rig)
        failing = True
        async with new_pool() as pool:
            control = ControlClient(pool, f"{rig.host.url}/control/mcp", CONTROL_TOKEN, busy_s=5)
            clients = Rig(rig.host, pool, control)
            for batch in range(12):
                async with anyio.create_task_group() as tasks:
                    for n in range(20):
                        tasks.start_soon(life, clients, batch * 20 + n)
                await expire_all(rig)
        failing = False
        await expire_all(rig)
        with anyio.move_on_after(20):
            while usage(rig) != before:
                await expire_all(rig)
                await anyio.sleep(0.05)
        assert usage(rig) == before
        opened = await rig.open("b0#t1")
        assert (await rig.agent(opened).call_tool("count", {})).structured == {"count": 1}


async def test_ending_a_session_while_its_call_runs_leaves_no_worker(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        client = McpClient(rig.pool, f"{rig.host.url}/envs/nasty/mcp", era="2025")
        await client.initialize()
        async with running(lambda: client.call_tool("spin", {})) as answers:
            await until(lambda: len(rig.host._transport.calls) == 1)
            await client.aclose()
        assert answers[0].code == "unavailable"
        await until(lambda: not [d for d in descendants(os.getpid()).values() if d == 3])


# ---- stopping ---------------------------------------------------------------------------


async def test_whoever_waits_for_a_slot_is_sent_away_when_the_host_stops(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty, max_episodes=1, wait_s=60) as rig:
        await rig.open(TASK)
        control = ControlClient(rig.pool, f"{rig.host.url}/control/mcp", CONTROL_TOKEN, busy_s=0)

        async def refused() -> BaseException | None:
            try:
                await control.open_episode(EpisodeRequest(task=TASK))
            except BusyError as error:
                return error
            return None

        async with running(refused) as answers:
            await until(lambda: rig.host.episodes.admission.waiting == 1)
            rig.host.router.drain()
        assert answers[0] is not None
        assert "stopping" in answers[0].message
        async with rig.pool.get(f"{rig.host.url}/healthz") as response:
            assert response.status == 503
            assert int(response.headers["retry-after"]) >= 1


async def test_a_token_of_another_host_opens_nothing_here(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
    async with rig_of(nasty) as rig:
        with pytest.raises(AuthError):
            await McpClient(rig.pool, f"{rig.host.url}/episodes/{opened.token}/mcp").list_tools()
