"""One run of `astra bench host` from start to end.

The servers are measured in turn, round after round, so that a machine that gets slower for a while
slows all of them; every figure is the median over the rounds. Nothing here is in the measured path:
load, episodes and clients are processes of their own.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from astra_clients.bench.children import Child, Served, child, cpu_s, rss_bytes, serving, tree
from astra_clients.bench.effort import Effort
from astra_clients.bench.results import (
    BASE,
    LEGACY,
    ROWS,
    SERVERS,
    ClientCosts,
    EpisodeCosts,
    HostResults,
    LoadRow,
    ScaleCosts,
    WorldCosts,
    machine,
)
from astra_clients.bench.wires import connect, header_of
from astra_clients.bench.world import (
    BUNDLE_ID,
    CALL_HEADERS,
    TASK,
    TOOL,
    bundle_json,
    call_body,
    hello,
    post,
    ready,
)
from astra_mcp.errors import BenchError

Json = Any
Say = Callable[[str], None]
_SERVERS_MODULE: Final = "astra_servers.bench_servers"
_TOGETHER: Final = 8
_PATIENCE_S: Final = 120.0


async def measure(effort: Effort, say: Say) -> HostResults:
    """Measure everything.

    Args:
        effort: How much.
        say: Told what is being measured.

    Raises:
        BenchError: a server did not start, ended, or gave one wrong answer.
    """
    began = time.monotonic()
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="astra-bench-") as name:
        folder = Path(name)
        bundle = folder / f"{BUNDLE_ID}.json"
        bundle.write_bytes(orjson.dumps(bundle_json()))
        async with _servers(folder, bundle, say) as servers:
            load = await _load(servers, effort, folder, say)
            say("episodes: open, five calls, grade")
            episodes = await _episodes(servers["sandboxed"], effort, folder)
            say("clients: thin and SDK")
            clients = await _clients(servers["trusted"], effort, folder)
        say("world: one call in the sandbox, without network")
        world = await _world(bundle, effort, folder)
        scale = await _scale(bundle, effort, folder, say)
    return HostResults(
        mode=effort.name,
        machine=facts,
        load=load,
        episodes=episodes,
        clients=clients,
        world=world,
        scale=scale,
        seconds=round(time.monotonic() - began, 1),
    )


@asynccontextmanager
async def _servers(folder: Path, bundle: Path, say: Say) -> AsyncIterator[dict[str, Served]]:
    commands = {
        "fastmcp": [_SERVERS_MODULE, "fastmcp", "{ready}"],
        "sdk_lowlevel": [_SERVERS_MODULE, "sdk", "{ready}"],
        "trusted": [_SERVERS_MODULE, "trusted", "{ready}", str(bundle)],
        "sandboxed": _serve(bundle),
    }
    async with AsyncExitStack() as stack:
        servers: dict[str, Served] = {}
        for name in SERVERS:
            say(f"starting {name}")
            started = serving(commands[name], folder, name)
            servers[name] = await stack.enter_async_context(started)
        yield servers


def _serve(*arguments: Path | str) -> list[str]:
    """`astra serve` as a child of ours."""
    own = ["--unaudited", "--ready-file", "{ready}", "--until-stdin-closes"]
    return ["astra_mcp.cli", "serve", *map(str, arguments), *own]


# ---- calls per second -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Door:
    """Where one connection calls: a path, and a session of the 2025 era or ""."""

    path: str
    session: str = ""


async def _load(
    servers: Mapping[str, Served], effort: Effort, folder: Path, say: Say
) -> list[LoadRow]:
    most = max(effort.concurrencies)
    doors = {name: [Door(path) for path in await _paths(servers[name], most)] for name in SERVERS}
    for name in SERVERS:
        await _check(name, servers[name], doors[name])
    doors[LEGACY] = await _sessions(servers[BASE], most)
    seen: dict[tuple[str, int], list[dict[str, float]]] = {}
    async with child("astra_clients.bench.load", folder) as generator:
        for turn in range(effort.rounds):
            for concurrency in effort.concurrencies:
                say(f"calls: round {turn + 1} of {effort.rounds}, concurrency {concurrency}")
                for name in ROWS:
                    server = servers[BASE if name == LEGACY else name]
                    window = await _window(
                        generator, name, server, doors[name][:concurrency], effort
                    )
                    seen.setdefault((name, concurrency), []).append(window)
    return [_row(name, concurrency, seen) for concurrency in effort.concurrencies for name in ROWS]


async def _paths(server: Served, count: int) -> list[str]:
    """Where each of `count` connections calls: on this host every one has a world of its own."""
    if server.path:
        return [server.path] * count
    connection = await connect(server.host, server.port)
    try:
        found = []
        for _ in range(count):
            order = post(f"{server.host}:{server.port}", f"/play/{BUNDLE_ID}", b"", {})
            status, body = await connection.ask(order)
            if status != 200:
                raise BenchError(f"The host opened no world (status {status}).", body.decode())
            found.append(urlsplit(orjson.loads(body)["url"]).path)
        return found
    finally:
        connection.close()


async def _sessions(server: Served, count: int) -> list[Door]:
    """As many sessions of the 2025 era, opened as its clients do."""
    host = f"{server.host}:{server.port}"
    connection = await connect(server.host, server.port)
    try:
        found = []
        for _ in range(count):
            answer = await connection.exchange(hello(host, server.path))
            session = header_of(answer, "mcp-session-id")
            status, _ = await connection.ask(ready(host, server.path, session))
            if not session or status != 202:
                raise BenchError("FastMCP opened no session.", answer[:300].decode("latin-1"))
            found.append(Door(server.path, session))
        return found
    finally:
        connection.close()


async def _check(name: str, server: Served, doors: list[Door]) -> None:
    """A pass that is not timed: every endpoint gives exactly the right result."""
    connection = await connect(server.host, server.port)
    try:
        for n, path in enumerate(dict.fromkeys(door.path for door in doors)):
            body = call_body(n, {"a": n, "b": -5})
            request = post(f"{server.host}:{server.port}", path, body, CALL_HEADERS)
            status, raw = await connection.ask(request)
            answer = orjson.loads(raw)
            result = answer.get("result") or {}
            right = result.get("structuredContent") == {"sum": n - 5} and not result["isError"]
            if status != 200 or answer.get("id") != n or not right:
                raise BenchError(f"{name} answered {TOOL} wrongly.", raw[:300].decode("latin-1"))
    finally:
        connection.close()


async def _window(
    generator: Child, name: str, server: Served, doors: list[Door], effort: Effort
) -> dict[str, float]:
    order = {
        "host": server.host,
        "port": server.port,
        "doors": [asdict(door) for door in doors],
        "warm_s": effort.warm_s,
        "run_s": effort.run_s,
    }
    patience = effort.warm_s + effort.run_s + _PATIENCE_S
    await generator.ask(order, patience)
    pids = tree(server.pid)
    before = cpu_s(pids)
    window = await generator.ask("go", patience)
    used = cpu_s(pids) - before
    if window["wrong"] or not window["calls"]:
        raise BenchError(
            f"{name} gave {window['wrong']} wrong answers of {window['calls']}.",
            f"The first ended with: {window['example']}",
        )
    return window | {"cpu_us": used / window["calls"] * 1e6}


def _row(
    name: str, concurrency: int, seen: Mapping[tuple[str, int], list[dict[str, float]]]
) -> LoadRow:
    windows, base = seen[name, concurrency], seen[BASE, concurrency]

    def middle(key: str) -> float:
        return statistics.median(window[key] for window in windows)

    ratios = [
        own["calls_per_s"] / other["calls_per_s"] for own, other in zip(windows, base, strict=True)
    ]
    return LoadRow(
        server=name,
        concurrency=concurrency,
        calls_per_s=middle("calls_per_s"),
        ratio_to_fastmcp=statistics.median(ratios),
        cpu_us_per_call=middle("cpu_us"),
        p50_us=middle("p50_us"),
        p99_us=middle("p99_us"),
        calls=int(sum(window["calls"] for window in windows)),
        rounds=[window["calls_per_s"] for window in windows],
        generator_busy=middle("own_cpu_us") * middle("calls_per_s") / 1e6,
    )


# ---- the rest -------------------------------------------------------------------------------


def _of_control(server: Served) -> dict[str, Json]:
    return {"host": server.host, "port": server.port, "token": server.token}


async def _episodes(server: Served, effort: Effort, folder: Path) -> EpisodeCosts:
    order = _of_control(server) | {
        "op": "rate",
        "episodes": effort.episodes,
        "together": _TOGETHER,
    }
    async with child("astra_clients.bench.episodes", folder) as trainer:
        return EpisodeCosts(**await trainer.ask(order, _PATIENCE_S))


async def _clients(server: Served, effort: Effort, folder: Path) -> ClientCosts:
    urls = [server.url + path for path in await _paths(server, _TOGETHER)]
    found: dict[str, dict[str, Json]] = {}
    for op in ("thin", "sdk"):
        async with child("astra_clients.bench.probes", folder) as probe:
            order = {"op": op, "urls": urls, "calls": effort.client_calls}
            found[op] = await probe.ask(order, _PATIENCE_S)
    return ClientCosts(
        together=_TOGETHER,
        thin_cpu_us=found["thin"]["cpu_us_alone"],
        thin_cpu_us_together=found["thin"]["cpu_us_together"],
        sdk_cpu_us=found["sdk"]["cpu_us_alone"],
        sdk_cpu_us_together=found["sdk"]["cpu_us_together"],
    )


async def _world(bundle: Path, effort: Effort, folder: Path) -> WorldCosts:
    order = {
        "op": "world",
        "bundle": str(bundle),
        "calls": effort.world_calls,
        "idle": effort.idle_episodes,
    }
    async with child("astra_clients.bench.probes", folder) as probe:
        return WorldCosts(**await probe.ask(order, _PATIENCE_S))


async def _scale(bundle: Path, effort: Effort, folder: Path, say: Say) -> ScaleCosts:
    say(f"memory: {effort.idle_episodes} idle episodes")
    async with serving(_serve(bundle), folder, "idle") as server:
        one_start, one_rss = server.ready_s, rss_bytes(server.pid)
        per_episode = await _idle(server, effort, folder)
    say(f"start: {effort.bundles} bundles")
    many = folder / "many"
    many.mkdir()
    for n in range(effort.bundles):
        (many / f"{BUNDLE_ID}-{n}.json").write_bytes(orjson.dumps(bundle_json(f"{BUNDLE_ID}-{n}")))
    async with serving(_serve(many), folder, "many") as server:
        many_start, many_rss = server.ready_s, rss_bytes(server.pid)
        # One of them is opened, so that a host that registered nothing would be found out.
        task = TASK.replace(BUNDLE_ID, f"{BUNDLE_ID}-{effort.bundles - 1}")
        await _hold(server, 1, folder, task)
    return ScaleCosts(
        bundles=effort.bundles,
        start_s_one=one_start,
        start_s_many=many_start,
        rss_mb_one=one_rss / 2**20,
        rss_mb_many=many_rss / 2**20,
        idle_episodes=effort.idle_episodes,
        idle_bytes_per_episode=per_episode,
    )


async def _idle(server: Served, effort: Effort, folder: Path) -> float:
    """Memory of the host's own process that one more open episode takes.

    A tenth of the episodes are opened before, so that what is loaded once does not count.
    """
    first = max(1, effort.idle_episodes // 10)
    await _hold(server, first, folder, TASK)
    before = rss_bytes(server.pid)
    await _hold(server, effort.idle_episodes - first, folder, TASK)
    return (rss_bytes(server.pid) - before) / (effort.idle_episodes - first)


async def _hold(server: Served, count: int, folder: Path, task: str) -> None:
    order = _of_control(server) | {"op": "hold", "episodes": count, "task": task}
    async with child("astra_clients.bench.episodes", folder) as trainer:
        await trainer.ask(order, _PATIENCE_S)
