"""Ways in which an agent might better its reward, or lose a bad one: none of them pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from astra_clients.exchange import McpSettings
from astra_clients.mcp_client import McpClient
from astra_mcp.store import load_bundle
from tests.e2e.conftest import ENVS, Rigger

TASK = "library-pickup#t1"


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [10, 63, 64, 65, 90])
async def test_deeply_nested_arguments_are_an_invalid_call_that_counts(
    rig_of: Rigger, tmp_path: Path, levels: int
) -> None:
    async with rig_of(ENVS, journal=tmp_path / "journal") as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        response = await agent.call_tool("search_books", {"title": nested(levels)})
        assert response.code == "invalid_arguments"
        unknown = await agent.call_tool("no_such_tool", {"title": nested(levels)})
        assert unknown.code == "unknown_tool"
        grade = await rig.control.submit_answer(opened.episode_id, "16:20")
        assert grade.value == 0.0
        assert [call.label for call in grade.calls] == ["invalid", "unknown_tool"]


@pytest.mark.parametrize(
    "answer",
    [
        "9" * 400,
        '{"amount":' + "9" * 400 + ',"statement":"x","year":1}',
        "[" + "9" * 400 + ", 2]",
        "1e999999999",
        "ANSWER: " * 500,
        "[" * 5000,
        "\x00\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        "NaN",
    ],
)
async def test_a_monstrous_answer_is_a_wrong_one_and_never_a_null_reward(
    rig_of: Rigger, answer: str
) -> None:
    async with rig_of(ENVS) as rig:
        for bundle_id in rig.host.catalog.ids:
            for task in load_bundle(ENVS / bundle_id).sealed.tasks:
                opened = await rig.open(f"{bundle_id}#{task.id}")
                grade = await rig.control.submit_answer(opened.episode_id, answer)
                assert grade.value == 0.0, f"{bundle_id}#{task.id}"


async def test_far_distractors_have_no_place_of_their_own(rig_of: Rigger) -> None:
    """Over some seeds a distractor stands before a tool of the world, and never a hidden one."""
    own = set(load_bundle(ENVS / "it-helpdesk").manifest.by_name)
    async with rig_of(ENVS) as rig:
        mixed = 0
        for seed in range(6):
            opened = await rig.open("it-helpdesk#t1", far_distractors=6, seed=seed)
            names = [tool["name"] for tool in await rig.agent(opened).list_tools()]
            assert "schedule_pickup" not in names
            first_far = next(i for i, name in enumerate(names) if name not in own)
            mixed += any(name in own for name in names[first_far:])
        assert mixed >= 4


async def test_a_host_without_open_worlds_gives_agents_nothing_to_rehearse_in(
    rig_of: Rigger,
) -> None:
    async with rig_of(ENVS, open_worlds=False) as rig:
        opened = await rig.open(TASK)
        for method, path in [
            ("POST", "/play/library-pickup"),
            ("GET", "/envs"),
            ("POST", "/envs/library-pickup/mcp"),
        ]:
            url = f"{rig.host.url}{path}"
            async with rig.pool.request(method, url, json={}) as response:
                assert response.status == 404
        assert not (await rig.agent(opened).call_tool("search_books", {"title": "Salt"})).is_error


async def test_a_body_that_is_too_large_is_refused_in_words(rig_of: Rigger) -> None:
    async with rig_of(ENVS) as rig:
        opened = await rig.open(TASK)
        headers = {"accept": "application/json", "content-type": "application/json"}
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * (10 << 20) + b'"}'
        async with rig.pool.post(opened.endpoint, data=body, headers=headers) as response:
            assert response.status == 413
            assert "larger than" in orjson.loads(await response.read())["error"]["message"]
        agent = McpClient(rig.pool, opened.endpoint, settings=McpSettings())
        assert not (await agent.call_tool("search_books", {"title": "Salt"})).is_error
