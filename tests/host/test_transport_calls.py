"""Calls that are cancelled, abandoned, too long, or answered as a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import anyio
import pytest
from test_transport_streams import META, Reader, open_session
from transport_toy import World, running, until

from astra_mcp.host.calls import Deadline

Json = Any
BASE = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
        yield session


def call(name: str, request_id: Json = 1, meta: Json = None, **arguments: Json) -> dict[str, Json]:
    params: dict[str, Json] = {"name": name, "arguments": arguments}
    if meta is not None:
        params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def cancelled(request_id: Json) -> dict[str, Json]:
    params = {"requestId": request_id, "reason": "no longer needed"}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


async def post(
    http: aiohttp.ClientSession, url: str, message: Json, headers: Mapping[str, str] = BASE
) -> tuple[int, Json]:
    async with http.post(url, json=message, headers=headers) as response:
        body = await response.read()
        return response.status, json.loads(body) if body else None


async def test_progress_turns_the_answer_into_a_stream_that_ends_with_the_result(
    http: aiohttp.ClientSession,
) -> None:
    async with running() as world:
        message = call("steps", 3, {"progressToken": 0}, n=2)
        async with http.post(world.episode_url, json=message, headers=BASE) as response:
            assert response.headers["content-type"] == "text/event-stream"
            stream = Reader(response)
            events = [await stream.event() for _ in range(4)]
        assert [e["params"]["progress"] for e in events[:2]] == [1, 2]
        assert all(e["params"]["progressToken"] == 0 for e in events[:2])
        assert (events[2]["id"], events[2]["result"]["structuredContent"]) == (3, {"done": True})
        assert events[3] is None


@pytest.mark.parametrize(
    ("meta", "accept"),
    [(None, BASE["Accept"]), ({"progressToken": "p"}, "application/json")],
)
async def test_without_a_token_or_events_the_answer_stays_json(
    http: aiohttp.ClientSession, meta: Json, accept: str
) -> None:
    async with running() as world:
        message = call("steps", 3, meta, n=2)
        status, answer = await post(http, world.episode_url, message, {**BASE, "Accept": accept})
        assert (status, answer["result"]["structuredContent"]) == (200, {"done": True})


async def test_progress_after_the_end_goes_nowhere(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        message = call("count", 1, {"progressToken": "p"})
        assert (await post(http, world.episode_url, message))[0] == 200
        await world.episode.contexts[0].progress(1, None, None)
        assert (await post(http, world.episode_url, message))[0] == 200


async def test_a_cancelled_call_ends_all_the_same_and_is_answered_as_cancelled(
    http: aiohttp.ClientSession,
) -> None:
    async with running() as world, anyio.create_task_group() as tasks:
        answers: list[tuple[int, Json]] = []

        async def slow() -> None:
            answers.append(await post(http, world.episode_url, call("slow", "s")))

        tasks.start_soon(slow)
        await world.episode.started.wait()
        assert (await post(http, world.episode_url, cancelled("s")))[0] == 202
        assert world.episode.contexts[0].cancelled
        world.episode.release.set()
        await until(lambda: bool(answers))
        assert world.episode.counter == 1, "the call was not interrupted"
        assert (answers[0][0], answers[0][1]["error"]["code"]) == (200, -32800)


async def test_a_session_cannot_cancel_anothers_call(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        one, two = [await open_session(http, world.envs_url) for _ in range(2)]
        answers: list[tuple[int, Json]] = []

        async def slow() -> None:
            headers = {**BASE, "Mcp-Session-Id": one}
            answers.append(await post(http, world.envs_url, call("slow", 1), headers))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow)
            await world.made[0].started.wait()
            headers = {**BASE, "Mcp-Session-Id": two}
            assert (await post(http, world.envs_url, cancelled(1), headers))[0] == 202
            world.made[0].release.set()
        assert answers[0][1]["result"]["structuredContent"] == {"cancelled": False}


async def test_an_id_that_two_calls_share_cancels_neither(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        answers: list[tuple[int, Json]] = []

        async def slow() -> None:
            answers.append(await post(http, world.episode_url, call("slow", 1)))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(slow)
            await until(lambda: len(world.episode.contexts) == 2)
            assert (await post(http, world.episode_url, cancelled(1)))[0] == 202
            world.episode.release.set()
        assert [a["result"]["structuredContent"] for _, a in answers] == [{"cancelled": False}] * 2


@pytest.mark.parametrize("request_id", [99, None, [1], {}, "x", True])
async def test_cancelling_nothing_is_taken_and_does_nothing(
    http: aiohttp.ClientSession, request_id: Json
) -> None:
    async with running() as world:
        assert (await post(http, world.episode_url, cancelled(request_id)))[0] == 202


@pytest.mark.parametrize("meta", [None, {"progressToken": "p"}])
async def test_a_client_that_goes_leaves_its_call_to_end(meta: Json) -> None:
    async with running() as world:
        async with aiohttp.ClientSession() as http:
            pending = asyncio.ensure_future(
                http.post(world.episode_url, json=call("slow", 1, meta), headers=BASE)
            )
            await world.episode.started.wait()
            pending.cancel()
        if meta is not None:  # a call that may stream watches its connection
            await until(lambda: world.episode.contexts[0].cancelled)
        world.episode.release.set()
        await until(lambda: world.episode.finished.is_set() and not len(world.transport.calls))
        assert world.episode.counter == 1
        async with aiohttp.ClientSession() as http:
            assert (await post(http, world.episode_url, call("count")))[0] == 200


@pytest.mark.parametrize("meta", [None, {"progressToken": "p"}])
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_call_that_never_ends_is_stopped_at_its_deadline(
    http: aiohttp.ClientSession, meta: Json, era: str
) -> None:
    headers = dict(BASE)
    if era == "2026":
        meta = {**META, **(meta or {})}
        headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
        headers["Mcp-Name"] = "slow"
    async with running(call_deadline_s=0.05) as world:
        status, answer = await post(http, world.episode_url, call("slow", 4, meta), headers)
        assert (status, answer["id"], answer["error"]["code"]) == (200, 4, -32603)
        assert "0.05 seconds" in answer["error"]["message"]
        assert len(world.transport.calls) == 0


async def test_a_stopping_server_lets_calls_in_flight_end(http: aiohttp.ClientSession) -> None:
    answers: list[tuple[int, Json]] = []
    async with running(drain_s=30) as world, anyio.create_task_group() as tasks:

        async def slow() -> None:
            answers.append(await post(http, world.episode_url, call("slow")))

        tasks.start_soon(slow)
        await world.episode.started.wait()
        world.stop.set()
        world.episode.release.set()
    assert answers[0][1]["result"]["structuredContent"] == {"cancelled": False}


async def test_a_stopping_server_does_not_wait_for_ever(http: aiohttp.ClientSession) -> None:
    failed = anyio.Event()

    async def slow(world: World) -> None:
        try:
            async with http.post(world.episode_url, json=call("slow"), headers=BASE) as response:
                assert response.status == 500
                failed.set()
        except aiohttp.ClientError:
            failed.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            async with running(drain_s=0.1) as world:
                tasks.start_soon(slow, world)
                await world.episode.started.wait()
            await failed.wait()


# ---- the deadline itself --------------------------------------------------------------------


async def test_a_deadline_lets_quick_work_pass() -> None:
    with Deadline(10):
        await asyncio.sleep(0)


async def test_a_deadline_stops_slow_work_and_leaves_the_task_alive() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_deadline_lets_a_cancellation_from_outside_pass() -> None:
    async def work() -> None:
        with Deadline(10):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_a_deadline_stays_itself() -> None:
    with pytest.raises(KeyError), Deadline(10):
        raise KeyError("x")
