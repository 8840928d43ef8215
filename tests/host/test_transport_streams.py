"""Event streams: list changes, their bounds, and how they end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from transport_toy import Toy, running, tool, until

from astra_mcp.host.streams import Streams

Json = Any
EVENTS = {"Accept": "text/event-stream"}
BASE = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
        yield session


class Reader:
    """Events of a stream, one at a time."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def frame(self) -> str:
        """The next frame as it came, comments too; "" at the end."""
        lines = []
        while line := await self.response.content.readline():
            if not line.strip():
                break
            lines.append(line.decode().strip())
        return "\n".join(lines)

    async def event(self) -> Json:
        """The next message, past all comments; None at the end."""
        while frame := await self.frame():
            for line in frame.splitlines():
                if line.startswith("data: "):
                    return json.loads(line[6:])
        return None


@asynccontextmanager
async def get(http: aiohttp.ClientSession, url: str, **headers: str) -> AsyncIterator[Reader]:
    async with http.get(url, headers={**EVENTS, **headers}) as response:
        assert response.status == 200, await response.text()
        assert response.headers["content-type"] == "text/event-stream"
        yield Reader(response)


@asynccontextmanager
async def listen(
    http: aiohttp.ClientSession, url: str, notifications: Json, request_id: Json = "sub-1"
) -> AsyncIterator[Reader]:
    body = {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "subscriptions/listen",
        "params": {"_meta": META, "notifications": notifications},
    }
    headers = {
        **BASE, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
    }  # fmt: skip
    async with http.post(url, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        yield Reader(response)


async def test_get_tells_of_changes_until_the_client_goes(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        async with get(http, world.episode_url) as stream:
            assert await stream.frame() == ": ping"
            for name in "ab":
                world.episode.show([tool(name)])
                assert await stream.event() == CHANGED
        await until(lambda: len(world.transport.streams) == 0)
        world.episode.show([tool("nobody-hears")])


async def test_listen_acknowledges_then_tells_and_stamps_every_frame(
    http: aiohttp.ClientSession,
) -> None:
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    stamp = {"io.modelcontextprotocol/subscriptionId": "sub-1"}
    async with running() as world, listen(http, world.episode_url, wanted) as stream:
        acknowledged = await stream.event()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"] == {
            "notifications": {"toolsListChanged": True},
            "_meta": stamp,
        }
        world.episode.show([tool("a")])
        assert await stream.event() == {**CHANGED, "params": {"_meta": stamp}}
        world.transport.streams.close(world.episode)
        last = await stream.event()
        assert last["id"] == "sub-1"
        assert last["result"]["_meta"] | stamp == last["result"]["_meta"]
        assert await stream.event() is None


async def test_listen_never_sends_what_was_not_asked_for(http: aiohttp.ClientSession) -> None:
    async with running() as world, listen(http, world.episode_url, {}, 5) as stream:
        acknowledged = await stream.event()
        assert acknowledged["params"]["notifications"] == {}
        world.episode.show([tool("a")])
        world.transport.streams.close(world.episode)
        assert (await stream.event())["id"] == 5


async def test_a_thousand_changes_that_a_client_has_not_read_are_two_notifications(
    http: aiohttp.ClientSession,
) -> None:
    async with running() as world, get(http, world.episode_url) as stream:
        for n in range(1000):
            world.episode.show([tool(f"t{n}")])
        world.transport.streams.close(world.episode)
        told = 0
        while await stream.event() == CHANGED:
            told += 1
        assert told == 2, "one that was being taken, and one for all that followed"


async def test_a_silent_stream_beats(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        world.transport.streams.heartbeat_s = 0.01
        async with get(http, world.episode_url) as stream:
            assert [await stream.frame() for _ in range(3)] == [": ping"] * 3


async def test_streams_of_one_service_and_of_all_are_bounded(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        world.transport.streams.per_service = 1
        async with get(http, world.episode_url):
            async with http.get(world.episode_url, headers=EVENTS) as second:
                assert second.status == 409
            world.transport.streams.total = 1
            async with http.get(world.episode_url, headers=EVENTS) as third:
                assert third.status == 503
                assert third.headers["retry-after"]


async def test_get_wants_a_client_that_takes_events(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        for accept in ("application/json", ""):
            async with http.get(world.episode_url, headers={"Accept": accept}) as response:
                assert response.status == 406


async def test_a_stopping_server_ends_streams_at_once(http: aiohttp.ClientSession) -> None:
    async with running(drain_s=30) as world, get(http, world.episode_url) as stream:
        assert await stream.frame() == ": ping"
        world.stop.set()
        assert await stream.event() is None


async def test_deleting_a_session_ends_its_stream(http: aiohttp.ClientSession) -> None:
    async with running() as world:
        session_id = await open_session(http, world.envs_url)
        headers = {"Mcp-Session-Id": session_id}
        async with get(http, world.envs_url, **headers) as stream:
            async with http.delete(world.envs_url, headers=headers) as response:
                assert response.status == 200
            assert await stream.event() is None


async def open_session(http: aiohttp.ClientSession, url: str) -> str:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with http.post(url, json=body, headers=BASE) as response:
        assert response.status == 200
        return response.headers["mcp-session-id"]


async def test_a_stream_whose_service_fails_to_subscribe_leaves_no_trace() -> None:
    class Broken(Toy):
        def subscribe(self, on_tools_changed: Any) -> Any:
            raise RuntimeError("no")

    streams = Streams()
    with pytest.raises(RuntimeError):
        await streams.serve_get(None, Broken())  # type: ignore[arg-type]
    assert len(streams) == 0
