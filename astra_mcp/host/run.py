"""One host from start to end: sandbox, catalogue, restored episodes, listening, draining.

Used by `astra serve`; tests use `hosting` in their own process.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from astra_mcp.concurrency import task_group
from astra_mcp.host.app import Host
from astra_mcp.host.catalog import Catalog
from astra_mcp.host.logs import configure
from astra_mcp.host.peers import Peer, listening, socket_path
from astra_mcp.host.recording import Recorder
from astra_mcp.host.restore import restore
from astra_mcp.host.sdk import SdkMount, SdkServer, all_running
from astra_mcp.host.server import Application, ServerInfo, serve
from astra_mcp.host.sharded import Sharded
from astra_mcp.host.tokens import token_hash
from astra_mcp.host.tracing import CallSpans, spans_from
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
    metrics_token: str | None = None,
    peers: Path | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until standard input closes.

    Args:
        announce: Called with the base URL once it listens.
        metrics_token: Opens /metrics and nothing else.
        peers: Folder of the sockets by which the processes of one host reach each other, when
            there are several (supervisor.py).

    Raises:
        UsageError: OTEL_* names an exporter that is not installed.
        SandboxUnavailable: a mandatory layer is missing.
        BundleError: the paths hold no bundle.
        ListenError: the address cannot be listened on.
    """
    configure()
    _raise_descriptor_limit()
    stop = anyio.Event()
    async with task_group() as tasks:
        if until_stdin_closes:
            tasks.start_soon(stop_at_eof, stop)
        await _serve(
            paths,
            settings,
            control_token,
            announce,
            stop,
            metrics_token=metrics_token,
            spans=spans_from(),
            peers=peers,
        )
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def hosting(
    paths: Sequence[Path],
    settings: HostSettings,
    control_token: str,
    trusted: Mapping[str, World] | None = None,
    mounts: Mapping[str, SdkServer] | None = None,
    metrics_token: str | None = None,
    spans: CallSpans | None = None,
) -> AsyncIterator[Host]:
    """A listening host in this process; `host.url` is its address.

    Args:
        trusted: Worlds of the operator's own Python objects, served at /envs/<id> and /play/<id>.
        mounts: The operator's own SDK servers (`mcp` Server or MCPServer, FastMCP) by name, served
            by the SDK's transport at /sdk/<name>/mcp; see sdk.py.
        metrics_token: Opens /metrics and nothing else.
        spans: Told of each call, and closed at the end.
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
                metrics_token,
                spans,
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
    metrics_token: str | None = None,
    spans: CallSpans | None = None,
    peers: Path | None = None,
) -> None:
    layers = SandboxSettings(allow_missing=settings.accept_missing_layers)
    sandbox = await Sandbox.start(layers)
    try:
        catalog = Catalog(paths, sandbox, settings.loaded_bundles, trusted)
        served = {name: _mount(server, settings) for name, server in (mounts or {}).items()}
        host = Host(catalog, settings, sandbox, control_token, served, metrics_token, spans)
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
                tasks.start_soon(host.watch.measure_lag)
                app = application(host, control_token)
                with among(host, app, control_token, metrics_token, peers) as (served_app, also):
                    await serve(
                        served_app,
                        settings.host,
                        settings.port,
                        ready,
                        shutdown=stop,
                        drain_s=settings.drain_s,
                        traffic=host.traffic,
                        shared=peers is not None,
                        also=also,
                    )
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(10):
                await host.aclose()
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(10):
            await sandbox.aclose()
        if spans is not None:
            with anyio.CancelScope(shield=True), anyio.move_on_after(10):
                await anyio.to_thread.run_sync(spans.close, abandon_on_cancel=True)


def application(host: Host, control_token: str) -> Application:
    """What the server runs: the router, with a recorder around it when there is a folder for it."""
    folder = host.settings.record
    if folder is None:
        return host.router
    return Recorder(host.router, folder, host.episodes, token_hash(control_token))


@contextmanager
def among(
    host: Host,
    app: Application,
    control_token: str,
    metrics_token: str | None,
    folder: Path | None,
) -> Iterator[tuple[Application, list[socket.socket]]]:
    """The application among its peers, and the socket at which they reach it; alone as it is."""
    if folder is None:
        yield app, []
        return
    settings = host.settings
    sharded = Sharded(
        app,
        settings,
        host.security,
        (token_hash(control_token), token_hash(metrics_token or control_token)),
        [Peer(socket_path(folder, shard)) for shard in range(settings.processes)],
        host.health,
    )
    try:
        with listening(socket_path(folder, settings.shard)) as sock:
            yield sharded, [sock]
    finally:
        sharded.close()


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


async def stop_at_eof(stop: anyio.Event) -> None:
    """Set `stop` when whoever started this process has closed its end of standard input."""
    await anyio.wait_readable(sys.stdin.fileno())
    while os.read(sys.stdin.fileno(), 4096):
        await anyio.wait_readable(sys.stdin.fileno())
    stop.set()
