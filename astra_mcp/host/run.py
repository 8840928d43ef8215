"""One host from start to end: sandbox, catalogue, restored episodes, listening, draining.

Used by `astra serve`; tests use `hosting` in their own process.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from astra_mcp.concurrency import task_group
from astra_mcp.host.app import Host
from astra_mcp.host.catalog import Catalog
from astra_mcp.host.logs import configure
from astra_mcp.host.restore import restore
from astra_mcp.host.sdk import SdkMount, SdkServer, all_running
from astra_mcp.host.server import ServerInfo, serve
from astra_mcp.sandbox import Sandbox, SandboxSettings
from astra_mcp.settings import HostSettings
from astra_mcp.world import World

log = logging.getLogger("astra_mcp.host")


async def run_host(
    paths: Sequence[Path],
    settings: HostSettings,
    control_token: str,
    announce: Callable[[str], None],
    until_stdin_closes: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT, or until standard input closes.

    Args:
        announce: Called with the base URL once it listens.

    Raises:
        SandboxUnavailable: a mandatory layer is missing.
        BundleError: the paths hold no bundle.
        ListenError: the address cannot be listened on.
    """
    configure()
    _raise_descriptor_limit()
    stop = anyio.Event()
    async with task_group() as tasks:
        if until_stdin_closes:
            tasks.start_soon(_stop_at_eof, stop)
        await _serve(paths, settings, control_token, announce, stop)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def hosting(
    paths: Sequence[Path],
    settings: HostSettings,
    control_token: str,
    trusted: Mapping[str, World] | None = None,
    mounts: Mapping[str, SdkServer] | None = None,
) -> AsyncIterator[Host]:
    """A listening host in this process; `host.url` is its address.

    Args:
        trusted: Worlds of the operator's own Python objects, served at /envs/<id> and /play/<id>.
        mounts: The operator's own SDK servers (`mcp` Server or MCPServer, FastMCP) by name, served
            by the SDK's transport at /sdk/<name>/mcp; see sdk.py.
    """
    stop, ready = anyio.Event(), anyio.Event()
    found: list[Host] = []
    async with task_group() as tasks:

        async def run() -> None:
            await _serve(
                paths,
                settings,
                control_token,
                lambda _url: ready.set(),
                stop,
                found.append,
                trusted,
                mounts,
            )

        tasks.start_soon(run)
        with anyio.fail_after(60):
            await ready.wait()
        try:
            yield found[0]
        finally:
            stop.set()


async def _serve(
    paths: Sequence[Path],
    settings: HostSettings,
    control_token: str,
    announce: Callable[[str], None],
    stop: anyio.Event,
    made: Callable[[Host], None] = lambda host: None,
    trusted: Mapping[str, World] | None = None,
    mounts: Mapping[str, SdkServer] | None = None,
) -> None:
    layers = SandboxSettings(allow_missing=settings.accept_missing_layers)
    sandbox = await Sandbox.start(layers)
    try:
        catalog = Catalog(paths, sandbox, settings.loaded_bundles, trusted)
        served = {name: _mount(server, settings) for name, server in (mounts or {}).items()}
        host = Host(catalog, settings, sandbox, control_token, served)
        made(host)
        restored = await restore(host.episodes)
        log.info("sandbox %s, bundles %d", dict(sandbox.layers), len(catalog.ids))
        if any(restored.values()):
            log.info("restored %s", restored)
        if settings.accept_missing_layers:
            log.warning("running without %s", sorted(settings.accept_missing_layers))
        if settings.unaudited:
            log.warning("serving bundles that no audit has accepted")

        def ready(info: ServerInfo) -> None:
            host.url = info.url
            announce(info.url)

        try:
            async with all_running(served.values()), task_group() as tasks:
                tasks.start_soon(host.sweep_forever)
                await serve(
                    host.router,
                    settings.host,
                    settings.port,
                    ready,
                    shutdown=stop,
                    drain_s=settings.drain_s,
                )
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(10):
                await host.aclose()
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(10):
            await sandbox.aclose()


def _mount(server: SdkServer, settings: HostSettings) -> SdkMount:
    """An operator's server under this host's limits."""
    return SdkMount(
        server,
        body_limit=settings.body_bytes,
        idle_s=settings.idle_s,
        limit=settings.max_env_sessions,
    )


def _raise_descriptor_limit() -> None:
    """Thousands of connections and workers need descriptors: take all that this user may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _stop_at_eof(stop: anyio.Event) -> None:
    """Set `stop` when whoever started this process has closed its end of standard input."""
    await anyio.wait_readable(sys.stdin.fileno())
    while os.read(sys.stdin.fileno(), 4096):
        await anyio.wait_readable(sys.stdin.fileno())
    stop.set()
