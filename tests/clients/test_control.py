"""The typed control client: idempotency, waiting for room, and what errors become."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from client_host import TOKEN, FakeHost, tool_error
from client_servers import ScriptedServer, json_reply

from astra_clients.control import ControlClient, EpisodeRequest
from astra_clients.exchange import McpSettings
from astra_mcp.errors import AuthError, BusyError, ClientError

REQUEST = EpisodeRequest(task="test@1.0.0#t1")


@pytest.fixture
def host(scripted: ScriptedServer) -> FakeHost:
    return FakeHost(scripted, tasks=5)


@pytest.fixture
def control(host: FakeHost, pool: aiohttp.ClientSession) -> ControlClient:
    return ControlClient(pool, host.control_url, TOKEN, busy_s=5, settings=McpSettings(retries=1))


def sent(host: FakeHost, tool: str) -> list[dict[str, Any]]:
    params = [body["params"] for body, _ in host.server.requests if body]
    return [p["arguments"] for p in params if p.get("name") == tool]


async def test_an_episode_is_opened_talked_through_and_graded(
    host: FakeHost, control: ControlClient
) -> None:
    opened = await control.open_episode(REQUEST)
    assert opened.message.startswith("Laptop")
    reply = await control.post_message(opened.episode_id, "which floor?")
    assert (reply.kind, reply.text, reply.tools_changed) == ("user", "Floor 3.", False)
    grade = await control.submit_answer(opened.episode_id, "ANSWER: no")
    assert (grade.value, grade.outcome) == (0.0, False)
    view = await control.get_episode(opened.episode_id)
    assert view.status == "graded"
    assert view.grade == grade
    assert (await control.close_episode(opened.episode_id)).status == "graded"


async def test_only_what_was_set_is_sent(host: FakeHost, control: ControlClient) -> None:
    await control.open_episode(REQUEST, "r-1")
    assert sent(host, "open_episode") == [
        {"task": "test@1.0.0#t1", "request_id": "r-1", "seed": 0, "fault_rate": 0.0,
         "far_distractors": 0, "agent_io": False}
    ]  # fmt: skip


async def test_all_pages_of_tasks_are_read(control: ControlClient) -> None:
    tasks = [task.task async for task in control.all_tasks()]
    assert tasks == [f"test@1.0.0#t{i}" for i in range(1, 6)]


async def test_room_is_waited_for_under_one_request_id(
    host: FakeHost, control: ControlClient
) -> None:
    answers = {1: (503, {"retry-after": "0"}, []), 3: tool_error("busy", "full. Try again.")}
    host.broken = lambda tool, count: answers.get(count) if tool == "open_episode" else None
    assert (await control.open_episode(REQUEST)).episode_id == "ep_0"
    ids = {args["request_id"] for args in sent(host, "open_episode")}
    assert len(ids) == 1


async def test_a_host_that_stays_busy_is_given_up(
    host: FakeHost, pool: aiohttp.ClientSession
) -> None:
    host.broken = lambda tool, count: tool_error("busy", "full. Try again in 1 s.")
    control = ControlClient(pool, host.control_url, TOKEN, busy_s=0.0)
    with pytest.raises(BusyError, match="full"):
        await control.open_episode(REQUEST)


async def test_a_wrong_token_is_an_auth_error(host: FakeHost, pool: aiohttp.ClientSession) -> None:
    control = ControlClient(pool, host.control_url, "wrong-secret")
    with pytest.raises(AuthError) as caught:
        await control.list_tasks()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind"), [("usage", ClientError), ("unauthorized", AuthError), ("busy", BusyError)]
)
async def test_codes_of_the_host_become_errors_with_its_words(
    host: FakeHost, pool: aiohttp.ClientSession, code: str, kind: type[Exception]
) -> None:
    host.broken = lambda tool, count: tool_error(code, "There is no such task. See list_tasks.")
    control = ControlClient(pool, host.control_url, TOKEN, busy_s=0.0)
    with pytest.raises(kind, match="There is no such task"):
        await control.open_episode(REQUEST)


async def test_an_answer_of_another_form_is_an_error(
    host: FakeHost, control: ControlClient
) -> None:
    result = {"content": [], "structuredContent": {"tasks": "many"}}
    host.broken = lambda tool, count: json_reply({"jsonrpc": "2.0", "id": 1, "result": result})
    with pytest.raises(ClientError, match="does not fit TaskPage"):
        await control.list_tasks()


async def test_the_token_shows_nowhere(control: ControlClient) -> None:
    assert TOKEN not in repr(control)
    assert TOKEN not in repr(await control.open_episode(REQUEST))
