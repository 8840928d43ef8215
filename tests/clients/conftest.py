"""Fixtures of the client tests."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from client_servers import ScriptedServer, serve
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from astra_clients.exchange import new_pool


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    with serve(server) as server.url:
        yield server


@pytest.fixture
async def pool() -> AsyncIterator[aiohttp.ClientSession]:
    async with new_pool() as session:
        yield session


@pytest.fixture(scope="session")
def sdk_server() -> Iterator[str]:
    """An MCPServer of the official SDK, which serves both eras at one URL."""
    server = MCPServer("oracle", version="9.9", log_level="CRITICAL")
    logging.getLogger("mcp").setLevel(logging.CRITICAL)

    @server.tool()
    def add(a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        return {"sum": a + b}

    @server.tool(name="größe")
    def size() -> dict[str, int]:
        """A tool whose name no header can carry as it is."""
        return {"cm": 7}

    @server.tool()
    def fail(why: str) -> dict[str, int]:
        """Always fails."""
        raise ToolError(f"no_such_thing: {why}")

    @server.tool()
    async def slow(ctx: Context, steps: int) -> dict[str, int]:
        """Reports progress."""
        for i in range(steps):
            await ctx.report_progress(i + 1, steps, f"step {i + 1}")
        return {"steps": steps}

    @server.resource("astra://test/thing")
    def thing() -> str:
        """A text."""
        return "a thing"

    with serve(server.streamable_http_app()) as url:
        yield f"{url}/mcp"
