"""The table "What a failure means" of docs/episodes.md, row by row, over real HTTP."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import orjson
import pytest

from astra_clients.exchange import McpSettings
from astra_clients.mcp_client import McpClient
from astra_mcp.errors import AuthError, ClientError
from astra_mcp.rules import fault_at
from tests.e2e.conftest import Rig, Rigger
from tests.e2e.nasty import nasty_bundle

TASK = "nasty@1.0.0#t1"
GOOD = {"key": "b", "value": 41}


async def solve(rig: Rig, agent: McpClient, episode_id: str) -> float | None:
    """Play the plan and submit; gives the reward's precision."""
    assert not (await agent.call_tool("put", GOOD)).is_error
    assert not (await agent.call_tool("count", {})).is_error
    grade = await rig.control.submit_answer(episode_id, "ANSWER: 2")
    assert grade.outcome is True
    assert grade.recall == 1.0
    return grade.precision


@pytest.mark.parametrize(
    ("tool", "args", "code"),
    [
        ("put", {"key": "b"}, "invalid_arguments"),
        ("put", {"key": "b", "value": "41"}, "invalid_arguments"),
        ("put", {"key": "a", "value": 1}, "conflict"),
        ("refuse_after_write", {"key": "z"}, "refused"),
        ("spin", {}, "timeout"),
        ("hog", {}, "memory_limit"),
        ("flood", {}, "output_limit"),
        ("crash", {}, "crash"),
        ("sly_read", {}, "contract_violation"),
        ("wrong_schema", {}, "contract_violation"),
        ("bad_row", {}, "contract_violation"),
        ("new_table", {}, "contract_violation"),
    ],
)
async def test_a_failed_call_is_a_coded_error_that_counts_and_commits_nothing(
    rig_of: Rigger, nasty: Path, tool: str, args: dict[str, object], code: str
) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        response = await agent.call_tool(tool, args)
        assert response.is_error
        assert response.code == code
        view = await rig.control.get_episode(opened.episode_id)
        call = view.record["calls"][0]
        assert call["state_before"] == call["state_after"]
        # the worker is replaced and the world is as before: the plan still works
        assert await solve(rig, agent, opened.episode_id) == pytest.approx(2 / 3)


async def test_a_tool_that_does_not_exist_is_refused_and_counts(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        response = await agent.call_tool("no_such_tool", {})
        assert response.is_error
        assert response.code == "unknown_tool"
        assert await solve(rig, agent, opened.episode_id) == pytest.approx(2 / 3)


def worker_pids(host_pid: int) -> list[int]:
    """Leaves of this process's tree: the workers."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = stat.rpartition(")")[2].split()
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    level, leaves = parents.get(host_pid, []), []
    while level:
        pid = level.pop()
        children = parents.get(pid, [])
        level += children
        if not children:
            leaves.append(pid)
    return leaves


async def test_a_worker_killed_from_outside_is_restored_and_the_call_runs_once_more(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        assert not (await agent.call_tool("put", GOOD)).is_error
        pids = worker_pids(os.getpid())
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        response = await agent.call_tool("count", {})
        assert response.structured == {"count": 2}
        grade = await rig.control.submit_answer(opened.episode_id, "ANSWER: 2")
        assert (grade.f1, grade.counted_calls) == (1.0, 2)


async def test_a_restarted_host_goes_on_where_it_was(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    async with rig_of(nasty, journal=journal) as rig:
        opened = await rig.open(TASK)
        assert not (await rig.agent(opened).call_tool("put", GOOD)).is_error
    async with rig_of(nasty, journal=journal) as rig:
        url = f"{rig.host.url}/episodes/{opened.token}/mcp"
        agent = McpClient(rig.pool, url)
        assert (await agent.call_tool("count", {})).structured == {"count": 2}
        grade = await rig.control.submit_answer(opened.episode_id, "ANSWER: 2", "the-submit")
        assert grade.f1 == 1.0
    async with rig_of(nasty, journal=journal) as rig:
        again = await rig.control.submit_answer(opened.episode_id, "ANSWER: 2", "the-submit")
        assert again == grade
        view = await rig.control.get_episode(opened.episode_id)
        assert view.status == "graded"


@pytest.mark.parametrize("damage", ["changes", "hash", "gap", "garbage", "digest"])
async def test_a_journal_that_does_not_fold_gives_corrupt_and_no_reward(
    rig_of: Rigger, nasty: Path, tmp_path: Path, damage: str
) -> None:
    journal = tmp_path / "journal"
    async with rig_of(nasty, journal=journal) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        await agent.call_tool("put", GOOD)
        await agent.call_tool("count", {})
    (file,) = journal.glob("*.jsonl")
    events = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    calls = [event for event in events if event["event"] == "call"]
    if damage == "changes":
        calls[0]["changes"]["items"]["b"]["value"] = 42
    elif damage == "hash":
        calls[1]["call"]["state_after"] = "0" * 64
    elif damage == "gap":
        events.remove(calls[0])
    elif damage == "garbage":
        calls[1]["event"] = "nonsense"
    else:
        events[0]["spec"]["digest"] = "sha256:" + "0" * 64
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    async with rig_of(nasty, journal=journal) as rig:
        view = await rig.control.get_episode(opened.episode_id)
        assert view.status == "corrupt"
        assert view.grade is not None
        assert view.grade.value is None
        assert "corrupt" in view.grade.reason
        with pytest.raises(ClientError):
            await rig.control.submit_answer(opened.episode_id, "ANSWER: 2")


async def test_a_torn_last_line_is_dropped(rig_of: Rigger, nasty: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with rig_of(nasty, journal=journal) as rig:
        opened = await rig.open(TASK)
        await rig.agent(opened).call_tool("put", GOOD)
    (file,) = journal.glob("*.jsonl")
    file.write_bytes(file.read_bytes() + b'{"event": "call", "ca')
    async with rig_of(nasty, journal=journal) as rig:
        agent = McpClient(rig.pool, f"{rig.host.url}/episodes/{opened.token}/mcp")
        assert (await agent.call_tool("count", {})).structured == {"count": 2}


async def test_a_worker_lost_twice_in_one_call_ends_the_episode_as_corrupt(
    rig_of: Rigger, nasty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astra_mcp.sandbox import Worker, WorkerLost

    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)

        async def lost(self: Worker, *args: object) -> None:
            raise WorkerLost("The worker is gone.", "Run the call again.")

        with monkeypatch.context() as patched:
            patched.setattr(Worker, "call", lost)
            response = await rig.agent(opened).call_tool("count", {})
        assert response.is_error
        view = await rig.control.get_episode(opened.episode_id)
        assert view.status == "corrupt"
        assert view.grade is not None
        assert view.grade.value is None


async def test_an_injected_fault_and_one_retry_are_labelled_and_not_counted(
    rig_of: Rigger, nasty: Path
) -> None:
    seed = next(
        s for s in range(1000) if [bool(fault_at(s, i, 0.4)) for i in range(4)] == [True, False] * 2
    )
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK, seed=seed, fault_rate=0.4)
        agent = rig.agent(opened)
        for tool, args in (("put", GOOD), ("count", {})):
            first = await agent.call_tool(tool, args)
            assert first.code in ("unavailable", "timeout")
            assert not (await agent.call_tool(tool, args)).is_error
        grade = await rig.control.submit_answer(opened.episode_id, "ANSWER: 2")
        assert grade.f1 == 1.0
        assert [call.label for call in grade.calls] == ["fault", "progress"] * 2


async def test_calls_beyond_the_limit_are_refused_and_the_answer_is_still_graded(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK, max_calls=2)
        agent = rig.agent(opened)
        await agent.call_tool("put", GOOD)
        await agent.call_tool("count", {})
        assert (await agent.call_tool("count", {})).code == "too_many_calls"
        assert (await rig.control.submit_answer(opened.episode_id, "2")).f1 == 1.0


async def test_a_client_that_is_gone_ends_with_the_lease_and_a_null_reward(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty, idle_s=0.05) as rig:
        opened = await rig.open(TASK)
        with anyio.fail_after(20):
            while rig.host.episodes.get(opened.episode_id).episode.status == "open":
                await anyio.sleep(0.02)
                await rig.host.sweep()
        view = await rig.control.get_episode(opened.episode_id)
        assert view.status == "expired"
        assert view.grade is not None
        assert view.grade.value is None
        with pytest.raises(AuthError):
            await rig.agent(opened).call_tool("count", {})


async def test_an_agent_out_of_turns_submits_nothing_and_is_graded(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        grade = await rig.control.submit_answer(opened.episode_id, "")
        assert grade.value == 0.0


async def test_a_task_whose_plan_does_not_replay_is_not_opened(
    rig_of: Rigger, tmp_path: Path
) -> None:
    raw = nasty_bundle()
    task = raw["sealed"]["tasks"][0]
    task["answer"]["value"] = task["subtasks"][1]["expect"]["value"] = 3
    task["answer"].update(accept=[], reject=[])
    path = tmp_path / "stale.json"
    path.write_bytes(orjson.dumps(raw))
    async with rig_of(path) as rig:
        with pytest.raises(ClientError, match="replay"):
            await rig.open(TASK)


async def test_a_client_that_hangs_up_during_a_call_leaves_the_record_whole(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        hasty = McpClient(rig.pool, opened.endpoint, settings=McpSettings(request_s=0.05))
        with pytest.raises(ClientError):
            await hasty.call_tool("spin", {})
        agent = rig.agent(opened)
        assert await solve(rig, agent, opened.episode_id) == pytest.approx(2 / 3)
