"""What a call costs a client, and what it costs a world without any network; its own process.

Clients are measured by the CPU of this process per call, one call after the other and several at a
time. One JSON line in, one out. Run by `children`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import orjson

from astra_clients.bench.children import rss_bytes
from astra_clients.bench.world import TOOL
from astra_mcp.errors import BenchError

if TYPE_CHECKING:
    from astra_mcp.world import BundleWorld

Json = Any
Call = Callable[[int, int], Awaitable[int]]


async def thin(order: Json) -> dict[str, Json]:
    """`astra_clients.McpClient`: several clients on one pool."""
    from astra_clients.exchange import new_pool
    from astra_clients.mcp_client import McpClient

    def caller(client: McpClient) -> Call:
        async def call(a: int, b: int) -> int:
            response = await client.call_tool(TOOL, {"a": a, "b": b})
            return int((response.structured or {})["sum"])

        return call

    async with new_pool() as pool:
        return await _cost([caller(McpClient(pool, url)) for url in order["urls"]], order["calls"])


async def sdk(order: Json) -> dict[str, Json]:
    """`mcp.client.Client`: as many clients."""
    from contextlib import AsyncExitStack

    from mcp.client import Client

    def caller(client: Client) -> Call:
        async def call(a: int, b: int) -> int:
            result = await client.call_tool(TOOL, {"a": a, "b": b})
            return int((result.structured_content or {})["sum"])

        return call

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(url)) for url in order["urls"]]
        return await _cost([caller(client) for client in clients], order["calls"])


async def _cost(callers: Sequence[Call], calls: int) -> dict[str, Json]:
    """CPU microseconds per call, alone and all at once."""
    await _spin(callers[0], max(1, calls // 10))
    before = time.process_time()
    await _spin(callers[0], calls)
    alone = time.process_time() - before
    each = max(1, calls // len(callers))
    before = time.process_time()
    async with anyio.create_task_group() as tasks:
        for caller in callers:
            tasks.start_soon(_spin, caller, each)
    together = time.process_time() - before
    return {
        "cpu_us_alone": alone / calls * 1e6,
        "cpu_us_together": together / (each * len(callers)) * 1e6,
        "together": len(callers),
    }


async def _spin(call: Call, times: int) -> None:
    for n in range(times):
        if await call(n, 11) != n + 11:
            raise BenchError("A client got a wrong sum.", "Run the benchmark again.")


async def world(order: Json) -> dict[str, Json]:
    """`Environment.call` of the bundle in the sandbox, inside this process."""
    from astra_mcp.sandbox import Sandbox, SandboxSettings
    from astra_mcp.store import load_bundle
    from astra_mcp.world import BundleWorld

    sandbox = await Sandbox.start(SandboxSettings())
    try:
        opened = BundleWorld.from_bundle(load_bundle(Path(order["bundle"])), sandbox)
        environment = await opened.open()
        taken: list[float] = []
        for n in range(order["calls"] + order["calls"] // 10):
            began = time.perf_counter()
            outcome = await environment.call(TOOL, {"a": n, "b": 11})
            taken.append(time.perf_counter() - began)
            if outcome.failure is not None or outcome.result != {"sum": n + 11}:
                raise BenchError("The world gave a wrong sum.", "Run the benchmark again.")
        await environment.aclose()
        worker_bytes = await _idle_worlds(opened, order["idle"])
        await opened.aclose()
    finally:
        await sandbox.aclose()
    ranked = sorted(taken[order["calls"] // 10 :])
    return {
        "round_trip_p50_us": ranked[len(ranked) // 2] * 1e6,
        "round_trip_p99_us": ranked[len(ranked) * 99 // 100] * 1e6,
        "idle_bytes_per_world": worker_bytes,
    }


async def _idle_worlds(opened: BundleWorld, count: int) -> float:
    """Memory of this process that one more idle worker with its environment takes."""
    first = max(1, count // 10)
    kept = [await opened.open() for _ in range(first)]
    before = rss_bytes(os.getpid())
    kept += [await opened.open() for _ in range(count - first)]
    used = rss_bytes(os.getpid()) - before
    for environment in kept:
        await environment.aclose()
    return used / (count - first)


def main() -> None:
    """Carry out orders until standard input closes."""
    probes = {"thin": thin, "sdk": sdk, "world": world}
    for line in iter(sys.stdin.readline, ""):
        order = orjson.loads(line)
        result = anyio.run(probes[order["op"]], order, backend_options={"use_uvloop": True})
        sys.stdout.write(orjson.dumps(result).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
