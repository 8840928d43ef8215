"""Ungraded worlds: /envs by session, /play by token, trusted Python objects at the same URLs."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from mcp.client import Client

from astra_clients.exchange import new_pool
from astra_clients.mcp_client import McpClient
from astra_mcp.bundle import Server, ToolSpec
from astra_mcp.host.run import hosting
from astra_mcp.settings import HostSettings
from astra_mcp.trusted import TrustedWorld
from tests.e2e.conftest import CONTROL_TOKEN, DATA, ENVS, Rigger


async def test_each_session_on_envs_has_its_own_fresh_world(rig_of: Rigger) -> None:
    async with rig_of(DATA / "counter.json") as rig:
        url = f"{rig.host.url}/envs/counter/mcp"
        one, two = (McpClient(rig.pool, url, era="2025") for _ in range(2))
        async with one, two:
            for expected in (1, 2, 3):
                assert (await one.call_tool("increment", {})).structured == {"value": expected}
            assert (await two.call_tool("increment", {})).structured == {"value": 1}
        assert rig.host.health()["sessions"] == 0


async def test_a_client_of_the_2026_era_falls_back_to_a_session_on_envs(rig_of: Rigger) -> None:
    async with (
        rig_of(DATA / "counter.json") as rig,
        Client(f"{rig.host.url}/envs/counter/mcp") as client,
    ):
        for expected in (1, 2, 3):
            result = await client.call_tool("increment", {})
            assert result.structured_content == {"value": expected}


async def test_envs_tells_a_2026_request_which_versions_it_serves(rig_of: Rigger) -> None:
    async with rig_of(DATA / "counter.json") as rig:
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/list",
        }
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
        url = f"{rig.host.url}/envs/counter/mcp"
        async with rig.pool.post(url, json=body, headers=headers) as response:
            assert response.status == 400
            error = orjson.loads(await response.read())["error"]
        assert error["code"] == -32022
        assert "2025-11-25" in error["data"]["supported"]


async def test_play_gives_a_2026_client_a_world_of_its_own(rig_of: Rigger) -> None:
    async with rig_of(DATA / "counter.json") as rig:
        urls = []
        for _ in range(2):
            async with rig.pool.post(f"{rig.host.url}/play/counter") as response:
                assert response.status == 200
                urls.append(orjson.loads(await response.read())["url"])
        one, two = (McpClient(rig.pool, url) for url in urls)
        for expected in (1, 2, 3):
            assert (await one.call_tool("increment", {})).structured == {"value": expected}
        assert (await two.call_tool("increment", {})).structured == {"value": 1}


async def test_a_world_of_two_servers_has_an_endpoint_for_each(rig_of: Rigger) -> None:
    async with rig_of(ENVS) as rig:
        for bundle_id in rig.host.catalog.ids:
            held = await rig.host.catalog.hold(bundle_id)
            held.release()
            if len(held.world.servers) == 1:
                continue
            opened = await rig.open(f"{bundle_id}#t1")
            everything = {t["name"] for t in await rig.agent(opened).list_tools()}
            seen: set[str] = set()
            for server, url in opened.endpoints.items():
                names = {t["name"] for t in await McpClient(rig.pool, url).list_tools()}
                assert names == {n for n, t in held.world.tools.items() if t.server == server}
                assert not names & seen
                seen |= names
            assert seen == everything
            return
    pytest.fail("no committed bundle has two servers")


class Till:
    """A trusted object: a till that reports progress."""

    def __init__(self) -> None:
        self.total = 0

    async def ring(self, amount: int, progress: Any) -> dict[str, int]:
        await progress(1.0, 1.0, "rung")
        self.total += amount
        return {"total": self.total}

    def snapshot(self) -> dict[str, Any]:
        return {"till": {"1": {"total": self.total}}}


RING = ToolSpec(
    name="ring",
    description="Ring up an amount and give the total.",
    input_schema={
        "type": "object",
        "properties": {"amount": {"type": "integer"}},
        "required": ["amount"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
        "additionalProperties": False,
    },
    effects="write",
)


async def test_a_trusted_object_is_served_like_a_bundle_and_streams_its_progress() -> None:
    world = TrustedWorld("till@1.0.0", [Server(name="main", instructions="A till.")], [RING], Till)
    settings = HostSettings(unaudited=True)
    async with hosting([], settings, CONTROL_TOKEN, {"till": world}) as host, new_pool() as pool:
        heard: list[str | None] = []

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            heard.append(message)

        url = f"{host.url}/envs/till/mcp"
        async with McpClient(pool, url, era="2025", on_progress=on_progress) as client:
            assert (await client.call_tool("ring", {"amount": 2})).structured == {"total": 2}
            assert (await client.call_tool("ring", {"amount": 3})).structured == {"total": 5}
            refused = await client.call_tool("ring", {"amount": "3"})
            assert refused.code == "invalid_arguments"
        assert heard == ["rung", "rung"]
