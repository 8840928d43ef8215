"""One bundle as a FastMCP object: what `fastmcp run server.py` serves over stdio.

Promises: the same tool list, results and failures as `bundle_server`, from the same sandbox and
world; the object has one fresh state from the start of its lifespan to the end. FastMCP validates
nothing for tools of our own class (the world does) and answers an unknown tool with a result; a
middleware makes that the protocol error of the host. It refuses HTTP, where all clients would share
the one state: `python server.py --http` gives each session its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import mcp_types as types
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_context
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import Tool, ToolResult
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import PrivateAttr

from astra_mcp.errors import UsageError
from astra_mcp.host.planes import WorldService, instructions_of, wire_tool
from astra_servers.bundle_server import Served, answer


class _Live:
    """The service of the running lifespan."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._service: WorldService | None = None

    @asynccontextmanager
    async def lifespan(self, _server: FastMCP[Any]) -> AsyncIterator[None]:
        async with self._served.opened() as service:
            self._service = service
            try:
                yield
            finally:
                self._service = None

    async def call(self, tool: str, args: dict[str, Any]) -> types.CallToolResult:
        if self._service is None:
            raise MCPError(types.INTERNAL_ERROR, "The server is not running.")
        request = get_context().request_context
        version = request.protocol_version if request is not None else LATEST_MODERN_VERSION
        return await answer(self._service, version, tool, args)


class WorldTool(Tool):
    """A tool of the bundle; its arguments are validated by the world."""

    _live: _Live = PrivateAttr()
    _wire: types.Tool = PrivateAttr()

    @classmethod
    def of(cls, wire: Mapping[str, Any], live: _Live) -> WorldTool:
        """The tool that lists as `wire` and is called in the live service."""
        listed = types.Tool.model_validate(wire)
        tool = cls(
            name=listed.name,
            description=listed.description,
            parameters=listed.input_schema,
            output_schema=listed.output_schema,
        )
        tool._live, tool._wire = live, listed
        return tool

    def to_mcp_tool(self, **_overrides: Any) -> types.Tool:
        """The host's listing, without FastMCP's additions."""
        return self._wire

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """One call in the live service."""
        return ToolResult.from_mcp_result(await self._live.call(self.name, arguments))


class _UnknownToolIsAnError(Middleware):
    """Answers an unknown tool with JSON-RPC error -32602, as the host does."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    async def on_call_tool(
        self,
        context: MiddlewareContext[types.CallToolRequestParams],
        call_next: CallNext[types.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        if context.message.name not in self._names:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {context.message.name}")
        return await call_next(context)


class BundleFastMCP(FastMCP[None]):
    """A FastMCP server for one client over stdio or in memory, and no HTTP."""

    async def run_http_async(self, *_args: Any, **_options: Any) -> NoReturn:
        """Refuse.

        Raises:
            UsageError: always; it names the command that serves HTTP.
        """
        raise UsageError(
            "FastMCP over HTTP would give all clients one shared state.",
            "Run `python server.py --http`, which gives each session its own.",
        )


def build(served: Served) -> BundleFastMCP:
    """The FastMCP object of a bundle; its sandbox starts with its lifespan."""
    live = _Live(served)
    manifest = served.manifest
    return BundleFastMCP(
        manifest.id,
        version=manifest.version,
        instructions=instructions_of(manifest.servers, None),
        lifespan=live.lifespan,
        middleware=[_UnknownToolIsAnError(frozenset(manifest.by_name))],
        tools=[WorldTool.of(wire_tool(spec), live) for spec in manifest.tools],
    )
