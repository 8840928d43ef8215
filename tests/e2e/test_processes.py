"""Several processes behind one port: who asks does not notice, and a dead one takes only its own.

Every test here asks through a process of its choice: `through(host, n)` is a pool of connections
that process `n` has accepted, so that "the wrong process" is never a matter of luck.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import orjson
import pytest
from mcp.client import Client
from prometheus_client.parser import text_string_to_metric_families

from astra_clients.agents import GoldenAgent
from astra_clients.agents.base import AgentContext
from astra_clients.control import ControlClient, EpisodeRequest, OpenedEpisode
from astra_clients.exchange import McpSettings, new_pool
from astra_clients.mcp_client import McpClient
from astra_clients.top.scrape import parse
from astra_mcp.errors import HttpError, UsageError
from astra_mcp.host import peers, supervisor
from astra_mcp.host.journal import JournalFolder
from astra_mcp.host.supervisor import claim
from astra_mcp.settings import HostSettings
from astra_mcp.store import find_bundles, load_bundle
from astra_mcp.task import Task
from tests.e2e.conftest import DATA, ENVS
from tests.e2e.test_commands import run, wait_for
from tests.soak.processes import TOKEN, HostProcess, descendants

TASK = "library-pickup#t1"
PATIENT = McpSettings(retries=60, request_s=60.0)
MCP = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


# ---- a host and ways into it ------------------------------------------------------------


@contextmanager
def running(folder: Path, *options: str, journaled: bool = True) -> Iterator[HostProcess]:
    """A host of two processes over all bundles; nothing of it is left afterwards."""
    host = HostProcess(
        folder, [ENVS, DATA / "counter.json"], ("--processes", "2", *options), journaled=journaled
    )
    host.start()
    try:
        yield host
    finally:
        assert host.process is not None
        host.process.send_signal(signal.SIGCONT)
        family = [*descendants(host.pid), host.pid]
        host.stop()
        wait_for(lambda: not any(alive(pid) for pid in family), 30)


def alive(pid: int) -> bool:
    """Whether the process runs, a zombie excepted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host for the tests that leave it as it was."""
    with running(tmp_path_factory.mktemp("processes"), journaled=False) as host:
        yield host


@dataclass
class Way:
    """A pool of one connection, accepted by one process."""

    host: HostProcess
    pool: aiohttp.ClientSession

    def control(self, settings: McpSettings | None = None) -> ControlClient:
        """The control plane."""
        url = f"{self.host.url}/control/mcp"
        return ControlClient(self.pool, url, TOKEN, busy_s=30.0, settings=settings)

    def raw_control(self) -> McpClient:
        """The same without types."""
        return McpClient(self.pool, f"{self.host.url}/control/mcp", token=TOKEN)

    async def open(self, shard: int | None = None, task: str = TASK) -> OpenedEpisode:
        """An episode, kept by `shard` when that is given."""
        for _ in range(64):
            opened = await self.control().open_episode(EpisodeRequest(task=task))
            if shard in (None, shard_of(opened)):
                return opened
            await self.control().close_episode(opened.episode_id)
        raise AssertionError("no episode went there")


@asynccontextmanager
async def through(host: HostProcess, shard: int) -> AsyncIterator[Way]:
    """A way into the host by that process."""
    for _ in range(200):
        connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=60)
        async with aiohttp.ClientSession(connector=connector) as pool:
            async with pool.get(f"{host.url}/healthz") as response:
                answered_by = (await response.json())["answered_by"]
            if answered_by == shard:
                yield Way(host, pool)
                return
    raise AssertionError(f"process {shard} accepts no connection")


def shard_of(opened: OpenedEpisode) -> int:
    return int(opened.episode_id[3:5], 16)


def handed_on(host: HostProcess) -> int:
    """Requests of clients that a process has handed to another."""
    return sum(one["handed_on"] for one in host.health()["processes"])


async def play(way: Way, opened: OpenedEpisode, task: Task) -> float | None:
    """A whole golden episode; its reward."""
    control = way.control(PATIENT)
    agent = McpClient(way.pool, opened.endpoint, settings=PATIENT)
    answer = await GoldenAgent(task).run(AgentContext(opened=opened, mcp=agent, control=control))
    return (await control.submit_answer(opened.episode_id, answer or "")).value


# ---- as one process would ---------------------------------------------------------------


def test_a_golden_collection_over_all_bundles_gets_every_reward(
    shared: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = handed_on(shared)
    out, token = tmp_path / "r.jsonl", tmp_path / "token"
    token.write_text(TOKEN)
    monkeypatch.setenv("ASTRA_CONTROL_TOKEN", TOKEN)
    run(
        "collect", ENVS, "--agent", "golden", "--agent", "null", "--seeds", 2, "--unaudited",
        "--concurrency", 8, "--url", f"{shared.url}/control/mcp", "--out", out,
    )  # fmt: skip
    records = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    golden = [r["reward"]["f1"] for r in records if r["agent"] == "golden"]
    tasks = sum(len(load_bundle(path).sealed.tasks) for path in find_bundles([ENVS]))
    assert golden == [1.0] * (2 * tasks)
    assert {r["reward"]["f1"] for r in records if r["agent"] == "null"} <= {0.0, None}
    assert handed_on(shared) > before


async def test_the_same_open_episode_over_many_connections_opens_one(shared: HostProcess) -> None:
    answers: list[dict[str, Any]] = []
    args = {"task": TASK, "request_id": f"once-{os.getpid()}", "seed": 3}

    async def one(shard: int) -> None:
        async with through(shared, shard) as way:
            got = await way.raw_control().call_tool("open_episode", args)
            assert got.structured is not None
            answers.append(got.structured)

    before = shared.health()["episodes"]
    async with anyio.create_task_group() as tasks:
        for shard in (0, 1) * 4:
            tasks.start_soon(one, shard)
    assert all(answer == answers[0] for answer in answers)
    assert shared.health()["episodes"] == before + 1
    async with through(shared, 0) as way, through(shared, 1) as other:
        refused = await way.raw_control().call_tool("open_episode", args | {"seed": 4})
        assert refused.code == "episode"
        submit = {"episode_id": answers[0]["episode_id"], "answer": "x", "request_id": "s1"}
        first = await way.raw_control().call_tool("submit_answer", submit)
        assert (await other.raw_control().call_tool("submit_answer", submit)) == first


@pytest.mark.parametrize("shard", [0, 1])
async def test_an_episode_is_the_same_through_either_process(
    shared: HostProcess, shard: int
) -> None:
    """Agent and control plane, both eras, a resource, and /agent/mcp, through the wrong process."""
    async with through(shared, shard) as right, through(shared, 1 - shard) as wrong:
        opened = await right.open(shard)
        assert opened.token[0] == "AB"[shard]
        for era in ("2025", "2026"):
            seen = []
            for way in (right, wrong):
                options: dict[str, Any] = {"era": era, "session_id": "x"} if era == "2025" else {}
                before = handed_on(shared)
                agent = McpClient(way.pool, opened.endpoint, **options)
                seen.append(await agent.list_tools())
                assert handed_on(shared) - before == (way is wrong)
                bearer = McpClient(
                    way.pool, f"{shared.url}/agent/mcp", token=opened.token, **options
                )
                seen.append(await bearer.list_tools())
            assert all(tools == seen[0] for tools in seen)
        uri = f"astra://episodes/{opened.episode_id}/trajectory"
        read = [await way.raw_control().read_resource(uri) for way in (right, wrong)]
        assert read[0] == read[1]
        view = await wrong.control().get_episode(opened.episode_id)
        assert view == await right.control().get_episode(opened.episode_id)
        task = load_bundle(ENVS / "library-pickup").task("t1")
        assert await play(wrong, opened, task) == 1.0


async def test_one_heartbeat_reaches_the_episodes_of_every_process(shared: HostProcess) -> None:
    async with through(shared, 0) as way:
        opened = [await way.open(shard) for shard in (0, 1, 0, 1)]
        ids = [one.episode_id for one in opened]
        closed = await way.open(1)
        await way.control().close_episode(closed.episode_id)
        asked = [*ids[:2], closed.episode_id, "ep_no-such", *ids[2:]]
        assert await way.control().heartbeat(asked) == ids
        for key in ids:
            await way.control().close_episode(key)


async def test_a_session_counts_on_over_new_connections_through_either_process(
    shared: HostProcess,
) -> None:
    url = f"{shared.url}/envs/counter/mcp"
    start = {
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }  # fmt: skip
    call = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "increment", "arguments": {}},
    }  # fmt: skip
    for shard in (0, 1):
        async with (
            through(shared, shard) as way,
            way.pool.post(url, json=start, headers=MCP) as began,
        ):
            assert began.status == 200
            headers = MCP | {"mcp-session-id": began.headers["mcp-session-id"]}
        before = handed_on(shared)
        values = []
        for other in (0, 1, 1, 0, 0, 1):
            async with (
                through(shared, other) as way,
                way.pool.post(url, json=call, headers=headers) as answer,
            ):
                values.append((await answer.json())["result"]["structuredContent"]["value"])
        assert values == [1, 2, 3, 4, 5, 6]
        assert handed_on(shared) - before == 3
        async with through(shared, 1 - shard) as way:
            async with way.pool.delete(url, headers=headers) as ended:
                assert ended.status == 200
            async with way.pool.post(url, json=call, headers=headers) as answer:
                assert answer.status == 404


async def test_a_play_is_reached_through_either_process(shared: HostProcess) -> None:
    async with through(shared, 0) as way, through(shared, 1) as other:
        async with way.pool.post(f"{shared.url}/play/counter") as response:
            url = (await response.json())["url"]
        for n, pool in enumerate((way.pool, other.pool, way.pool, other.pool), 1):
            got = await McpClient(pool, url).call_tool("increment", {})
            assert got.structured == {"value": n}


# ---- streams ----------------------------------------------------------------------------


@pytest.mark.parametrize("shard", [0, 1])
async def test_a_stream_through_the_wrong_process_tells_of_changes_and_ends_with_its_episode(
    shared: HostProcess, shard: int
) -> None:
    async with through(shared, 1 - shard) as wrong, through(shared, shard) as right:
        opened = await right.open(shard, "it-helpdesk#t1")
        async with wrong.pool.get(opened.endpoint, headers={"accept": "text/event-stream"}) as get:
            assert get.status == 200
            with anyio.fail_after(20):
                assert await get.content.readuntil(b"\r\n\r\n") == b": ping\r\n\r\n"
                await right.control().post_message(opened.episode_id, "That is done.")
                assert b"list_changed" in await get.content.readuntil(b"\r\n\r\n")
                await right.control().close_episode(opened.episode_id)
                assert await get.content.read() == b""


async def test_the_official_client_hears_of_a_change_whatever_process_it_is_at(
    shared: HostProcess,
) -> None:
    async with through(shared, 0) as way:
        for shard in (0, 1):
            opened = await way.open(shard, "it-helpdesk#t1")
            heard = anyio.Event()

            async def on_message(message: object, heard: anyio.Event = heard) -> None:
                if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
                    heard.set()

            async with Client(opened.endpoint, mode="legacy", message_handler=on_message) as client:
                await client.list_tools()
                await way.control().post_message(opened.episode_id, "That is done.")
                with anyio.fail_after(20):
                    await heard.wait()
            await way.control().close_episode(opened.episode_id)


async def test_a_client_that_leaves_a_stream_at_the_wrong_process_frees_it_at_the_right_one(
    shared: HostProcess,
) -> None:
    """An episode takes four streams: a fifth is let in once the others are gone."""
    async with through(shared, 0) as way:
        opened = await way.open(0)
        headers = {"accept": "text/event-stream"}
        for _ in range(4):
            async with through(shared, 1) as wrong:
                response = await wrong.pool.get(opened.endpoint, headers=headers)
                assert response.status == 200
                await response.content.readuntil(b"\r\n\r\n")
                response.close()
        with anyio.fail_after(30):
            while True:
                async with way.pool.get(opened.endpoint, headers=headers) as response:
                    if response.status == 200:
                        break
                    assert response.status == 409
        await way.control().close_episode(opened.episode_id)


# ---- what nobody gets in by -------------------------------------------------------------


async def test_every_wrong_token_gets_one_answer_at_every_process(shared: HostProcess) -> None:
    async with through(shared, 0) as way, through(shared, 1) as other:
        mine, theirs, dead = await way.open(0), await way.open(1), await way.open(1)
        await way.control().submit_answer(dead.episode_id, "")

        async def ask(one: Way, path: str, token: str | None = None) -> tuple[int, bytes, Any]:
            headers = MCP | ({"authorization": f"Bearer {token}"} if token else {})
            url = f"{shared.url}{path}"
            async with one.pool.post(url, json=LIST, headers=headers) as answer:
                kept = {k.lower(): v for k, v in answer.headers.items() if k.lower() != "date"}
                return answer.status, await answer.read(), kept

        unknown = await ask(way, "/episodes/unknown/mcp")
        assert unknown[0] == 401
        swapped = {"A": "B", "B": "A"}
        for opened in (mine, theirs):
            moved = swapped[opened.token[0]] + opened.token[1:]
            for one in (way, other):
                for path, token in [
                    (f"/episodes/{moved}/mcp", None),
                    (f"/episodes/{opened.token[1:]}/mcp", None),
                    (f"/episodes/z{opened.token[1:]}/mcp", None),
                    (f"/episodes/{dead.token}/mcp", None),
                    (f"/episodes/{TOKEN}/mcp", None),
                    (f"/episodes/{mine.token}/mcp", theirs.token),
                    (f"/episodes/{theirs.token}/mcp", mine.token),
                    (f"/episodes/{opened.token}/mcp", TOKEN),
                    ("/agent/mcp", None),
                    ("/agent/mcp", moved),
                    ("/agent/mcp", dead.token),
                    ("/agent/mcp", TOKEN),
                    ("/control/mcp", None),
                    ("/control/mcp", opened.token),
                    ("/control/mcp", f"{TOKEN}x"),
                ]:
                    assert await ask(one, path, token) == unknown, path
                assert (await ask(one, f"/episodes/{opened.token}/mcp"))[0] == 200
        for opened in (mine, theirs):
            assert len(opened.token) == 44  # a letter, and 256 random bits
            await way.control().close_episode(opened.episode_id)


async def test_nothing_is_handed_on_that_the_door_refuses(shared: HostProcess) -> None:
    async with through(shared, 1) as wrong:
        opened = await wrong.open(0)
        before = handed_on(shared)
        for headers, body, status in [
            (MCP | {"host": "evil.example"}, b"{}", 421),
            (MCP | {"origin": "http://evil.example"}, b"{}", 403),
            (MCP, b"x" * (1 << 20) + b"x", 413),
        ]:
            async with wrong.pool.post(opened.endpoint, data=body, headers=headers) as answer:
                assert answer.status == status
        assert handed_on(shared) == before
    async with through(shared, 1) as wrong:
        for data, status in ((b"not json", 400), (b"", 400)):
            async with wrong.pool.post(opened.endpoint, data=data, headers=MCP) as answer:
                assert answer.status == status
        async with wrong.pool.put(opened.endpoint, data=b"{}") as answer:
            assert answer.status == 405
        async with wrong.pool.head(opened.endpoint) as answer:
            assert answer.status == 405
        await wrong.control().close_episode(opened.episode_id)


def test_no_secret_is_on_a_command_line_and_the_sockets_are_private(shared: HostProcess) -> None:
    family = [shared.pid, *descendants(shared.pid)]
    lines = b" ".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in family if alive(pid))
    assert TOKEN.encode() not in lines
    folders = folders_of(shared.pid)
    assert folders
    for folder in folders:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# ---- watching ---------------------------------------------------------------------------


async def test_any_process_answers_for_all_at_healthz_and_metrics(shared: HostProcess) -> None:
    async with through(shared, 0) as way, through(shared, 1) as other:
        opened = [await way.open(shard) for shard in (0, 1, 1)]
        for one in (way, other):
            async with one.pool.get(f"{shared.url}/healthz") as response:
                health = await response.json()
            assert health["status"] == "ok"
            assert health["episodes"] == sum(p["episodes"] for p in health["processes"])
            assert all(p["up"] and p["episodes"] >= 1 for p in health["processes"])
            headers = {"authorization": f"Bearer {TOKEN}"}
            async with one.pool.get(f"{shared.url}/metrics", headers=headers) as response:
                page = await response.text()
            families = {family.name: family for family in text_string_to_metric_families(page)}
            assert {s.labels["shard"] for f in families.values() for s in f.samples} == {"0", "1"}
            counts = {s.labels["shard"]: s.value for s in families["astra_episodes_open"].samples}
            assert counts == {str(p["shard"]): p["episodes"] for p in health["processes"]}
            assert parse(page, 0.0).value("astra_episodes_open") == health["episodes"]
            async with one.pool.get(f"{shared.url}/metrics") as response:
                assert response.status == 401
        for each in opened:
            await way.control().close_episode(each.episode_id)


# ---- dying ------------------------------------------------------------------------------


def pid_of(host: HostProcess, shard: int) -> int:
    found = [one for one in host.health()["processes"] if one["shard"] == shard]
    pid: int = found[0]["pid"]
    return pid


@contextmanager
def killed(host: HostProcess, shard: int) -> Iterator[None]:
    """One process is dead while the block runs: its supervisor stands still."""
    pid = pid_of(host, shard)
    assert host.process is not None
    host.process.send_signal(signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not alive(pid))
        yield
    finally:
        host.process.send_signal(signal.SIGCONT)


def healthy(host: HostProcess) -> bool:
    try:
        return bool(host.health()["status"] == "ok")
    except OSError:
        return False  # the process that took the connection was killed


async def status_of(way: Way, opened: OpenedEpisode) -> tuple[int, str | None]:
    url = opened.endpoint
    async with way.pool.post(url, json=LIST, headers=MCP) as response:
        await response.read()
        return response.status, response.headers.get("retry-after")


async def test_a_dead_process_takes_only_its_own_and_with_a_journal_they_come_back(
    tmp_path: Path,
) -> None:
    task = load_bundle(ENVS / "library-pickup").task("t1")
    with running(tmp_path) as host:
        async with through(host, 1) as way:
            lost = await way.open(0, "counter#t1")
            kept = await way.open(1)
            counted = await McpClient(way.pool, lost.endpoint).call_tool("increment", {}, "c1")
            with killed(host, 0):
                assert await status_of(way, lost) == (503, "1")
                control = {"name": "get_episode", "arguments": {"episode_id": lost.episode_id}}
                body = LIST | {"method": "tools/call", "params": control}
                headers = MCP | {"authorization": f"Bearer {TOKEN}"}
                url = f"{host.url}/control/mcp"
                async with way.pool.post(url, json=body, headers=headers) as response:
                    assert (response.status, response.headers["retry-after"]) == (503, "1")
                async with way.pool.get(f"{host.url}/healthz") as response:
                    health = await response.json()
                assert health["status"] == "degraded"
                assert [one["up"] for one in health["processes"]] == [False, True]
                # Others feel nothing: an episode is played, another opened, on this connection.
                assert await play(way, kept, task) == 1.0
            wait_for(lambda: healthy(host))
            agent = McpClient(way.pool, lost.endpoint, settings=PATIENT)
            assert await agent.call_tool("increment", {}, "c1") == counted
            again = await agent.call_tool("increment", {}, "c2")
            assert again.structured is not None
            assert counted.structured is not None
            assert again.structured["value"] == counted.structured["value"] + 1
            view = await way.control().get_episode(lost.episode_id)
            assert len(view.record["calls"]) == 2


async def test_without_a_journal_a_dead_process_has_lost_its_episodes_and_says_so(
    tmp_path: Path,
) -> None:
    with running(tmp_path, journaled=False) as host:
        async with through(host, 1) as way:
            lost, kept = await way.open(0), await way.open(1)
            os.kill(pid_of(host, 0), signal.SIGKILL)
            with anyio.fail_after(60):
                while (status := await status_of(way, lost))[0] == 503:
                    assert status[1] == "1"
            assert status[0] == 401
            assert (await status_of(way, kept))[0] == 200


async def test_a_process_that_answers_no_more_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LOOK_S", 0.01)
    monkeypatch.setattr(peers, "ASK_S", 0.5)
    stop = anyio.Event()
    path = str(ENVS / "library-pickup")
    order = {
        "paths": [path], "peers": str(tmp_path), "control_token": TOKEN, "metrics_token": None,
    }  # fmt: skip
    settings = HostSettings(processes=2, shard=1, unaudited=True)
    shard = supervisor.Shard(order, settings, stop)

    async def pid() -> int:
        while True:
            try:
                reply = await peers.Peer(peers.socket_path(tmp_path, 1)).ask("GET", b"/healthz", [])
                return int(orjson.loads(reply.body)["pid"])
            except HttpError:
                await anyio.sleep(0.01)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shard.keep)
            await shard.up.wait()
            first = await pid()
            os.kill(first, signal.SIGSTOP)
            while (second := await pid()) == first:
                pass
            stop.set()
    assert not alive(first)
    assert not alive(second)


async def test_a_process_killed_in_the_middle_of_a_collection_costs_no_reward(
    tmp_path: Path,
) -> None:
    """Clients that send again what was cut off end with every reward, on either process."""
    bundle = load_bundle(ENVS / "library-pickup")
    task = bundle.task("t1")
    rewards: list[float | None] = []
    under_way = anyio.Event()
    with running(tmp_path) as host:

        async def one() -> None:
            async with new_pool() as pool:
                way = Way(host, pool)
                request = EpisodeRequest(task=f"{bundle.ref}#t1")
                opened = await way.control(PATIENT).open_episode(request)
                rewards.append(await play(way, opened, task))

        async def worker() -> None:
            for _ in range(8):
                await one()
                if len(rewards) >= 6:
                    under_way.set()

        with anyio.fail_after(100):
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(worker)
                await under_way.wait()
                os.kill(pid_of(host, 0), signal.SIGKILL)
    assert rewards == [1.0] * 32


# ---- starting and ending ----------------------------------------------------------------


def folders_of(pid: int) -> set[Path]:
    """Where the processes of a host meet: the folders of its two sockets."""
    table = Path(f"/proc/{pid}/net/unix").read_text().split()
    return {Path(word).parent for word in table if word.endswith(("/0.sock", "/1.sock"))}


def test_the_processes_end_with_their_supervisor_however_it_ends(tmp_path: Path) -> None:
    before = folders_of(os.getpid())
    host = HostProcess(tmp_path, [ENVS / "library-pickup"], ("--processes", "2"))
    host.start()
    family = list(descendants(host.pid))
    assert len(family) >= 4  # two processes and the first of each one's sandbox
    mine = folders_of(host.pid) - before
    host.kill()
    wait_for(lambda: not any(alive(pid) for pid in family), 30)
    assert mine
    assert not any(folder.exists() for folder in mine)


async def test_sigterm_drains_all_and_a_restart_brings_the_episodes_of_all_back(
    tmp_path: Path,
) -> None:
    host = HostProcess(tmp_path, [ENVS, DATA / "counter.json"], ("--processes", "2"))
    host.start()
    async with through(host, 0) as way:
        opened = [await way.open(shard) for shard in (0, 1)]
    family = list(descendants(host.pid))
    assert host.stop() == 0
    assert not any(alive(pid) for pid in family)
    host.start()
    try:
        assert host.health()["episodes"] == 2
        async with through(host, 1) as way:
            for one in opened:
                assert (await status_of(way, one))[0] == 200
    finally:
        assert host.stop() == 0


def test_a_journal_of_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    """Which process keeps an episode stands in its id, so another number would lose it."""
    single, double = tmp_path / "single", tmp_path / "double"
    JournalFolder(single).close()
    claim(double, 2)
    claim(double, 2)
    for made, journal, asked in ((1, single, 2), (2, double, 1), (2, double, 3)):
        with pytest.raises(UsageError, match=f"--processes {made}"):
            claim(journal, asked)
    claim(single, 1)
    done = run("serve", ENVS, "--unaudited", "--journal", double, code=2)
    assert "--processes 2" in done.stderr


def test_a_process_that_cannot_start_says_why_and_leaves_nothing(
    tmp_path: Path, shared: HostProcess
) -> None:
    done = run("serve", "no/such/path", "--unaudited", "--processes", "2", code=1)
    assert "does not exist" in done.stderr
    assert "Traceback" not in done.stderr
    taken = shared.url.rpartition(":")[2]
    busy = run("serve", ENVS, "--unaudited", "--processes", "2", "--port", taken, code=3)
    assert "Cannot listen" in busy.stderr
