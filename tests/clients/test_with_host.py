"""The clients against the real host: scripted agents prove that committed bundles are solvable."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import orjson
import pytest
from client_servers import ScriptedServer
from test_chat import says

from astra_clients.agents import AgentSpec
from astra_clients.collector import collect
from astra_clients.control import ControlClient, EpisodeRequest
from astra_clients.mcp_client import McpClient
from astra_clients.output import read_records
from astra_clients.plan import CollectPlan, CollectSummary, TaskRef
from astra_clients.wire import Era
from astra_mcp.host.app import Host
from astra_mcp.host.run import hosting
from astra_mcp.settings import HostSettings
from astra_mcp.store import find_bundles, load_bundle

Json = Any
ENVS = Path(__file__).parents[2] / "synthesized_envs"
TOKEN = "control-token-for-the-client-tests-00"


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with hosting([ENVS], HostSettings(unaudited=True), TOKEN) as running:
        yield running


def tasks(*ids: str) -> tuple[TaskRef, ...]:
    bundles = [load_bundle(path) for path in find_bundles([ENVS])]
    return tuple(
        TaskRef(task=f"{bundle.ref}#{task.id}", bundle=bundle)
        for bundle in bundles
        if not ids or bundle.manifest.id in ids
        for task in bundle.sealed.tasks
    )


async def run(host: Host, out: Path, *agents: str, **more: Json) -> CollectSummary:
    fields: dict[str, Json] = {
        "control_url": f"{host.url}/control/mcp",
        "token": TOKEN,
        "agents": [AgentSpec.parse(agent) for agent in agents],
        "tasks": tasks("it-helpdesk", "restaurant-reservation"),
        "out": out,
        "concurrency": 4,
        **more,
    }
    return await collect(CollectPlan.model_validate(fields), progress=io.StringIO())


def rewards(out: Path) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for record in read_records(out):
        found.setdefault(record["agent"], []).append(record["reward"])
    return found


async def test_golden_solves_every_committed_task(host: Host, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    summary = await run(host, out, "golden", tasks=tasks())
    assert summary.complete, summary.lines()
    short = [r["task"] for r in read_records(out) if r["reward"]["value"] != 1.0]
    assert short == []
    assert all(r["reward"]["outcome"] for r in read_records(out))


async def test_golden_lives_through_faults_and_far_distractors(host: Host, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    more = {"fault_rate": 0.3, "far_distractors": 5, "max_calls": 100, "seeds": [0, 1, 2]}
    summary = await run(host, out, "golden:retries=20", **more)
    records = list(read_records(out))
    assert summary.complete
    assert [r["reward"]["value"] for r in records] == [1.0] * len(records)
    assert sum(r["faults"]["injected"] for r in records) > 0
    for record in records:
        assert len(record["far_distractors"]["tools"]) == 5
        served = {tool["function"]["name"] for tool in record["tools"]}
        assert {name.partition("#")[2] for name in record["far_distractors"]["tools"]} <= served


async def test_needless_calls_cost_precision_and_silence_earns_nothing(
    host: Host, tmp_path: Path
) -> None:
    out = tmp_path / "r.jsonl"
    await run(host, out, "noisy:rate=1.0", "null", "repeat", "random", max_calls=40)
    found = rewards(out)
    for noisy in found["noisy:rate=1.0"]:
        assert noisy["recall"] == 1.0
        assert noisy["precision"] < 1.0
    assert all(reward["value"] == 0.0 for reward in found["null"])
    assert all(reward["value"] < 0.5 for reward in found["repeat"] + found["random"])


async def test_a_turn_that_shows_a_tool_is_recorded(host: Host, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    await run(host, out, "golden", tasks=tasks("it-helpdesk"))
    record = next(read_records(out))
    first, last = ({t["function"]["name"] for t in ts} for ts in record["tools_by_turn"])
    assert last - first == {"schedule_pickup"}
    assert {call["turn"] for call in record["calls"]} == {"u1", "u2"}
    assert [call["label"] for call in record["calls"]] == ["progress"] * 4
    assert record["versions"]["sandbox"]


async def test_a_model_plays_over_mcp(
    host: Host, tmp_path: Path, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", "sk-model-secret")
    scripted.answers(
        says(None, ("get_asset", '{"asset_tag": "LT-2093"}'), ("get_asset", "{broken")),
        says("I cannot book pickups yet."),
        says("Here you are.\nANSWER: PU-000"),
    )
    spec = f"chat:model=m,base_url={scripted.url}/v1,api_key_env=MODEL_KEY"
    out = tmp_path / "r.jsonl"
    summary = await run(host, out, spec, tasks=tasks("it-helpdesk"))
    assert summary.complete
    record = next(read_records(out))
    assert 0.0 < record["reward"]["value"] < 1.0
    assert record["reward"]["outcome"] is False
    assert len(record["calls"]) == 1, "a call that is no JSON never reaches the host"
    assert record["messages"][4]["content"].startswith("invalid_arguments")
    assert record["usage"]["requests"] == 3
    assert "sk-model-secret" not in out.read_text()


@pytest.mark.parametrize("era", ["2026", "2025"])
async def test_both_eras_reach_one_episode(
    host: Host, pool: aiohttp.ClientSession, era: Era
) -> None:
    control = ControlClient(pool, f"{host.url}/control/mcp", TOKEN)
    opened = await control.open_episode(EpisodeRequest(task="it-helpdesk#t1"))
    async with McpClient(pool, opened.endpoint, era=era) as client:
        assert "get_asset" in {tool["name"] for tool in await client.list_tools()}
        args = {"asset_tag": "LT-2093"}
        first = await client.call_tool("get_asset", args, "same-id")
        assert first.structured == (await client.call_tool("get_asset", args, "same-id")).structured
        invalid = await client.call_tool("get_asset", {"asset_tag": 7})
        assert invalid.code == "invalid_arguments"
        assert (await client.call_tool("nope", {})).code == "unknown_tool"
    view = await control.get_episode(opened.episode_id)
    assert view.calls == 3, "a repeated call id runs once; refused calls are calls, too"
    async with McpClient(pool, f"{host.url}/agent/mcp", era=era, token=opened.token) as client:
        assert await client.list_tools()


KILLED = """
import asyncio, os, signal, sys, orjson
from astra_clients.collector import collect
from astra_clients.plan import CollectPlan
seen = []
def kill_after_three(record):
    seen.append(record)
    if len(seen) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(collect(CollectPlan.model_validate(orjson.loads(sys.argv[1])), kill_after_three))
"""


async def test_a_killed_collection_goes_on_where_it_was(host: Host, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    plan = {
        "control_url": f"{host.url}/control/mcp",
        "token": TOKEN,
        "agents": [{"name": "random", "kind": "random"}],
        "tasks": [{"task": ref.task} for ref in tasks("it-helpdesk", "fleet-service")],
        "seeds": [0, 1, 2, 3],
        "out": str(out),
        "concurrency": 2,
    }
    command = [sys.executable, "-c", KILLED, orjson.dumps(plan).decode()]
    killed = await anyio.run_process(command, check=False, stderr=subprocess.DEVNULL)
    assert killed.returncode == -9
    with out.open("ab") as file:
        file.write(b'{"agent": "random", "torn')
    before = len(list(read_records(out)))
    summary = await collect(CollectPlan.model_validate(plan), progress=io.StringIO())
    assert (before, summary.resumed) == (3, 3)
    assert summary.complete
    keys = [(r["task"], r["seed"]) for r in read_records(out)]
    assert len(keys) == len(set(keys)) == summary.planned
