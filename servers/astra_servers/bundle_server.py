"""Serves one bundle alone: `python server.py` (stdio), or `--http` for a URL of this machine.

Promises: one process over stdio is one session with one fresh state, in both protocol eras, until
the client closes the pipe or the process gets SIGTERM or SIGINT; only protocol bytes reach stdout;
no process is left behind. It needs the public files only and never reads sealed/. Calls go through
the host's sandbox, world and service, so lists, results and failures are the host's. It does not
grade, inject faults or hide tools: that is an episode of the host.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from astra_mcp.bundle import Manifest, State
from astra_mcp.errors import AstraError, SandboxError, UnknownTool
from astra_mcp.host.planes import WorldService
from astra_mcp.host.service import CallContext
from astra_mcp.sandbox import Sandbox, SandboxSettings
from astra_mcp.store import load_public
from astra_mcp.world import BundleWorld

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from astra_mcp.world import Environment

#: Seconds that ending each part of the sandbox may take before the process leaves anyway.
CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class Served:
    """The public part of a bundle, and how it is to be run.

    Attributes:
        manifest, code, state: What `astra_mcp.store.load_public` gives.
        accept_missing: Mandatory sandbox layers that may be missing on this machine.
    """

    manifest: Manifest
    code: str
    state: State
    accept_missing: frozenset[str] = frozenset()

    @classmethod
    def load(cls, path: Path, accept_missing: frozenset[str] = frozenset()) -> Served:
        """Read a bundle directory or single-file JSON; `sealed/` need not be there.

        Raises:
            BundleError: the bundle is not there or not well formed.
        """
        manifest, code, state = load_public(path)
        return cls(manifest, code, state, accept_missing)

    @asynccontextmanager
    async def world(self) -> AsyncIterator[BundleWorld]:
        """The world in a sandbox of its own; both end with the context.

        Layers that are off are named on stderr.

        Raises:
            SandboxUnavailable: a mandatory layer is missing.
        """
        async with AsyncExitStack() as stack:
            sandbox = await Sandbox.start(SandboxSettings(allow_missing=self.accept_missing))
            stack.push_async_callback(_close, sandbox)
            for layer, how in sandbox.layers.items():
                if how != "on":
                    print(f"warning: sandbox layer {layer} is {how}", file=sys.stderr)
            world = BundleWorld.from_public(self.manifest, self.code, self.state, sandbox)
            stack.push_async_callback(_close, world)
            yield world

    def service(self, world: BundleWorld, environment: Environment) -> WorldService:
        """One environment of the world as an MCP service with every tool."""
        return WorldService(world, self.manifest.title, environment)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[WorldService]:
        """A service with one fresh state, for one client.

        Raises:
            SandboxUnavailable: a mandatory layer is missing.
            LoadError: the code of the bundle does not load.
        """
        async with self.world() as world:
            environment = await world.open()
            try:
                yield self.service(world, environment)
            finally:
                await _close(environment)


async def _close(resource: Sandbox | BundleWorld | Environment) -> None:
    """Close within a deadline, whatever was cancelled around it."""
    with anyio.move_on_after(CLOSE_S, shield=True):
        await resource.aclose()


async def answer(
    service: WorldService, protocol_version: str, tool: str, args: dict[str, Any]
) -> types.CallToolResult:
    """Answer one `tools/call` as the host does.

    A call that has begun runs to its end even when the client cancels it: half a call would leave
    the worker with an answer that nobody waits for. The bundle's limits bound how long that takes.

    Raises:
        MCPError: -32602 when there is no such tool, -32603 when the sandbox is gone.
    """
    modern = protocol_version in MODERN_PROTOCOL_VERSIONS
    context = CallContext("2026" if modern else "2025", None, None, _no_progress)
    try:
        with anyio.CancelScope(shield=True):
            result = await service.call_tool(tool, args, context)
    except UnknownTool as error:
        raise MCPError(types.INVALID_PARAMS, error.message) from error
    except SandboxError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from error
    return types.CallToolResult(
        content=[types.TextContent(text=result.text)],
        structured_content=result.structured,
        is_error=result.is_error,
    )


async def _no_progress(_done: float, _total: float | None, _message: str | None) -> None:
    """A bundle's tools report no progress."""


def protocol_server(service: WorldService) -> Server[dict[str, Any]]:
    """The SDK's server around one service; it speaks both eras."""
    tools = [types.Tool.model_validate(spec) for spec in service.tools().specs]

    async def list_tools(_request: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        request: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        version, args = request.protocol_version, params.arguments or {}
        return await answer(service, version, params.name, args)

    return Server(
        service.name,
        version=service.version,
        title=service.title,
        instructions=service.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(served: Served) -> None:
    """Serve until the client closes the pipe or a signal comes.

    The world is opened after the SDK has moved stdin and stdout out of the reach of child
    processes, so that nothing else can write to the protocol's pipe. Only a closed pipe lets this
    return: the SDK reads stdin in a thread that nothing can interrupt, so on a signal or an error
    the process leaves at once, after everything of ours is closed.
    """
    async with stdio_server() as (incoming, outgoing):
        try:
            signalled = await _serve_until_signal(served, incoming, outgoing)
        except AstraError as error:
            _leave(report(error))
        except Exception:  # noqa: BLE001 - the last place that can still end the process
            traceback.print_exc()
            _leave(1)
        if signalled:
            _leave(0)


async def _serve_until_signal(served: Served, incoming: Any, outgoing: Any) -> bool:
    """Serve one client; whether a signal ended it rather than the client."""
    signalled = False
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with served.opened() as service, anyio.create_task_group() as tasks:

            async def stop_on_signal() -> None:
                nonlocal signalled
                async for _ in signals:
                    signalled = True
                    asyncio.get_running_loop().call_later(CLOSE_S, _leave, 0)
                    tasks.cancel_scope.cancel()

            tasks.start_soon(stop_on_signal)
            server = protocol_server(service)
            await server.run(incoming, outgoing, server.create_initialization_options())
            tasks.cancel_scope.cancel()
    return signalled


def _leave(code: int) -> NoReturn:
    sys.stderr.flush()
    os._exit(code)


def report(error: AstraError) -> int:
    """Say on stderr what is wrong and what to do; the exit code to leave with."""
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def for_fastmcp(path: Path) -> FastMCP[Any]:
    """The bundle as the object that `fastmcp run server.py` looks for; ends the process on error.

    FastMCP is imported here, so that plain `python server.py` starts without it.
    """
    from astra_servers.fastmcp_server import build

    try:
        return build(Served.load(path))
    except AstraError as error:
        raise SystemExit(report(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Serve this environment alone to one MCP client over stdio, or over HTTP."
    )
    parser.add_argument("--http", action="store_true", help="serve a URL instead of stdio")
    parser.add_argument("--port", type=int, default=0, help="port of --http; 0: a free one")
    parser.add_argument(
        "--accept-missing-layer",
        action="append",
        default=[],
        metavar="NAME",
        help="run although this mandatory sandbox layer is missing (may be repeated)",
    )
    return parser


def main(path: Path, argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of a bundle's server.py; `path` is the bundle's directory."""
    options = _parser().parse_args(argv)
    try:
        served = Served.load(path, frozenset(options.accept_missing_layer))
        if options.http:
            from astra_servers.bundle_http import serve_http

            anyio.run(serve_http, served, options.port)
        else:
            anyio.run(serve_stdio, served)
    except AstraError as error:
        raise SystemExit(report(error)) from error
    raise SystemExit(0)
