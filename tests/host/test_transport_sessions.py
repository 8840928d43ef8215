"""Sessions of the 2025 era: their lives, leases and bounds, over HTTP and by themselves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from test_transport_streams import EVENTS, get, open_session
from transport_toy import Toy, running

from astra_mcp.errors import BusyError
from astra_mcp.host.sessions import Sessions
from astra_mcp.host.transport import Endpoint

Json = Any
BASE = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
COUNT = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "count"}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
        yield session


async def post(
    http: aiohttp.ClientSession, url: str, message: Json, session: str | None = None
) -> tuple[int, Json]:
    headers = BASE if session is None else {**BASE, "Mcp-Session-Id": session}
    async with http.post(url, json=message, headers=headers) as response:
        body = await response.read()
        return response.status, json.loads(body) if body else None


async def test_a_session_lives_from_initialize_to_delete(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        session = await open_session(http, world.envs_url)
        assert (await post(http, world.envs_url, INITIALIZED, session))[0] == 202
        for count in (1, 2):
            _, answer = await post(http, world.envs_url, COUNT, session)
            assert answer["result"]["structuredContent"] == {"count": count}
        headers = {"Mcp-Session-Id": session}
        async with http.delete(world.envs_url, headers=headers) as response:
            assert response.status == 200
        assert world.made[0].closed
        async with http.delete(world.envs_url, headers=headers) as response:
            assert response.status == 404
        assert (await post(http, world.envs_url, COUNT, session))[0] == 404


@pytest.mark.parametrize(("session", "status"), [(None, 400), ("", 400), ("unknown", 404)])
async def test_without_a_session_nothing_is_served(
    http: aiohttp.ClientSession, session: str | None, status: int
) -> None:
    async with running() as world:
        for message in (COUNT, INITIALIZED):
            assert (await post(http, world.envs_url, message, session))[0] == status
        headers = {} if session is None else {"Mcp-Session-Id": session}
        async with http.get(world.envs_url, headers={**EVENTS, **headers}) as response:
            assert response.status == status
        async with http.delete(world.envs_url, headers=headers) as response:
            assert response.status == status
        assert world.made == []


async def test_a_refused_initialize_opens_nothing(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        bad = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        _, answer = await post(http, world.envs_url, bad)
        assert answer["error"]["code"] == -32602
        assert (world.made, len(world.sessions)) == ([], 0)


async def test_a_full_house_says_when_to_come_back(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        for _ in range(8):
            await open_session(http, world.envs_url)
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        async with http.post(world.envs_url, json=body, headers=BASE) as response:
            assert response.status == 503
            assert int(response.headers["retry-after"]) >= 1
            assert (await response.json())["error"]["data"]["remedy"]


async def test_an_open_stream_holds_the_lease(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        world.sessions._idle_s = 0.0
        held = await open_session(http, world.envs_url)
        await open_session(http, world.envs_url)
        async with get(http, world.envs_url, **{"Mcp-Session-Id": held}):
            swept = await world.sessions.sweep()
            assert [s.service.closed for s in swept] == [True]  # type: ignore[attr-defined]
            assert len(world.sessions) == 1


# ---- by themselves ---------------------------------------------------------------------------


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def made(limit: int = 2, clock: Clock | None = None) -> tuple[Sessions, list[Any]]:
    closed: list[Any] = []

    async def open_service(client: Mapping[str, Json]) -> Toy:
        if client.get("name") == "bad":
            raise RuntimeError("no")
        return Toy()

    async def close_service(service: Any) -> None:
        closed.append(service)

    sessions = Sessions(open_service, close_service, idle_s=10, limit=limit, clock=clock or Clock())
    return sessions, closed


async def test_an_idle_session_ends_and_a_used_one_stays() -> None:
    clock = Clock()
    sessions, closed = made(clock=clock)
    idle, used = [await sessions.open({}) for _ in range(2)]
    clock.now = 9
    assert sessions.enter(used.id) is used
    sessions.leave(used)
    clock.now = 11
    assert await sessions.sweep() == [idle]
    assert closed == [idle.service]
    assert sessions.enter(idle.id) is None
    clock.now = 19
    assert await sessions.sweep() == [used]


async def test_a_request_in_flight_holds_its_session() -> None:
    clock = Clock()
    sessions, _ = made(clock=clock)
    session = await sessions.open({})
    sessions.enter(session.id)
    clock.now = 1000
    assert await sessions.sweep() == []
    sessions.leave(session)
    clock.now = 1011
    assert await sessions.sweep() == [session]


async def test_room_is_given_back_when_opening_fails() -> None:
    sessions, _ = made(limit=1)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            await sessions.open({"name": "bad"})
    await sessions.open({})
    with pytest.raises(BusyError):
        await sessions.open({})


async def test_closing_all_closes_each_once() -> None:
    sessions, closed = made()
    opened = [await sessions.open({}) for _ in range(2)]
    await sessions.aclose()
    await sessions.aclose()
    assert closed == [session.service for session in opened]


async def test_an_endpoint_is_either_one_service_or_sessions_of_the_2025_era() -> None:
    sessions, _ = made()
    with pytest.raises(ValueError, match="exactly one"):
        Endpoint()
    with pytest.raises(ValueError, match="exactly one"):
        Endpoint(Toy(), sessions)
    with pytest.raises(ValueError, match="2025 era only"):
        Endpoint(sessions=sessions)
