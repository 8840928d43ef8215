"""Collections over real HTTP against a small host that can be made to fail."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from client_host import TOKEN, FakeHost, tool_error
from client_servers import ScriptedServer
from client_worlds import small_task

from astra_clients.agents import Agent, AgentContext, AgentSpec, GoldenAgent
from astra_clients.collector import collect
from astra_clients.output import RecordFile, read_records
from astra_clients.plan import CollectPlan, CollectSummary
from astra_mcp.errors import AuthError, ClientError, UsageError

Json = Any
Run = Callable[..., Any]


@pytest.fixture
def host(scripted: ScriptedServer) -> FakeHost:
    return FakeHost(scripted, tasks=3)


class Collection:
    """Collects from a host into one file."""

    def __init__(self, host: FakeHost, out: Path) -> None:
        self.host, self.out = host, out
        self.make: Callable[[AgentSpec, int], Agent] = lambda spec, seed: GoldenAgent(small_task())
        self.progress = io.StringIO()

    async def run(self, **more: Json) -> CollectSummary:
        fields: dict[str, Json] = {
            "control_url": self.host.control_url,
            "token": TOKEN,
            "tasks": [{"task": ref} for ref in self.host.refs()],
            "agents": [{"name": "golden", "kind": "golden"}],
            "seeds": [0, 1],
            "out": self.out,
            "concurrency": 2,
            "deadlines": {"request_s": 5, "busy_s": 1, "episode_s": 20},
        }
        plan = CollectPlan.model_validate(fields | more)
        return await collect(
            plan,
            maker=lambda spec, bundle, task_id, seed: self.make(spec, seed),
            progress=self.progress,
        )

    def records(self) -> list[dict[str, Json]]:
        return list(read_records(self.out))


@pytest.fixture
def collection(host: FakeHost, tmp_path: Path) -> Collection:
    return Collection(host, tmp_path / "r.jsonl")


class Crash:
    """An agent that breaks after one call."""

    async def run(self, ctx: AgentContext) -> str | None:
        await ctx.call("get_asset", {"tag": "LT-1"})
        raise ZeroDivisionError("agent bug")


async def test_every_episode_becomes_one_record(collection: Collection) -> None:
    summary = await collection.run()
    assert (summary.planned, summary.graded, summary.failures) == (6, 6, 0)
    assert summary.complete
    assert summary.rewards == {"golden": [1.0] * 6}
    keys = {(r["task"], r["seed"]) for r in collection.records()}
    assert keys == {(ref, seed) for ref in collection.host.refs() for seed in (0, 1)}
    assert "episodes 6/6" in collection.progress.getvalue()


async def test_a_record_holds_the_attempt_and_no_secret(collection: Collection) -> None:
    await collection.run(seeds=[3], tasks=[{"task": "test#t2"}])
    (record,) = collection.records()
    assert record["schema"] == "astra-mcp/trajectory@1"
    assert (record["agent"], record["task"], record["seed"]) == ("golden", "test@1.0.0#t2", 3)
    assert record["reward"]["value"] == record["grade"]["value"] == 1.0
    assert [message["role"] for message in record["messages"]][:3] == [
        "system",
        "user",
        "assistant",
    ]
    assert record["messages"][-1] == {"role": "assistant", "content": "ANSWER: PU-TK-EM-58-3"}
    names = [[t["function"]["name"] for t in tools] for tools in record["tools_by_turn"]]
    assert names == [["get_asset", "open_ticket"], ["get_asset", "open_ticket", "book_pickup"]]
    assert record["tools"] == record["tools_by_turn"][0]
    assert [(c["tool"], c["label"], c["credit"]) for c in record["calls"]] == [
        ("get_asset", "progress", 0.1),
        ("open_ticket", "progress", 0.1),
        ("book_pickup", "progress", 0.1),
    ]
    assert record["versions"]["sandbox"] == {"seccomp": "on"}
    assert len(record["timings"]["call_ms"]) == 3
    text = orjson.dumps(record).decode()
    assert TOKEN not in text
    assert "tok-ep" not in text


async def test_no_more_episodes_are_open_than_allowed(collection: Collection) -> None:
    await collection.run(concurrency=2, seeds=list(range(5)))
    assert collection.host.most_open == 2


async def test_a_crashing_agent_gives_null_with_a_reason_and_the_others_go_on(
    collection: Collection,
) -> None:
    collection.make = lambda spec, seed: Crash() if seed == 0 else GoldenAgent(small_task())
    summary = await collection.run()
    assert (summary.graded, summary.failures) == (3, 3)
    assert not summary.complete
    failed = [r for r in collection.records() if r["reward"]["value"] is None]
    assert {r["reward"]["reason"] for r in failed} == {
        "agent crashed: ZeroDivisionError: agent bug"
    }
    assert all(len(r["calls"]) == 1 for r in failed), "what it did is kept"
    statuses = [episode.status for episode in collection.host.episodes.values()]
    assert sorted(statuses) == ["closed"] * 3 + ["graded"] * 3


async def test_an_agent_that_does_not_end_meets_its_deadline(collection: Collection) -> None:
    class Sleeper:
        async def run(self, ctx: AgentContext) -> str | None:
            await anyio.sleep_forever()
            return None

    collection.make = lambda spec, seed: Sleeper()
    deadlines = {"request_s": 5, "busy_s": 1, "episode_s": 0.05}
    summary = await collection.run(deadlines=deadlines, seeds=[0])
    assert summary.failed == {"agent did not end within 0.05 s": 3}


@pytest.mark.parametrize("tool", ["open_episode", "submit_answer"])
async def test_a_host_that_fails_once_costs_one_reward(collection: Collection, tool: str) -> None:
    collection.host.broken = lambda name, count: (
        tool_error("episode", "This episode is corrupt.") if (name, count) == (tool, 2) else None
    )
    summary = await collection.run()
    assert (summary.graded, summary.failures) == (5, 1)
    (failed,) = [r for r in collection.records() if r["reward"]["value"] is None]
    assert "This episode is corrupt." in failed["reward"]["reason"]
    assert failed["digest"] == "sha256:d"


async def test_a_lost_record_of_calls_does_not_cost_the_grade(collection: Collection) -> None:
    collection.host.broken = lambda name, count: (
        tool_error("usage", "There is no episode.") if name == "get_episode" else None
    )
    summary = await collection.run(seeds=[0])
    assert summary.graded == 3


async def test_a_second_run_plays_only_what_is_missing(collection: Collection) -> None:
    await collection.run()
    whole = collection.out.read_bytes().splitlines(keepends=True)
    collection.out.write_bytes(b"".join(whole[:2]) + whole[2][:50])
    opened = collection.host.counts["open_episode"]
    summary = await collection.run()
    assert (summary.resumed, summary.graded) == (2, 4)
    assert collection.host.counts["open_episode"] == opened + 4
    assert len({(r["task"], r["seed"]) for r in collection.records()}) == 6
    again = await collection.run()
    assert (again.resumed, again.graded, again.complete) == (6, 0, True)


async def test_another_configuration_is_refused(collection: Collection) -> None:
    await collection.run()
    with pytest.raises(UsageError, match="another configuration"):
        await collection.run(fault_rate=0.5)
    summary = await collection.run(fault_rate=0.5, overwrite=True)
    assert (summary.resumed, summary.graded) == (0, 6)


async def test_speed_and_address_are_no_configuration(collection: Collection) -> None:
    await collection.run()
    assert (await collection.run(concurrency=5)).resumed == 6


async def test_failed_episodes_can_be_tried_again(collection: Collection) -> None:
    collection.make = lambda spec, seed: Crash() if seed == 0 else GoldenAgent(small_task())
    await collection.run()
    collection.make = lambda spec, seed: GoldenAgent(small_task())
    assert (await collection.run()).graded == 0
    assert (await collection.run(retry_failed=True)).graded == 3
    assert all(r["reward"]["value"] == 1.0 for r in collection.records())


async def test_a_host_that_has_gone_stops_the_collection_and_loses_nothing(
    collection: Collection,
) -> None:
    class Killer:
        async def run(self, ctx: AgentContext) -> str | None:
            await anyio.to_thread.run_sync(collection.host.server.stop)
            return None

    collection.make = lambda spec, seed: Killer() if seed == 2 else GoldenAgent(small_task())
    summary = await collection.run(seeds=list(range(10)), concurrency=1)
    assert summary.aborted is not None
    assert "No connection" in summary.aborted
    assert summary.unopened > 1
    assert not summary.complete
    values = [r["reward"]["value"] for r in collection.records()]
    assert values == [1.0, 1.0, None], "what was never opened has no record and is still to play"


async def test_a_task_that_is_not_served_is_told_first(collection: Collection) -> None:
    with pytest.raises(UsageError, match="serves no task"):
        await collection.run(tasks=[{"task": "test@1.0.0#t9"}])
    assert not collection.out.exists()


async def test_a_full_disk_stops_with_one_sentence_and_can_be_resumed(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RecordFile, record: Json) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "append", full)
        with pytest.raises(ClientError, match="No space left on device"):
            await collection.run()
    assert (await collection.run()).complete


async def test_a_wrong_token_stops_at_once(collection: Collection) -> None:
    with pytest.raises(AuthError):
        await collection.run(token="wrong")


async def test_a_host_that_is_not_there_is_told(collection: Collection) -> None:
    deadlines = {"request_s": 1, "busy_s": 1, "episode_s": 1}
    with pytest.raises(ClientError, match="No connection"):
        await collection.run(control_url="http://127.0.0.1:9/control/mcp", deadlines=deadlines)


async def test_a_cancelled_collection_closes_its_episodes_and_resumes(
    collection: Collection,
) -> None:
    with anyio.CancelScope() as scope:

        class Canceller:
            async def run(self, ctx: AgentContext) -> str | None:
                scope.cancel()
                await anyio.sleep_forever()
                return None

        collection.make = lambda spec, seed: Canceller() if seed else GoldenAgent(small_task())
        await collection.run()
    assert scope.cancelled_caught
    assert all(e.status != "open" for e in collection.host.episodes.values())
    collection.make = lambda spec, seed: GoldenAgent(small_task())
    summary = await collection.run()
    assert summary.resumed + summary.graded == 6
    assert summary.complete
