"""Whole graded episodes over MCP with a lean client, a process of its own.

One episode: `open_episode`, five calls on the agent's plane, `submit_answer`, as a trainer would do
it; the grade must be 1.0. One JSON line in, one out. Run by `children`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from typing import Any, Final, cast
from urllib.parse import urlsplit

import orjson
import uvloop

from astra_clients.bench.wires import Connection, connect
from astra_clients.bench.world import ANSWER, CALL_HEADERS, STEPS, TASK, TOOL, call_body, post
from astra_clients.wire import base_headers, modern_headers
from astra_mcp.errors import BenchError

Json = Any
_IDS: Final = itertools.count(1)


class Trainer:
    """One connection that opens, plays and submits."""

    def __init__(self, connection: Connection, host: str, token: str) -> None:
        self._connection = connection
        self._host = host
        self._token = token
        self.open_s: list[float] = []

    async def open(self, task: str = TASK) -> dict[str, Json]:
        """Open an episode and note how long it took."""
        number = next(_IDS)
        began = time.perf_counter()
        opened = await self._control("open_episode", task=task, request_id=f"o{number}")
        self.open_s.append(time.perf_counter() - began)
        return opened

    async def play(self) -> None:
        """One episode from start to grade."""
        opened = await self.open()
        path = urlsplit(opened["endpoint"]).path
        total = 0
        for n in range(1, STEPS + 1):
            answer = await self._ask(path, TOOL, {"a": total, "b": n}, CALL_HEADERS)
            total = answer["sum"]
        grade = await self.submit(opened["episode_id"], f"ANSWER: {total}")
        if total != ANSWER or grade["value"] != 1.0:
            raise BenchError("An episode that was played right has no full reward.", str(grade))

    async def submit(self, episode_id: str, answer: str) -> dict[str, Json]:
        """Grade an episode."""
        return await self._control(
            "submit_answer", episode_id=episode_id, answer=answer, request_id=f"s{next(_IDS)}"
        )

    async def _control(self, tool: str, **args: Json) -> dict[str, Json]:
        headers = base_headers(self._token) | modern_headers("tools/call", {"name": tool})
        return await self._ask("/control/mcp", tool, args, headers)

    async def _ask(
        self, path: str, tool: str, args: dict[str, Json], headers: dict[str, str]
    ) -> dict[str, Json]:
        body = call_body(next(_IDS), args, tool)
        status, raw = await self._connection.ask(post(self._host, path, body, headers))
        result = orjson.loads(raw).get("result") if status == 200 else None
        if not result or result["isError"]:
            raise BenchError(f"{tool} failed with status {status}.", raw[:300].decode("latin-1"))
        return cast("dict[str, Json]", result["structuredContent"])


async def _trainers(order: Json, count: int) -> list[Trainer]:
    host, port = order["host"], order["port"]
    return [
        Trainer(await connect(host, port), f"{host}:{port}", order["token"]) for _ in range(count)
    ]


async def _rate(order: Json) -> dict[str, Json]:
    """Episodes one by one for the latency, then several at a time for the rate."""
    count, together = order["episodes"], order["together"]
    alone = (await _trainers(order, 1))[0]
    for _ in range(max(1, count // 10)):
        await alone.play()
    alone.open_s.clear()
    for _ in range(count):
        await alone.play()
    several = await _trainers(order, together)

    async def play(trainer: Trainer) -> None:
        for _ in range(count // together):
            await trainer.play()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for trainer in several:
            tasks.create_task(play(trainer))
    taken = time.perf_counter() - began
    ranked = sorted(alone.open_s)
    return {
        "episodes_per_s": count // together * together / taken,
        "open_p50_ms": ranked[len(ranked) // 2] * 1e3,
        "open_p99_ms": ranked[len(ranked) * 99 // 100] * 1e3,
    }


async def _hold(order: Json) -> dict[str, Json]:
    """Open episodes and leave them open."""
    trainer = (await _trainers(order, 1))[0]
    for _ in range(order["episodes"]):
        await trainer.open(order.get("task", TASK))
    return {"opened": order["episodes"]}


def main() -> None:
    """Carry out orders until standard input closes."""
    for line in iter(sys.stdin.readline, ""):
        order = orjson.loads(line)
        what = _hold if order["op"] == "hold" else _rate
        sys.stdout.write(orjson.dumps(uvloop.run(what(order))).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
