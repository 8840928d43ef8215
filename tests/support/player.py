"""A well-behaved client in a process of its own: plays episodes and times every call.

`python -m tests.support.player CONTROL_URL TOKEN`. Each line on standard input, `COUNT NAME`,
begins a phase and is repeated on standard output once COUNT calls were made in it. When the input
ends, one JSON object goes to standard output:
{"phases": {name: {"calls", "p50_ms", "p99_ms", "max_ms"}}, "wrong": [...]}.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import anyio
import anyio.to_thread
import orjson

from astra_clients.control import ControlClient, EpisodeRequest
from astra_clients.exchange import new_pool
from astra_clients.mcp_client import McpClient
from astra_mcp.errors import AstraError

TASK = "counter@1.0.0#t1"
PAUSE_S = 0.002
PER_EPISODE = 900


class Player:
    """Counts and times."""

    def __init__(self) -> None:
        self.phase = "start"
        self.done = False
        self.seconds: dict[str, list[float]] = {}
        self.wrong: list[str] = []

    async def listen(self) -> None:
        """Follow the phases."""
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            count, _, name = line.strip().partition(" ")
            self.phase, made = name, len(self.seconds.get(name, ()))
            while len(self.seconds.get(name, ())) < made + int(count) and not self.wrong:  # noqa: ASYNC110
                await anyio.sleep(PAUSE_S)
            print(line.strip(), flush=True)
        self.done = True

    async def play(self, url: str, token: str) -> None:
        """Episode after episode until the input ends."""
        async with new_pool() as pool:
            control = ControlClient(pool, url, token)
            while not self.done:
                opened = await control.open_episode(EpisodeRequest(task=TASK, max_calls=1000))
                await self.episode(McpClient(pool, opened.endpoint))
                await control.close_episode(opened.episode_id)

    async def episode(self, agent: McpClient) -> None:
        """Count to 100, then read; each answer has one right value."""
        for n in range(1, PER_EPISODE):
            if self.done:
                return
            tool = "increment" if n <= 100 else "read_counter"
            began = time.perf_counter()
            response = await agent.call_tool(tool, {})
            self.seconds.setdefault(self.phase, []).append(time.perf_counter() - began)
            if response.is_error or response.structured != {"value": min(n, 100)}:
                self.wrong.append(f"{self.phase}: call {n} gave {response.text[:200]}")
            await anyio.sleep(PAUSE_S)

    def summary(self) -> dict[str, Any]:
        """Times in milliseconds by phase."""
        return {"phases": {k: _times(v) for k, v in self.seconds.items()}, "wrong": self.wrong}


def _times(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {"calls": len(ordered), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)}


async def main(url: str, token: str) -> None:
    """Play, and say how it went."""
    player = Player()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(player.listen)
        try:
            await player.play(url, token)
        except AstraError as error:
            player.wrong.append(f"{player.phase}: {error}")
        tasks.cancel_scope.cancel()
    print(orjson.dumps(player.summary()).decode(), flush=True)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
