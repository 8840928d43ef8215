"""What a restart keeps: answers, tokens, states. What a full disk costs. Old journals.

Kill -9 at random moments is tests/soak.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from astra_clients.control import ControlClient, EpisodeRequest
from astra_clients.exchange import McpSettings, new_pool
from astra_clients.mcp_client import McpClient, ToolResponse
from astra_mcp.errors import AuthError, ClientError, UsageError
from astra_mcp.host import journal as journal_module
from astra_mcp.host.journal import FINISHED, JournalFolder, read_journal
from tests.e2e.conftest import CONTROL_TOKEN, Rig, Rigger
from tests.e2e.nasty import nasty_bundle
from tests.soak.processes import TOKEN, HostProcess, descendants

TASK = "nasty@1.0.0#t1"
GOOD = {"key": "b", "value": 41}
ASKING = "restaurant-reservation#t1"


def control_of(rig: Rig) -> McpClient:
    """The control plane without types."""
    return McpClient(rig.pool, f"{rig.host.url}/control/mcp", token=CONTROL_TOKEN)


async def ask(rig: Rig, tool: str, **args: Any) -> dict[str, Any]:
    """A control operation that must succeed."""
    response = await control_of(rig).call_tool(tool, args)
    assert not response.is_error, response.text
    assert response.structured is not None
    return response.structured


def agent_of(rig: Rig, token: str, **options: Any) -> McpClient:
    """The agent's plane of an episode of an earlier run."""
    return McpClient(rig.pool, f"{rig.host.url}/episodes/{token}/mcp", **options)


# ---- request ids ------------------------------------------------------------------------


async def test_open_episode_repeated_after_a_restart_opens_nothing_and_both_tokens_live(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    settings = {"journal": tmp_path / "journal"}
    async with rig_of(nasty, **settings) as rig:
        first = await ask(rig, "open_episode", task=TASK, request_id="open-1", seed=5)
        assert first == await ask(rig, "open_episode", task=TASK, request_id="open-1", seed=5)
    async with rig_of(nasty, **settings) as rig:
        again = await ask(rig, "open_episode", task=TASK, request_id="open-1", seed=5)
        assert again["episode_id"] == first["episode_id"]
        assert rig.host.episodes.open_count == 1
        # The first answer may have come late: whoever holds it goes on with it.
        for token in (first["token"], again["token"]):
            assert await agent_of(rig, token).list_tools()
        other = {"task": TASK, "request_id": "open-1", "seed": 6}
        assert (await control_of(rig).call_tool("open_episode", other)).code == "episode"
    async with rig_of(nasty, **settings) as rig:
        for token in (first["token"], again["token"]):
            assert await agent_of(rig, token).list_tools()


async def test_open_episode_repeated_after_its_episode_ended_opens_nothing(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    settings = {"journal": tmp_path / "journal"}
    async with rig_of(nasty, **settings) as rig:
        first = await ask(rig, "open_episode", task=TASK, request_id="open-1")
        await rig.control.submit_answer(first["episode_id"], "")
        assert first == await ask(rig, "open_episode", task=TASK, request_id="open-1")
    async with rig_of(nasty, **settings) as rig:
        again = await ask(rig, "open_episode", task=TASK, request_id="open-1")
        assert again["episode_id"] == first["episode_id"]
        assert rig.host.episodes.open_count == 0
        with pytest.raises(AuthError):
            await agent_of(rig, again["token"]).list_tools()


async def test_every_other_request_repeated_after_a_restart_gives_the_first_answer(
    rig_of: Rigger, tmp_path: Path
) -> None:
    settings = {"journal": tmp_path / "journal"}
    requests: list[tuple[str, dict[str, Any]]] = []
    answers: list[dict[str, Any]] = []
    async with rig_of(**settings) as rig:
        graded, closed = await rig.open(ASKING), await rig.open(ASKING)
        for tool, args in [
            ("post_message", {"episode_id": graded.episode_id, "text": "How many people?"}),
            ("post_message", {"episode_id": closed.episode_id, "text": "Hello."}),
            ("submit_answer", {"episode_id": graded.episode_id, "answer": "ANSWER: x"}),
            ("close_episode", {"episode_id": closed.episode_id}),
        ]:
            requests.append((tool, args | {"request_id": f"r{len(requests)}"}))
            answers.append(await ask(rig, tool, **requests[-1][1]))
        views = [await rig.control.get_episode(e.episode_id) for e in (graded, closed)]
    for _ in range(2):
        async with rig_of(**settings) as rig:
            for (tool, args), answer in zip(requests, answers, strict=True):
                assert await ask(rig, tool, **args) == answer
                changed = args | {"text": "other", "answer": "other"}
                changed = {key: changed[key] for key in args}
                if tool != "close_episode":
                    refused = await control_of(rig).call_tool(tool, changed)
                    assert "another request" in refused.text
            for view in views:
                assert await rig.control.get_episode(view.episode_id) == view


# ---- the agent's call ids ---------------------------------------------------------------


async def test_an_agents_calls_repeated_after_a_restart_run_once(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    settings = {"journal": tmp_path / "journal"}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("put", GOOD), ("put", {"key": "a", "value": 1}), ("put", {"key": 5}), ("nothing", {}),
    ]  # fmt: skip
    async with rig_of(nasty, **settings) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        first = [await agent.call_tool(tool, args, f"c{n}") for n, (tool, args) in enumerate(calls)]
    async with rig_of(nasty, **settings) as rig:
        agent = agent_of(rig, opened.token)
        again = [await agent.call_tool(tool, args, f"c{n}") for n, (tool, args) in enumerate(calls)]
        assert again == first
        assert [answer.code for answer in first] == [
            None, "conflict", "invalid_arguments", "unknown_tool",
        ]  # fmt: skip
        view = await rig.control.get_episode(opened.episode_id)
        assert len(view.record["calls"]) == 4


async def test_what_an_agent_said_itself_is_said_once_over_a_restart(
    rig_of: Rigger, tmp_path: Path
) -> None:
    settings = {"journal": tmp_path / "journal"}
    question = {"text": "How many people will come?"}
    async with rig_of(**settings) as rig:
        opened = await rig.open(ASKING, agent_io=True)
        first = await rig.agent(opened).call_tool("ask_user", question, "ask-1")
        assert "seven" in first.text
    async with rig_of(**settings) as rig:
        assert await agent_of(rig, opened.token).call_tool("ask_user", question, "ask-1") == first
        view = await rig.control.get_episode(opened.episode_id)
        assert [m["content"] for m in view.record["messages"]].count(question["text"]) == 1


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_an_agent_that_lost_the_answer_to_its_submission_hears_it_again(
    rig_of: Rigger, tmp_path: Path, era: str
) -> None:
    """Its token is dead by then, and opens nothing but the repetition of that one call."""
    settings = {"journal": tmp_path / "journal"}
    answer = {"answer": "ANSWER: RS-0000"}

    async def check(rig: Rig) -> None:
        options: dict[str, Any] = {"era": era, "session_id": "any"} if era == "2025" else {}
        agent = agent_of(rig, opened.token, **options)
        assert await agent.call_tool("submit_answer", answer, "end-1") == first
        for tool, call_id in (("submit_answer", "end-2"), ("ask_user", "end-1")):
            with pytest.raises(AuthError):
                await agent.call_tool(tool, answer, call_id)
        for attempt in (agent.list_tools, lambda: agent.call_tool("submit_answer", answer)):
            with pytest.raises(AuthError):
                await attempt()
        async with rig.pool.get(f"{rig.host.url}/episodes/{opened.token}/mcp") as response:
            assert response.status == 401
        assert (await rig.control.get_episode(opened.episode_id)).grade == view.grade

    async with rig_of(**settings) as rig:
        opened = await rig.open(ASKING, agent_io=True)
        first = await rig.agent(opened).call_tool("submit_answer", answer, "end-1")
        assert first.text == "accepted"
        view = await rig.control.get_episode(opened.episode_id)
        await rig.host.sweep()
        assert rig.host.episodes.open_count == 0
        await check(rig)
    for _ in range(2):
        async with rig_of(**settings) as rig:
            await check(rig)


# ---- in flight --------------------------------------------------------------------------


async def five(call: Callable[[], Awaitable[Any]]) -> list[Any]:
    """The same request five times at once."""
    answers: list[Any] = []

    async def one() -> None:
        answers.append(await call())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one)
    return answers


async def test_copies_of_a_request_in_flight_act_once(rig_of: Rigger) -> None:
    async with rig_of() as rig:
        args = {"task": ASKING, "request_id": "o", "agent_io": True}
        opened = await five(lambda: ask(rig, "open_episode", **args))
        assert all(answer == opened[0] for answer in opened)
        assert rig.host.episodes.open_count == 1
        episode_id, token = opened[0]["episode_id"], opened[0]["token"]
        agent = agent_of(rig, token)

        question = {"text": "How many people will come?"}
        said = await five(lambda: agent.call_tool("ask_user", question, "q"))
        assert all("seven" in answer.text for answer in said)
        tool = (await agent.list_tools())[0]["name"]
        assert len({str(c) for c in await five(lambda: agent.call_tool(tool, {}, "c"))}) == 1
        view = await rig.control.get_episode(episode_id)
        assert [m["role"] for m in view.record["messages"]] == ["user", "assistant", "user", "call"]

        ended = await five(lambda: agent.call_tool("submit_answer", {"answer": "x"}, "s"))
        assert [answer.text for answer in ended] == ["accepted"] * 5


# ---- far distractors --------------------------------------------------------------------


async def test_worlds_of_far_distractors_keep_their_state_over_a_restart(
    rig_of: Rigger, tmp_path: Path
) -> None:
    paths = []
    for name in ("mine", "other"):
        raw = nasty_bundle(id=name)
        if name == "other":  # another name, so that it does not hide behind one's own tool
            for tool in raw["manifest"]["tools"]:
                tool["name"] = f"far_{tool['name']}"
            raw["code"] = raw["code"].replace("\ndef ", "\ndef far_")
            task = raw["sealed"]["tasks"][0]
            for step in task["plan"]:
                step["tool"] = f"far_{step['tool']}"
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_bytes(orjson.dumps(raw))
    settings = {"journal": tmp_path / "journal"}
    async with rig_of(*paths, **settings) as rig:
        opened = await rig.open("mine#t1", far_distractors=20)
        answer = await rig.agent(opened).call_tool("far_put", GOOD)
        assert answer.structured == {"count": 2}
    async with rig_of(*paths, **settings) as rig:
        agent = agent_of(rig, opened.token)
        assert (await agent.call_tool("far_put", GOOD)).code == "conflict"
        assert (await agent.call_tool("far_count", {})).structured == {"count": 2}
        assert (await agent.call_tool("count", {})).structured == {"count": 1}
    (file,) = (tmp_path / "journal").glob("*.jsonl")
    events = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    events[1]["far"]["changes"]["items"]["b"]["value"] = 42
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    async with rig_of(*paths, **settings) as rig:
        view = await rig.control.get_episode(opened.episode_id)
        assert view.status == "corrupt"


# ---- a disk that does not take it -------------------------------------------------------


class Disk:
    """A disk that can be full: then it takes half a line, or does not come to rest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.restless = False
        write, fsync = os.write, os.fsync

        def full_write(fd: int, data: bytes) -> int:
            if self.full and len(data) > 20:
                return write(fd, data[: len(data) // 2])
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(fd, data)

        def restless_fsync(fd: int) -> None:
            if self.restless:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            fsync(fd)

        class Os:
            write = staticmethod(full_write)
            fsync = staticmethod(restless_fsync)

            def __getattr__(self, name: str) -> Any:
                return getattr(os, name)

        monkeypatch.setattr(journal_module, "os", Os())


async def test_a_full_disk_costs_the_request_and_nothing_else(
    rig_of: Rigger, nasty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    settings = {"journal": tmp_path / "journal"}
    async with rig_of(nasty, **settings) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        disk.full = True
        refused = await agent.call_tool("put", GOOD, "c1")
        assert (refused.code, "No space left" in refused.text) == ("journal", True)
        with pytest.raises(ClientError, match="No space left"):
            await rig.control.post_message(opened.episode_id, "hello", "m1")
        with pytest.raises(ClientError, match="No space left"):
            await rig.control.submit_answer(opened.episode_id, "ANSWER: 2", "s1")
        with pytest.raises(ClientError, match="No space left"):
            await rig.control.close_episode(opened.episode_id)
        with pytest.raises(ClientError, match="No space left"):
            await rig.open(TASK)
        view = await rig.control.get_episode(opened.episode_id)
        assert (view.status, view.record["calls"]) == ("open", [])
        disk.full, disk.restless = False, True
        with pytest.raises(ClientError, match="cannot be written"):
            await rig.control.submit_answer(opened.episode_id, "ANSWER: 2", "s1")
        with pytest.raises(ClientError, match="cannot be written"):
            await rig.open(TASK)
        assert rig.host.episodes.admission.taken == 1
        disk.restless = False
        # The same requests again, as if nothing had been: the write had been taken back.
        assert (await agent.call_tool("put", GOOD, "c1")).structured == {"count": 2}
    async with rig_of(nasty, **settings) as rig:
        agent = agent_of(rig, opened.token)
        assert (await agent.call_tool("count", {})).structured == {"count": 2}
        grade = await rig.control.submit_answer(opened.episode_id, "ANSWER: 2", "s1")
        assert (grade.f1, grade.counted_calls) == (1.0, 2)
    assert len(list((tmp_path / "journal").rglob("*.jsonl"))) == 1


async def test_a_lease_ends_on_a_full_disk_too(
    rig_of: Rigger, nasty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with rig_of(nasty, journal=tmp_path / "journal") as rig:
        opened = await rig.open(TASK)
        disk.full = True
        rig.host.episodes.get(opened.episode_id).opened -= 1e6
        await rig.host.sweep()
        view = await rig.control.get_episode(opened.episode_id)
        assert view.status == "expired"
        assert view.grade is not None
        assert view.grade.value is None
        assert rig.host.episodes.admission.taken == 0


def test_a_folder_has_one_host(tmp_path: Path) -> None:
    mine = JournalFolder(tmp_path / "journal")
    with pytest.raises(UsageError, match="another host"):
        JournalFolder(tmp_path / "journal")
    mine.close()
    JournalFolder(tmp_path / "journal").close()


def test_a_folder_that_cannot_be_used_is_said_in_a_sentence(nasty: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    command = [sys.executable, "-m", "astra_mcp.cli", "serve", str(nasty), "--unaudited"]
    done = subprocess.run(
        [*command, "--journal", str(tmp_path / "file")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


# ---- old episodes -----------------------------------------------------------------------


async def test_finished_episodes_are_read_from_their_journals_when_asked_for(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    async with rig_of(nasty, journal=folder, keep_finished=1) as rig:
        grades = {}
        for n in range(4):
            opened = await rig.open(TASK)
            await rig.agent(opened).call_tool("put", GOOD)
            grades[opened.episode_id] = await rig.control.submit_answer(opened.episode_id, f"{n}")
        assert len(rig.host.episodes._finished) == 1
        for episode_id, grade in grades.items():
            assert (await rig.control.get_episode(episode_id, reveal=True)).grade == grade
        with pytest.raises(ClientError, match="no episode"):
            await rig.control.get_episode("ep_" + "0" * 24)
        with pytest.raises(ClientError, match="no episode"):
            await rig.control.get_episode("../salt")
    assert not list(folder.glob("*.jsonl"))
    async with rig_of(nasty, journal=folder) as rig:
        assert len(rig.host.episodes._finished) == 0
        for episode_id, grade in grades.items():
            assert (await rig.control.get_episode(episode_id)).grade == grade


async def test_a_finished_journal_that_was_changed_has_no_reward(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    async with rig_of(nasty, journal=folder) as rig:
        opened = await rig.open(TASK)
        await rig.agent(opened).call_tool("put", GOOD)
        await rig.control.submit_answer(opened.episode_id, "")
    path = folder / FINISHED / f"{opened.episode_id}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"value":41', b'"value":42'))
    async with rig_of(nasty, journal=folder) as rig:
        for _ in range(2):
            view = await rig.control.get_episode(opened.episode_id)
            assert view.status == "corrupt"
            assert view.grade is not None
            assert view.grade.value is None


async def test_a_finished_episode_of_another_bundle_is_not_shown_and_not_touched(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    async with rig_of(nasty, journal=folder) as rig:
        opened = await rig.open(TASK)
        await rig.control.submit_answer(opened.episode_id, "")
    path = folder / FINISHED / f"{opened.episode_id}.jsonl"
    before = path.read_bytes()
    other = tmp_path / "other" / "nasty.json"
    other.parent.mkdir()
    other.write_bytes(orjson.dumps(nasty_bundle(title="Another title")))
    async with rig_of(other, journal=folder) as rig:
        with pytest.raises(ClientError, match="the bundle has changed"):
            await rig.control.get_episode(opened.episode_id)
    assert path.read_bytes() == before


async def test_the_oldest_finished_journals_go_first(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    async with rig_of(nasty, journal=folder) as rig:
        ids = []
        for n in range(5):
            opened = await rig.open(TASK)
            await rig.control.submit_answer(opened.episode_id, "")
            ids.append(opened.episode_id)
            age = time.time() - 1000 + n
            os.utime(folder / FINISHED / f"{opened.episode_id}.jsonl", (age, age))
    async with rig_of(nasty, journal=folder, keep_journals=2):
        assert {path.stem for path in (folder / FINISHED).iterdir()} == set(ids[3:])


async def test_a_header_that_a_kill_cut_short_is_no_episode(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    async with rig_of(nasty, journal=folder) as rig:
        opened = await ask(rig, "open_episode", task=TASK, request_id="r")
    (file,) = folder.glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:100])
    async with rig_of(nasty, journal=folder) as rig:
        assert rig.host.episodes.open_count == 0
        again = await ask(rig, "open_episode", task=TASK, request_id="r")
        assert again["episode_id"] == opened["episode_id"]
        assert len(read_journal(file).events) == 0


# ---- many, and a real process -----------------------------------------------------------


async def test_a_thousand_open_episodes_come_back_without_a_process_of_their_own(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    async with rig_of(nasty, journal=folder) as rig:
        opened = await ask(rig, "open_episode", task=TASK, request_id="r")
        await agent_of(rig, opened["token"]).call_tool("put", GOOD)
    (file,) = folder.glob("*.jsonl")
    raw = file.read_bytes()
    for n in range(999):
        other = f"ep_{n:024x}"
        changed = raw.replace(opened["episode_id"].encode(), other.encode())
        changed = changed.replace(b'"token_hash":"', b'"token_hash":"%d-' % n)
        (folder / f"{other}.jsonl").write_bytes(changed)
    began = time.monotonic()
    async with rig_of(nasty, journal=folder) as rig:
        print(f"1,000 journals: {time.monotonic() - began:.2f} s")
        assert rig.host.episodes.open_count == 1000
        assert len(descendants(os.getpid())) == 1  # the sandbox's first process, and no worker
        agent = agent_of(rig, opened["token"])
        assert (await agent.call_tool("count", {})).structured == {"count": 2}
        grade = await rig.control.submit_answer(opened["episode_id"], "ANSWER: 2")
        assert grade.f1 == 1.0


async def test_sigterm_lets_a_call_end_and_suspends_what_is_open(
    tmp_path: Path, nasty: Path
) -> None:
    host = HostProcess(tmp_path, [nasty])
    host.start()
    answers: list[ToolResponse] = []
    patient = McpSettings(request_s=60, retries=9)

    async def spin(agent: McpClient) -> None:
        answers.append(await agent.call_tool("spin", {}, "c1"))

    try:
        async with new_pool() as pool:
            control = ControlClient(pool, f"{host.url}/control/mcp", TOKEN, settings=patient)
            opened = await control.open_episode(EpisodeRequest(task=TASK))
            agent = McpClient(pool, opened.endpoint, settings=patient)
            await agent.call_tool("put", GOOD, "c0")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(spin, agent)
                await anyio.sleep(0.1)
                assert await anyio.to_thread.run_sync(host.stop) == 0
                assert [answer.code for answer in answers] == ["timeout"]
            await anyio.to_thread.run_sync(host.start)
            view = await control.get_episode(opened.episode_id)
            assert view.status == "open"
            assert [call["tool"] for call in view.record["calls"]] == ["put", "spin"]
            assert (await agent.call_tool("count", {}, "c2")).structured == {"count": 2}
    finally:
        host.stop()


async def test_a_host_killed_in_the_middle_of_a_call_takes_the_same_call_again(
    tmp_path: Path, nasty: Path
) -> None:
    host = HostProcess(tmp_path, [nasty])
    host.start()
    patient = McpSettings(request_s=60, retries=9)
    answers: list[ToolResponse] = []

    async def spin(agent: McpClient) -> None:
        answers.append(await agent.call_tool("spin", {}, "c1"))

    try:
        async with new_pool() as pool:
            control = ControlClient(pool, f"{host.url}/control/mcp", TOKEN, settings=patient)
            opened = await control.open_episode(EpisodeRequest(task=TASK))
            agent = McpClient(pool, opened.endpoint, settings=patient)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(spin, agent)
                await anyio.sleep(0.1)
                await anyio.to_thread.run_sync(host.kill)
                await anyio.to_thread.run_sync(host.start)
            assert [answer.code for answer in answers] == ["timeout"]
            view = await control.get_episode(opened.episode_id)
            assert [call["tool"] for call in view.record["calls"]] == ["spin"]
    finally:
        host.stop()
