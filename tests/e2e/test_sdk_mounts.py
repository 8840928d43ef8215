"""An operator's SDK servers beside the bundles of one host: what they can do, what guards them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anyio
import fastmcp
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from pydantic import AnyHttpUrl, BaseModel

from astra_clients.exchange import new_pool
from astra_clients.mcp_client import McpClient
from astra_mcp.errors import UsageError
from astra_mcp.host.app import Host
from astra_mcp.host.http import HttpRequest
from astra_mcp.host.router import Route, Router
from astra_mcp.host.run import hosting
from astra_mcp.host.sdk import SdkMount, all_running
from astra_mcp.host.server import ServerInfo, serve
from astra_mcp.settings import HostSettings
from tests.e2e.conftest import CONTROL_TOKEN, DATA

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    },
}


class Name(BaseModel):
    """What the server asks for."""

    name: str


@dataclass
class Own:
    """An operator's server: its lifespan, and a tool that waits."""

    events: list[str] = field(default_factory=list)
    started: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)

    def server(self, **options: Any) -> MCPServer:
        """A prompt, a question to the user, and the tool."""

        @asynccontextmanager
        async def lifespan(_: Any) -> AsyncIterator[None]:
            self.events.append("started")
            yield
            await anyio.lowlevel.checkpoint()  # a lifespan may do something at its end
            self.events.append("ended")

        server = MCPServer("own", lifespan=lifespan, **options)

        @server.prompt()
        def greeting(name: str) -> str:
            return f"Hello, {name}."

        @server.tool()
        async def ask(ctx: Context) -> str:
            answer = await ctx.elicit("Your name?", Name)
            return answer.data.name if answer.action == "accept" else "nobody"

        @server.tool()
        async def wait() -> str:
            self.started.set()
            await self.release.wait()
            return "waited"

        return server


def low() -> Server[Any]:
    """A low-level server."""

    async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name="low")])

    return Server("low", on_list_prompts=list_prompts)


def fast() -> fastmcp.FastMCP[Any]:
    """A FastMCP server."""
    server: fastmcp.FastMCP[Any] = fastmcp.FastMCP("fast")

    @server.prompt
    def fast_prompt() -> str:
        return "fast"

    return server


@asynccontextmanager
async def with_mounts(own: Own, **settings: Any) -> AsyncIterator[Host]:
    options = HostSettings.model_validate({"unaudited": True, **settings})
    mounts = {"own": own.server(), "low": low(), "fast": fast()}
    async with hosting([DATA / "counter.json"], options, CONTROL_TOKEN, mounts=mounts) as host:
        yield host


@asynccontextmanager
async def serving(mount: SdkMount, drain_s: float = 5) -> AsyncIterator[tuple[str, anyio.Event]]:
    """A server of this one mount; gives its URL and the event that stops it."""

    async def resolve(request: HttpRequest) -> Route:
        return mount.route

    router, stop, ready = Router(resolve, on_drain=[mount.drain]), anyio.Event(), anyio.Event()
    infos: list[ServerInfo] = []

    def on_ready(info: ServerInfo) -> None:
        infos.append(info)
        ready.set()

    async def run() -> None:
        async with all_running([mount]):
            await serve(router, ready=on_ready, shutdown=stop, drain_s=drain_s, catch_signals=False)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(20):
            await ready.wait()
        try:
            yield f"{infos[0].url}/mcp", stop
        finally:
            stop.set()


async def test_every_kind_of_server_is_reached_in_both_eras_beside_bundles() -> None:
    own = Own()
    async with with_mounts(own) as host, new_pool() as pool:
        assert own.events == ["started"]
        for mode, version in (("auto", "2026-07-28"), ("legacy", "2025-11-25")):
            for name, prompt in (("own", "greeting"), ("low", "low"), ("fast", "fast_prompt")):
                async with Client(f"{host.url}/sdk/{name}/mcp", mode=mode) as client:
                    assert client.protocol_version == version
                    found = (await client.list_prompts()).prompts
                    assert [each.name for each in found] == [prompt]
        async with McpClient(pool, f"{host.url}/envs/counter/mcp", era="2025") as bundle:
            assert (await bundle.call_tool("increment", {})).structured == {"value": 1}
    assert own.events == ["started", "ended"]


async def test_a_server_can_ask_its_client_in_the_middle_of_a_call() -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with with_mounts(Own()) as host:
        url = f"{host.url}/sdk/own/mcp"
        async with Client(url, mode="legacy", elicitation_callback=answer) as client:
            result = await client.call_tool("ask", {})
    assert result.content[0].text == "Ada"  # type: ignore[union-attr]


async def test_the_hosts_checks_stand_in_front() -> None:
    async with with_mounts(Own(), body_bytes=2048) as host, aiohttp.ClientSession() as http:
        url = f"{host.url}/sdk/own/mcp"

        async def status(url: str, body: Any = INITIALIZE, **headers: str) -> tuple[int, Any]:
            async with http.post(url, json=body, headers={**JSON, **headers}) as answer:
                text = await answer.text()
            return answer.status, text

        assert (await status(url))[0] == 200
        assert (await status(url, host="evil.example"))[0] == 421
        assert (await status(url, origin="https://evil.example"))[0] == 403
        assert (await status(f"{host.url}/sdk/none/mcp"))[0] == 404
        large = await status(url, {**INITIALIZE, "more": "x" * 4096})
        assert large[0] == 413
        assert "larger than 2048 bytes" in large[1]
        async with http.put(url) as answer:
            assert answer.status == 405


async def test_a_servers_own_authentication_holds() -> None:
    class Verifier:
        async def verify_token(self, token: str) -> AccessToken | None:
            known = token == "right"
            return AccessToken(token=token, client_id="c", scopes=[]) if known else None

    here = AnyHttpUrl("http://127.0.0.1")
    auth = AuthSettings(issuer_url=here, resource_server_url=here, validate_token_resource=False)
    mount = SdkMount(Own().server(auth=auth, token_verifier=Verifier()))
    async with serving(mount) as (url, _), aiohttp.ClientSession() as http:
        for headers, expected in (
            ({}, 401),
            ({"authorization": "Bearer wrong"}, 401),
            ({"authorization": "Bearer right"}, 200),
        ):
            async with http.post(url, json=INITIALIZE, headers={**JSON, **headers}) as answer:
                assert answer.status == expected


async def test_a_drain_ends_streams_with_their_last_byte_and_lets_calls_end() -> None:
    own = Own()
    mount = SdkMount(own.server())
    # The drain may last far longer than this test: only an end of the stream can end it.
    async with serving(mount, drain_s=100) as (url, stop), aiohttp.ClientSession() as http:
        async with http.post(url, json=INITIALIZE, headers=JSON) as answer:
            session = {**JSON, "mcp-session-id": answer.headers["mcp-session-id"]}
        results: list[str] = []

        async def call() -> None:
            params = {"name": "wait", "arguments": {}}
            body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            async with http.post(url, json=body, headers=session) as answer:
                results.append(await answer.text())

        with anyio.fail_after(30):
            async with http.get(url, headers=session) as stream, anyio.create_task_group() as tasks:
                assert stream.status == 200
                assert len(mount) == 1
                tasks.start_soon(call)
                await own.started.wait()
                stop.set()
                await stream.read()  # raises when the stream is cut before its end
                assert len(mount) == 0
                own.release.set()
        assert "waited" in results[0]


@pytest.mark.parametrize("era", ["legacy", "legacy, posing as a stream", "2026-07-28"])
async def test_a_request_that_never_ends_is_stopped(era: str) -> None:
    mount = SdkMount(Own().server())
    async with serving(mount) as (url, _), aiohttp.ClientSession() as http:
        status, text = await _stopped_call(mount, http, url, era)
    assert "waited" not in text
    # Where the SDK had begun a stream, all that can be done is to end it.
    assert (status == 504 and "stopped" in text) or status == 200


async def _stopped_call(
    mount: SdkMount, http: aiohttp.ClientSession, url: str, era: str
) -> tuple[int, str]:
    params: dict[str, Any] = {"name": "wait", "arguments": {}}
    headers = dict(JSON)
    if era.startswith("legacy"):
        async with http.post(url, json=INITIALIZE, headers=JSON) as answer:
            headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        if "posing" in era:
            headers["mcp-method"] = "subscriptions/listen"
    else:
        prefix = "io.modelcontextprotocol/"
        params["_meta"] = {f"{prefix}protocolVersion": era, f"{prefix}clientCapabilities": {}}
        headers |= {"mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": "wait"}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    mount.deadline_s = 0.2
    with anyio.fail_after(20):
        async with http.post(url, json=body, headers=headers) as answer:
            return answer.status, await answer.text()


async def test_a_stream_begins_before_its_first_event() -> None:
    """The SDK's first ping comes after 15 seconds; a client must not wait for it."""
    mount = SdkMount(Own().server())
    async with serving(mount) as (url, _), aiohttp.ClientSession() as http:
        async with http.post(url, json=INITIALIZE, headers=JSON) as answer:
            session = {**JSON, "mcp-session-id": answer.headers["mcp-session-id"]}
        with anyio.fail_after(10):
            async with http.get(url, headers=session) as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")


async def test_there_are_only_so_many_streams() -> None:
    mount = SdkMount(Own().server(), limit=1)
    async with serving(mount) as (url, _), aiohttp.ClientSession() as http:
        async with http.post(url, json=INITIALIZE, headers=JSON) as answer:
            session = {**JSON, "mcp-session-id": answer.headers["mcp-session-id"]}
        async with http.get(url, headers=session) as first:
            assert first.status == 200
            async with http.get(url, headers=session) as second:
                assert second.status == 503
                assert second.headers["retry-after"]


async def test_what_is_no_server_is_refused_with_a_remedy() -> None:
    with pytest.raises(UsageError, match="cannot be mounted"):
        SdkMount(object())


async def test_a_mount_that_is_not_running_says_so() -> None:
    mount = SdkMount(low())

    async def resolve(request: HttpRequest) -> Route:
        return mount.route

    stop, ready = anyio.Event(), anyio.Event()
    infos: list[ServerInfo] = []

    def on_ready(info: ServerInfo) -> None:
        infos.append(info)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            lambda: serve(Router(resolve), ready=on_ready, shutdown=stop, catch_signals=False)
        )
        await ready.wait()
        async with (
            aiohttp.ClientSession() as http,
            http.post(infos[0].url, json=INITIALIZE, headers=JSON) as answer,
        ):
            assert answer.status == 503
        stop.set()
