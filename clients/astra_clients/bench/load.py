"""The load generator, a process of its own: closed-loop connections that send ready-made bytes.

One JSON line in, JSON lines out: an order, then `{"warm": true}` once the load has run for a while,
then after a line `go` the measured result. The load goes on while it waits for `go`, so that the
asker can read the servers' CPU clocks in between. Each answer's status and sum are checked.

Run by `children`; not meant for other use.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

import orjson
import uvloop

from astra_clients.bench.wires import is_whole, status_of
from astra_clients.bench.world import Shot, shots

Json = Any
_PATIENCE_S: Final = 30.0


@dataclass(slots=True)
class _Tally:
    """What the connections have seen since the window began."""

    latencies: list[float] = field(default_factory=list)
    wrong: int = 0
    example: str = ""
    stop: bool = False
    busy: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def clear(self) -> None:
        self.latencies.clear()

    def one_less(self) -> None:
        self.busy -= 1
        if self.busy <= 0:
            self.idle.set()

    def refuse(self, data: bytes) -> None:
        self.wrong += 1
        if not self.example:
            self.example = data[-400:].decode("latin-1")


class _Caller(asyncio.Protocol):
    """One connection that sends its next request as soon as it has an answer."""

    def __init__(self, plan: list[Shot], tally: _Tally) -> None:
        self._plan = plan
        self._tally = tally
        self._at = -1
        self._sent = 0.0
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def next(self) -> None:
        self._at = (self._at + 1) % len(self._plan)
        self._sent = time.perf_counter()
        assert self._transport is not None
        self._transport.write(self._plan[self._at].request)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        if not is_whole(data):
            self._rest = data
            return
        self._rest = b""
        tally = self._tally
        tally.latencies.append(time.perf_counter() - self._sent)
        if status_of(data) != 200 or self._plan[self._at].digits not in data:
            tally.refuse(data)
        if tally.stop:
            tally.one_less()
        else:
            self.next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._tally.stop:
            self._tally.refuse(b"the server closed a connection")
            self._tally.one_less()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One measured window.

    Attributes:
        calls: Answers in the window, with those under way at its end.
        calls_per_s: Answers per second of the window.
        p50_us, p99_us: Latency as a client sees it, in microseconds.
        wrong: Answers with a wrong status or result, since the connections opened.
        example: The end of the first of them.
        own_cpu_us: CPU of the generator itself per call.
    """

    calls: int
    calls_per_s: float
    p50_us: float
    p99_us: float
    wrong: int
    example: str
    own_cpu_us: float


async def _measure(order: Json) -> None:
    loop = asyncio.get_running_loop()
    host, port = order["host"], order["port"]
    tally = _Tally()
    callers = []
    for door in order["doors"]:
        plan = shots(f"{host}:{port}", door["path"], door["session"])
        _, caller = await loop.create_connection(
            lambda plan=plan: _Caller(plan, tally),  # type: ignore[misc]
            host,
            port,
        )
        callers.append(caller)
    tally.busy = len(callers)
    for caller in callers:
        caller.next()
    await asyncio.sleep(order["warm_s"])
    _say({"warm": True})
    await loop.run_in_executor(None, sys.stdin.readline)
    tally.clear()
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(order["run_s"])
    in_time, seconds = len(tally.latencies), time.perf_counter() - began
    tally.stop = True
    async with asyncio.timeout(_PATIENCE_S):
        await tally.idle.wait()
    cpu = time.process_time() - cpu
    for caller in callers:
        caller.close()
    _say(asdict(_summary(tally, in_time, seconds, cpu)))


def _summary(tally: _Tally, in_time: int, seconds: float, cpu: float) -> LoadResult:
    ranked = sorted(tally.latencies) or [0.0]
    return LoadResult(
        calls=len(tally.latencies),
        calls_per_s=in_time / seconds,
        p50_us=ranked[len(ranked) // 2] * 1e6,
        p99_us=ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)] * 1e6,
        wrong=tally.wrong,
        example=tally.example,
        own_cpu_us=cpu / max(1, len(tally.latencies)) * 1e6,
    )


def _say(value: Json) -> None:
    sys.stdout.write(orjson.dumps(value).decode() + "\n")
    sys.stdout.flush()


def main() -> None:
    """Carry out orders until standard input closes."""
    for line in iter(sys.stdin.readline, ""):
        uvloop.run(_measure(orjson.loads(line)))


if __name__ == "__main__":
    main()
