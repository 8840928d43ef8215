"""Real clients of both eras keep their state, see progress, and get typed errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import fastmcp
import mcp_types as types
import pytest
from mcp import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from transport_toy import World, running, tool

Counter = Callable[[str], Awaitable[list[int]]]


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that `astra serve` runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def world(anyio_backend: object) -> AsyncIterator[World]:
    async with running() as world:
        yield world


async def sdk_auto(url: str) -> list[int]:
    async with Client(url) as client:
        results = [await client.call_tool("count", {}) for _ in range(3)]
    return [result.structured_content["count"] for result in results]  # type: ignore[index]


async def sdk_legacy(url: str) -> list[int]:
    async with Client(url, mode="legacy") as client:
        results = [await client.call_tool("count", {}) for _ in range(3)]
    return [result.structured_content["count"] for result in results]  # type: ignore[index]


async def sdk_session(url: str) -> list[int]:
    async with streamable_http_client(url) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        results = [await session.call_tool("count", {}) for _ in range(3)]
    return [result.structured_content["count"] for result in results]  # type: ignore[index]


async def fast(url: str) -> list[int]:
    async with fastmcp.Client(url) as client:
        results = [await client.call_tool("count", {}) for _ in range(3)]
    return [result.structured_content["count"] for result in results]  # type: ignore[index]


CLIENTS: dict[str, Counter] = {
    "sdk, era chosen by itself": sdk_auto,
    "sdk, 2025": sdk_legacy,
    "sdk, bare session": sdk_session,
    "fastmcp": fast,
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_episodes_state_outlives_each_client(world: World, client: str) -> None:
    world.episode.counter = 0
    assert await CLIENTS[client](world.episode_url) == [1, 2, 3]
    assert await CLIENTS[client](world.episode_url) == [4, 5, 6]


@pytest.mark.parametrize("client", CLIENTS)
async def test_each_session_of_an_environment_starts_afresh(world: World, client: str) -> None:
    assert await CLIENTS[client](world.envs_url) == [1, 2, 3]
    assert await CLIENTS[client](world.envs_url) == [1, 2, 3]
    assert len(world.sessions) == 0, "leaving clients end their sessions"
    assert all(service.closed for service in world.made)


async def test_two_sessions_side_by_side_share_nothing(world: World) -> None:
    found: dict[str, list[int]] = {}

    async def count(name: str) -> None:
        found[name] = await sdk_auto(world.envs_url)

    async with anyio.create_task_group() as tasks:
        for name in "abcd":
            tasks.start_soon(count, name)
    assert found == {name: [1, 2, 3] for name in "abcd"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_progress_reaches_the_client_before_the_result(world: World, mode: Any) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))

    async with Client(world.episode_url, mode=mode) as client:
        result = await client.call_tool("steps", {"n": 3}, progress_callback=on_progress)
    assert result.structured_content == {"done": True}
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_failures_keep_their_kind(world: World, mode: Any) -> None:
    async with Client(world.episode_url, mode=mode) as client:
        failed = await client.call_tool("fail", {})
        assert failed.is_error
        assert failed.structured_content is None
        assert failed.content[0].text == "not_found: No such thing."  # type: ignore[union-attr]
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("nope", {})
        assert (unknown.value.error.code, unknown.value.error.message) == (
            -32602,
            "Unknown tool: nope",
        )
        for name in ("crash", "unserializable", "impatient"):
            with pytest.raises(MCPError) as internal:
                await client.call_tool(name, {})
            assert internal.value.error.code == -32603
            assert internal.value.error.message == "Internal server error"
        assert (await client.call_tool("echo", {"text": "still here"})).structured_content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_resources_are_listed_by_pages_and_read(world: World, mode: Any) -> None:
    async with Client(world.episode_url, mode=mode) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        assert [r.uri for r in [*first.resources, *second.resources]] == ["toy://a", "toy://b"]
        assert second.next_cursor is None
        templates = await client.list_resource_templates()
        assert templates.resource_templates[0].uri_template == "toy://{letter}"
        read = await client.read_resource("toy://b")
        assert read.contents[0].text == "content of b"  # type: ignore[union-attr]
        with pytest.raises(MCPError) as missing:
            await client.read_resource("toy://z")
        assert missing.value.error.code == (-32602 if mode == "auto" else -32002)
        with pytest.raises(MCPError, match="Invalid cursor"):
            await client.list_resources(cursor="nope")


async def test_the_service_learns_who_calls_where_the_protocol_says_it(world: World) -> None:
    info = types.Implementation(name="me", version="7")
    told = {"name": "me", "version": "7"}
    async with Client(world.episode_url, client_info=info) as client:
        answer = (await client.call_tool("who", {})).structured_content
        assert answer is not None
        assert (answer["client"] | told, answer["era"]) == (answer["client"], "2026")
    async with Client(world.envs_url, client_info=info) as client:
        answer = (await client.call_tool("who", {})).structured_content
        assert answer is not None
        assert (answer["client"] | told, answer["era"]) == (answer["client"], "2025")


async def test_wide_integers_arrive_whole(world: World) -> None:
    async with Client(world.episode_url) as client:
        assert (await client.call_tool("wide", {})).structured_content == {"wide": 2**80}


@pytest.mark.parametrize("endpoint", ["episode_url", "envs_url"])
async def test_a_changed_tool_list_is_announced_in_the_era_of_the_client(endpoint: str) -> None:
    """On /envs the era is 2025 and the stream is a GET; on an episode it is a subscription."""
    async with running() as world:
        heard = anyio.Event()

        async def on_message(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                heard.set()

        url = getattr(world, endpoint)
        async with (
            Client(url, message_handler=on_message) as client,
            anyio.create_task_group() as tg,
        ):
            service = world.episode if endpoint == "episode_url" else world.made[0]
            if endpoint == "episode_url":

                async def listen() -> None:
                    async with client.listen(tools_list_changed=True) as events:
                        async for _ in events:
                            heard.set()

                tg.start_soon(listen)
            with anyio.fail_after(10):
                await service.subscribed.wait()
                service.show([tool("new")])
                await heard.wait()
            listed = await client.list_tools()
            assert [t.name for t in listed.tools] == ["new"]
            tg.cancel_scope.cancel()
