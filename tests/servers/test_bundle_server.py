"""A bundle served alone, as a client sees it: through the SDK's server and through FastMCP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
import fastmcp
import mcp
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from processes import COUNTER, END_S, changed

from astra_mcp.errors import BundleError, UsageError
from astra_mcp.store import load_bundle
from astra_servers.bundle_server import Served, main, protocol_server
from astra_servers.fastmcp_server import build


class Visit(Protocol):
    """A connected client, in protocol terms."""

    async def list_tools(self) -> types.ListToolsResult: ...
    async def call_tool(self, name: str, args: dict[str, Any]) -> types.CallToolResult: ...


Connect = Callable[[Path, str], AbstractAsyncContextManager[Visit]]


@asynccontextmanager
async def with_sdk(bundle: Path, mode: str) -> AsyncIterator[Visit]:
    with anyio.fail_after(END_S):
        async with (
            Served.load(bundle).opened() as service,
            mcp.Client(protocol_server(service), mode=mode) as client,
        ):
            yield client


class FastMCPVisit:
    """The FastMCP client without what it adds to the protocol's results."""

    def __init__(self, client: fastmcp.Client[Any]) -> None:
        self._client = client

    async def list_tools(self) -> types.ListToolsResult:
        return await self._client.list_tools_mcp()

    async def call_tool(self, name: str, args: dict[str, Any]) -> types.CallToolResult:
        return await self._client.call_tool_mcp(name, args)


@asynccontextmanager
async def with_fastmcp(bundle: Path, mode: str) -> AsyncIterator[Visit]:
    with anyio.fail_after(END_S):
        async with fastmcp.Client(build(Served.load(bundle)), mode=mode) as client:
            yield FastMCPVisit(client)


every_way = pytest.mark.parametrize("connect", [with_sdk, with_fastmcp], ids=["sdk", "fastmcp"])
every_era = pytest.mark.parametrize("mode", ["auto", "legacy"])


async def increment(visit: Visit, **args: int) -> int:
    result = await visit.call_tool("increment", args)
    assert result.structured_content is not None, result.content
    return int(result.structured_content["value"])


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@every_era
@every_way
async def test_each_opening_is_one_fresh_state(connect: Connect, mode: str, counter: Path) -> None:
    for _ in range(2):
        async with connect(counter, mode) as visit:
            assert [await increment(visit) for _ in range(3)] == [1, 2, 3]


@every_way
async def test_the_listing_is_the_manifest(connect: Connect, counter: Path) -> None:
    async with connect(counter, "auto") as visit:
        tools = (await visit.list_tools()).tools
    specs = load_bundle(COUNTER).manifest.tools
    assert [tool.name for tool in tools] == [spec.name for spec in specs]
    for tool, spec in zip(tools, specs, strict=True):
        assert (tool.description, tool.title) == (spec.description, None)
        assert tool.input_schema == spec.input_schema
        assert tool.output_schema == spec.output_schema
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint == (spec.effects == "read")


@every_era
@every_way
async def test_failures_are_coded_and_leave_the_state(
    connect: Connect, mode: str, counter: Path
) -> None:
    told = {}
    async with connect(counter, mode) as visit:
        assert await increment(visit, by=50) == 50
        assert await increment(visit) == 51
        for name, args in {"invalid": {"by": 0}, "extra": {"to": 3}, "failed": {"by": 50}}.items():
            result = await visit.call_tool("increment", args)
            assert result.is_error
            assert result.structured_content is None
            told[name] = text_of(result)
        with pytest.raises(MCPError, match=r"^Unknown tool: no_such_tool$") as unknown:
            await visit.call_tool("no_such_tool", {})
        assert await increment(visit) == 52
    assert told["invalid"].startswith("invalid_arguments: ")
    assert told["extra"].startswith("invalid_arguments: ")
    assert told["failed"] == "limit_reached: the counter stops at 100"
    assert unknown.value.code == -32602


@every_way
async def test_concurrent_calls_run_one_after_the_other(connect: Connect, counter: Path) -> None:
    values: list[int] = []
    async with connect(counter, "auto") as visit:

        async def one() -> None:
            values.append(await increment(visit))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(one)
    assert sorted(values) == list(range(1, 21))


@every_way
async def test_the_result_is_also_the_text(connect: Connect, counter: Path) -> None:
    async with connect(counter, "auto") as visit:
        result = await visit.call_tool("increment", {"by": 7})
    assert json.loads(text_of(result)) == result.structured_content == {"value": 7}


async def test_several_servers_are_served_together(tmp_path: Path) -> None:
    manifest = json.loads(COUNTER.read_text("utf-8"))["manifest"]
    manifest["servers"].append({"name": "reading", "instructions": "Only look."})
    manifest["tools"][1]["server"] = "reading"
    bundle = changed(tmp_path / "two", manifest=manifest)
    both = "Move the counter and read it.\nOnly look."
    async with Served.load(bundle).opened() as service:
        assert len(service.tools().specs) == 2
        server = protocol_server(service)
    assert server.instructions == build(Served.load(bundle)).instructions == both


async def test_fastmcp_refuses_http_and_names_the_command(counter: Path) -> None:
    with pytest.raises(UsageError, match=r"python server\.py --http"):
        await build(Served.load(counter)).run_http_async()


def test_a_bad_bundle_is_refused_before_anything_starts(tmp_path: Path) -> None:
    bundle = changed(tmp_path / "bad")
    (bundle / "tools.py").write_text("def increment(state): return {}\n")
    with pytest.raises(BundleError):
        Served.load(bundle)


def test_a_wrong_option_is_a_usage_error(counter: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(counter, ["--nope"])
    assert ended.value.code == 2
