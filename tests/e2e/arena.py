"""A host that is attacked while a well-behaved client in another process plays on.

`arena` is one for a whole module of tests: host, player and attackers are three processes. At its
end the player must have had the right answer to every call, the host must have ended cleanly, and
its log must tell of nothing unforeseen. The player's times are shown and never judged.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.e2e.bad_tools import write_bundles
from tests.fuzz.wire import Exchange, exchange, judge
from tests.soak.processes import TOKEN, HostProcess

Json = Any
DATA = Path(__file__).parents[1] / "data"
PROGRAM = ("-m", "tests.support.impatient")
TAKES = "application/json, text/event-stream"
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    more: Sequence[tuple[str, str]] = (),
    sized: bool = True,
) -> bytes:
    """A request's bytes; `headers` replaces defaults, "" leaves one out, `more` adds lines."""
    lines = {"host": "localhost", "accept": TAKES, "content-type": "application/json"}
    if sized:
        lines["content-length"] = str(len(body))
    lines |= headers or {}
    pairs = [(k, v) for k, v in lines.items() if v] + list(more)
    head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def message(method: str, params: Json = None, id: Json = 1) -> bytes:
    """A JSON-RPC request's bytes."""
    found = {"jsonrpc": "2.0", "id": id, "method": method}
    return orjson.dumps(found if params is None else found | {"params": params})


def call(name: str, arguments: Json = None, id: Json = 1) -> bytes:
    """A tool call's bytes."""
    return message("tools/call", {"name": name, "arguments": arguments or {}}, id)


@dataclass
class Arena:
    """Host and player."""

    host: HostProcess
    player: subprocess.Popen[bytes]
    agent: str = ""
    token: str = ""
    episode_id: str = ""
    requests: int = field(default=0)

    def phase(self, name: str, calls: int = 0) -> None:
        """Begin a phase of the player, and wait until it has made so many calls in it."""
        assert self.player.stdin is not None
        assert self.player.stdout is not None
        line = f"{calls} {name}\n".encode()
        self.player.stdin.write(line)
        self.player.stdin.flush()
        said = self.player.stdout.readline()
        assert said == line, f"the well-behaved client failed: {said[:2000]!r}"

    async def send(self, *pieces: bytes, expected: int = 1, **options: Any) -> Exchange:
        """Send bytes; what comes back is no unforeseen error, and tells no path or token."""
        found = await exchange(self.host.port, pieces, expected, **options)
        assert judge(found, [TOKEN.encode(), self.token.encode()]) == []
        return found

    async def ask(self, path: str, body: bytes, **headers: str) -> tuple[int, Json]:
        """Status and JSON of one request."""
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        found = await self.send(request(path, body, lines))
        (response,) = found.responses
        return response.status, response.json() if response.body else None

    async def control(self, tool: str, arguments: Json) -> Json:
        """The result of a control operation."""
        body = call(tool, arguments)
        found = await exchange(
            self.host.port, [request("/control/mcp", body, {"authorization": f"Bearer {TOKEN}"})]
        )
        return found.responses[0].json().get("result")

    async def open(self, task: str) -> Json:
        """Open an episode for the attackers."""
        self.requests += 1
        arguments = {"task": task, "request_id": f"arena-{self.requests}", "max_calls": 1000}
        result = await self.control("open_episode", arguments)
        opened = result.get("structuredContent") or {}
        if "token" in opened:
            self.token, self.episode_id = opened["token"], opened["episode_id"]
            self.agent = f"/episodes/{self.token}/mcp"
        return result


@contextmanager
def arena_in(folder: Path) -> Iterator[tuple[Arena, list[str], list[str]]]:
    """An arena; after it what turned out wrong, and lines of a table of the player's times."""
    bundles = folder / "bundles"
    bundles.mkdir()
    write_bundles(bundles)
    options = ["--idle-s", "60", "--max-episodes", "50"]
    host = HostProcess(folder, [bundles, DATA / "counter.json"], options, PROGRAM)
    host.start()
    command = [sys.executable, "-m", "tests.support.player", f"{host.url}/control/mcp", TOKEN]
    player = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    wrong: list[str] = []
    table: list[str] = []
    try:
        yield Arena(host, player), wrong, table
        out, _ = player.communicate(timeout=30)
        summary = orjson.loads(out.splitlines()[-1])
        wrong += summary["wrong"]
        table += _table(summary["phases"])
        if (code := host.stop()) != 0:
            wrong.append(f"the host ended with {code}")
    finally:
        player.kill()
        player.wait()
        if host.process is not None and host.process.poll() is None:
            host.kill()


def _table(phases: Mapping[str, Mapping[str, float]]) -> list[str]:
    before = phases["before"]["p99_ms"]
    rows = ["", f"{'well-behaved calls during':44}  calls  p50 ms  p99 ms  x before"]
    for name, times in phases.items():
        took = f"{times['p50_ms']:7.2f} {times['p99_ms']:7.2f} {times['p99_ms'] / before:9.2f}"
        rows.append(f"{name[:44]:44} {times['calls']:6} {took}")
    return rows
