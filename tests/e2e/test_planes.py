"""Two planes that never meet: tokens, what each plane shows, and that nothing sealed gets out."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import aiohttp
import anyio
import orjson
import pytest
from mcp.client import Client

from astra_clients.agents import GoldenAgent
from astra_clients.agents.base import AgentContext
from astra_clients.mcp_client import McpClient
from astra_mcp.errors import AuthError
from astra_mcp.host.logs import JsonLines
from astra_mcp.store import find_bundles, load_bundle
from tests.e2e.conftest import CONTROL_TOKEN, ENVS, Rig, Rigger

Answer = tuple[int, bytes, Mapping[str, str]]
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
TASK = "library-pickup#t1"


async def ask(rig: Rig, path: str, token: str | None = None) -> tuple[int, bytes, str | None]:
    """Status, body and challenge of a tools/list."""
    headers = {"accept": "application/json, text/event-stream"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    async with rig.pool.post(f"{rig.host.url}{path}", json=LIST, headers=headers) as response:
        return response.status, await response.read(), response.headers.get("www-authenticate")


async def test_every_wrong_token_gets_the_answer_of_an_unknown_one(rig_of: Rigger) -> None:
    async with rig_of() as rig:
        mine, other = await rig.open(TASK), await rig.open(TASK)
        dead = await rig.open(TASK)
        await rig.control.submit_answer(dead.episode_id, "")
        closed = await rig.open(TASK)
        await rig.control.close_episode(closed.episode_id)

        unknown = await ask(rig, "/episodes/unknown-token/mcp")
        assert unknown[0] == 401
        for path, token in [
            (f"/episodes/{dead.token}/mcp", None),
            (f"/episodes/{closed.token}/mcp", None),
            (f"/episodes/{CONTROL_TOKEN}/mcp", None),
            (f"/episodes/{mine.token}/mcp", other.token),
            (f"/episodes/{mine.token}/mcp", CONTROL_TOKEN),
            (f"/episodes/{mine.token}/elsewhere/mcp", None),
            ("/agent/mcp", None),
            ("/agent/mcp", "unknown-token"),
            ("/agent/mcp", CONTROL_TOKEN),
            ("/agent/mcp", dead.token),
            ("/control/mcp", None),
            ("/control/mcp", "unknown-token"),
            ("/control/mcp", mine.token),
            ("/control/mcp", f"{CONTROL_TOKEN}x"),
            ("/control/mcp", CONTROL_TOKEN[:-1]),
        ]:
            assert await ask(rig, path, token) == unknown, path
        for path, token in [
            (f"/episodes/{mine.token}/mcp", None),
            (f"/episodes/{mine.token}/mcp", mine.token),
            (f"/episodes/{mine.token}/main/mcp", None),
            ("/agent/mcp", mine.token),
            ("/control/mcp", CONTROL_TOKEN),
        ]:
            assert (await ask(rig, path, token))[0] == 200, path


async def test_the_control_client_says_that_its_token_is_wrong(rig_of: Rigger) -> None:
    async with rig_of() as rig:
        opened = await rig.open(TASK)
        wrong = McpClient(rig.pool, f"{rig.host.url}/control/mcp", token=opened.token)
        with pytest.raises(AuthError):
            await wrong.list_tools()


async def test_the_agent_plane_shows_the_worlds_tools_and_nothing_else(rig_of: Rigger) -> None:
    async with rig_of() as rig:
        opened = await rig.open(TASK)
        bundle = load_bundle(ENVS / "library-pickup")
        names = {tool["name"] for tool in await rig.agent(opened).list_tools()}
        assert names == set(bundle.manifest.by_name)
        for tool in ("submit_answer", "open_episode", "get_episode", "ask_user"):
            assert (await rig.agent(opened).call_tool(tool, {})).code == "unknown_tool"


def rare_values(value: object) -> set[bytes]:
    """The words of expected values that would give an answer away."""
    if isinstance(value, str):
        return {value.encode()} if len(value) > 3 else set()
    if isinstance(value, dict):
        return set().union(*map(rare_values, value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*map(rare_values, value)) if value else set()
    return set()


class Eavesdropper:
    """Every byte that the host sent to an agent."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def trace(self) -> aiohttp.TraceConfig:
        """What to give to a session."""
        config = aiohttp.TraceConfig()

        async def chunk(_session: object, _context: object, params: object) -> None:
            self.heard.append(params.chunk)  # type: ignore[attr-defined]

        config.on_response_chunk_received.append(chunk)
        return config


@pytest.mark.parametrize("path", find_bundles([ENVS]), ids=lambda p: p.name)
async def test_no_byte_served_to_an_agent_or_logged_is_sealed(
    rig_of: Rigger, path: object, caplog: pytest.LogCaptureFixture
) -> None:
    """What the agent hears before it has called anything holds no expected value; what it hears in
    a whole golden episode holds no canary and no later turn; and no log line holds a token."""
    caplog.set_level(logging.DEBUG)
    bundle = load_bundle(path)  # type: ignore[arg-type]
    async with rig_of() as rig:
        for task in bundle.sealed.tasks:
            opened = await rig.open(f"{bundle.ref}#{task.id}")
            ear = Eavesdropper()
            async with aiohttp.ClientSession(trace_configs=[ear.trace()]) as session:
                agent = McpClient(session, opened.endpoint)
                await agent.list_tools()
                before = b"".join(ear.heard)
                assert before
                public = orjson.dumps(bundle.manifest.model_dump(mode="json"))
                for expect in [s.expect for s in task.subtasks] + [task.answer]:
                    for word in rare_values(expect.value if expect else None):
                        assert word not in before or word in public
                context = AgentContext(opened=opened, mcp=agent, control=rig.control)
                answer = await GoldenAgent(task).run(context)
            heard = b"".join(ear.heard)
            assert bundle.sealed.canary.encode() not in heard
            for turn in task.turns:
                assert turn.say.encode() not in heard
            grade = await rig.control.submit_answer(opened.episode_id, answer or "")
            assert (grade.f1, grade.outcome) == (1.0, True)
            logged = "\n".join(JsonLines().format(record) for record in caplog.records)
            assert opened.token not in logged
            assert bundle.sealed.canary not in logged


async def test_expected_values_are_shown_with_reveal_only(rig_of: Rigger) -> None:
    async with rig_of() as rig:
        opened = await rig.open(TASK)
        control = McpClient(rig.pool, f"{rig.host.url}/control/mcp", token=CONTROL_TOKEN)
        args = {"episode_id": opened.episode_id}
        plain = await control.call_tool("get_episode", args)
        assert "16:20" not in plain.text
        shown = await control.call_tool("get_episode", args | {"reveal": True})
        assert shown.structured is not None
        assert shown.structured["expected"]["answer"] == "16:20"
        assert len(shown.structured["plan"]) == 3


async def test_with_agent_io_a_client_attempts_a_task_alone(rig_of: Rigger) -> None:
    async with rig_of() as rig:
        opened = await rig.open("restaurant-reservation#t1", agent_io=True)
        agent = rig.agent(opened)
        assert {"ask_user", "submit_answer"} <= {t["name"] for t in await agent.list_tools()}
        said = await agent.call_tool("ask_user", {"text": "How many people will come?"}, "ask-1")
        assert "seven" in said.text
        again = await agent.call_tool("ask_user", {"text": "How many people will come?"}, "ask-1")
        assert again.text == said.text
        accepted = await agent.call_tool("submit_answer", {"answer": "RS-0000"})
        assert accepted.text == "accepted"
        view = await rig.control.get_episode(opened.episode_id)
        assert view.status == "graded"
        assert view.grade is not None
        assert view.grade.value == 0.0


async def test_a_repeated_request_changes_nothing_and_a_reused_id_is_refused(
    rig_of: Rigger,
) -> None:
    async with rig_of() as rig:
        control = McpClient(rig.pool, f"{rig.host.url}/control/mcp", token=CONTROL_TOKEN)
        args = {"task": TASK, "request_id": "r1"}
        first = await control.call_tool("open_episode", args)
        second = await control.call_tool("open_episode", args)
        assert first.structured == second.structured
        assert rig.host.episodes.open_count == 1
        other = await control.call_tool("open_episode", args | {"seed": 1})
        assert other.is_error
        assert rig.host.episodes.open_count == 1


async def test_a_call_sent_twice_runs_once(rig_of: Rigger, nasty: object) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open("nasty#t1")
        agent = rig.agent(opened)
        first = await agent.call_tool("put", {"key": "b", "value": 41}, "call-1")
        second = await agent.call_tool("put", {"key": "b", "value": 41}, "call-1")
        assert first == second
        view = await rig.control.get_episode(opened.episode_id)
        assert len(view.record["calls"]) == 1


async def test_a_full_host_says_when_to_try_again(rig_of: Rigger) -> None:
    async with rig_of(max_episodes=1) as rig:
        await rig.open(TASK)
        control = McpClient(rig.pool, f"{rig.host.url}/control/mcp", token=CONTROL_TOKEN)
        refused = await control.call_tool("open_episode", {"task": TASK, "request_id": "r2"})
        assert refused.code == "busy"
        assert "Try again" in refused.text


async def test_far_distractors_are_other_worlds_tools_that_really_answer(rig_of: Rigger) -> None:
    async with rig_of() as rig:
        opened = await rig.open(TASK, far_distractors=4, seed=3)
        again = await rig.open(TASK, far_distractors=4, seed=3)
        own = set(load_bundle(ENVS / "library-pickup").manifest.by_name)
        served = [tool["name"] for tool in await rig.agent(opened).list_tools()]
        assert served == [tool["name"] for tool in await rig.agent(again).list_tools()]
        assert len(set(served) - own) == 4
        far = next(name for name in served if name not in own)
        await rig.agent(opened).call_tool(far, {})
        grade = await rig.control.submit_answer(opened.episode_id, "x")
        assert grade.calls[0].label == "distractor"


async def test_a_turn_that_shows_a_tool_tells_a_listening_client(rig_of: Rigger) -> None:
    """it-helpdesk hides a tool until the second turn; the official client hears of it."""
    async with rig_of() as rig:
        opened = await rig.open("it-helpdesk#t1")
        heard = anyio.Event()

        async def on_message(message: object) -> None:
            if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
                heard.set()

        async with Client(opened.endpoint, mode="legacy", message_handler=on_message) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "schedule_pickup" not in names
            reply = await rig.control.post_message(opened.episode_id, "That is done.")
            assert reply.tools_changed
            with anyio.fail_after(20):
                await heard.wait()
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "schedule_pickup" in names


async def test_a_stream_ends_with_its_episode(rig_of: Rigger) -> None:
    async with rig_of() as rig:
        opened = await rig.open(TASK)
        headers = {"accept": "text/event-stream"}
        async with rig.pool.get(opened.endpoint, headers=headers) as stream:
            assert stream.status == 200
            await rig.control.close_episode(opened.episode_id)
            with anyio.fail_after(20):
                await stream.read()
