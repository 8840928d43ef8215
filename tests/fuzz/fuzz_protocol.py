"""A fuzzer of the protocol front: bent requests against a live host in a process of its own.

`python -m tests.fuzz.fuzz_protocol --seconds 600 --seed 1` prints a summary as JSON and ends with 1
when a promise was broken: every request is answered or its connection closed in time, no answer is
an unforeseen error or tells a path or token, no log line has a traceback, and once all is quiet the
host's descriptors, memory, processes, tasks, streams, sessions and calls are as they were before.
A case is named by seed and number: `--only N` sends it again and shows what came back.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import copy
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from tests.fuzz.mutate import SESSION, Draft, bend, drafts
from tests.fuzz.wire import DEADLINE_S, Exchange, exchange, judge
from tests.soak.processes import TOKEN, HostProcess

Json = Any
DATA: Final = Path(__file__).parents[1] / "data"
PROGRAM: Final = ("-m", "tests.support.impatient")
TASK: Final = "counter@1.0.0#t1"
#: The host's leases are short, so that what is left behind ends by itself.
IDLE_S: Final = 2.0
WORKERS: Final = 32
#: What may be kept: caches fill, the allocator does not give everything back.
SPARE: Final = {"fds": 4, "processes": 0, "tasks": 2, "threads": 4, "rss_kib": 32 * 1024}
QUIET: Final = ("episodes", "sessions", "plays", "waiting", "streams", "calls")
CONTROL: Final[tuple[Json, ...]] = (
    {"name": "list_tasks", "arguments": {"limit": 2, "bundle": "counter"}},
    {"name": "open_episode", "arguments": {"task": TASK, "request_id": "fuzz", "seed": 1}},
    {"name": "post_message", "arguments": {"episode_id": "e", "text": "hi", "request_id": "f1"}},
    {"name": "submit_answer", "arguments": {"episode_id": "e", "answer": "1", "request_id": "f2"}},
    {"name": "get_episode", "arguments": {"episode_id": "e", "reveal": True}},
    {"name": "heartbeat", "arguments": {"episode_ids": ["e"]}},
    {"name": "close_episode", "arguments": {"episode_id": "e", "request_id": "fuzz-3"}},
)  # fmt: skip


@dataclass
class Case:
    """One connection: what is sent over it."""

    number: int
    pieces: list[bytes]
    expected: int
    heads: list[bool]
    half_close: bool
    secrets: list[bytes]


@dataclass
class Target:
    """An open episode that cases are sent to, and a session on /envs."""

    token: str = ""
    episode_id: str = ""
    session: str = ""
    born: float = 0.0


@dataclass
class Fuzz:
    """One run against one host."""

    host: HostProcess
    seed: int
    seconds: float
    problems: list[str] = field(default_factory=list)
    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    cases: int = 0
    slowest_s: float = 0.0
    rss_mib: list[int] = field(default_factory=list)
    target: Target = field(default_factory=Target)
    _drafts: list[Draft] = field(default_factory=lambda: drafts(CONTROL))

    # ---- making cases -----------------------------------------------------------------

    def case(self, number: int) -> Case:
        """The case of that number; the same one for the same seed and target."""
        rng = random.Random(f"{self.seed}:{number}")
        count = 1 if rng.random() < 0.85 else rng.randrange(2, 6)
        made = [self._draft(rng) for _ in range(count)]
        data = [draft.encode(rng) for draft in made]
        raw = b"".join(data)
        if rng.random() < 0.06:
            at = rng.randrange(len(raw))
            raw = raw[:at] + rng.randbytes(rng.randrange(1, 30)) + raw[at + rng.randrange(20) :]
        if rng.random() < 0.05:
            raw = raw[: rng.randrange(1, len(raw))]
        cuts = sorted(rng.randrange(len(raw)) for _ in range(rng.choice([0, 0, 0, 1, 3])))
        pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True) if a < b]
        heads = [draft.verb == b"HEAD" for draft in made]
        secrets = [TOKEN.encode(), self.target.token.encode()]
        return Case(number, pieces, count, heads, rng.random() < 0.15, secrets)

    def _draft(self, rng: random.Random) -> Draft:
        draft = copy.deepcopy(rng.choice(self._drafts))
        self._place(draft, rng)
        if rng.random() < 0.92:
            draft = bend(draft, rng)
        fields = {SESSION.encode(): self.target.session.encode()}
        draft.headers = [(name, fields.get(value, value)) for name, value in draft.headers]
        return draft

    def _place(self, draft: Draft, rng: random.Random) -> None:
        """Give a request an endpoint, a host, and what opens that endpoint."""
        token = self.target.token.encode()
        if draft.path == b"/control/mcp":
            draft.headers.append((b"authorization", b"Bearer " + TOKEN.encode()))
            draft.body = draft.body.replace(b'"e"', orjson.dumps(self.target.episode_id))
        else:
            place = rng.choice(["episode", "episode", "agent", "env", "control", "server"])
            draft.path = {
                "episode": b"/episodes/" + token + b"/mcp",
                "server": b"/episodes/" + token + b"/main/mcp",
                "agent": b"/agent/mcp",
                "env": b"/envs/counter/mcp",
                "control": b"/control/mcp",
            }[place]
            secret = {"agent": token, "control": TOKEN.encode()}.get(place)
            if secret is not None:
                draft.headers.append((b"authorization", b"Bearer " + secret))
        draft.headers.insert(0, (b"host", b"localhost"))

    # ---- sending them -----------------------------------------------------------------

    async def run(self) -> dict[str, Json]:
        """Warm up, fuzz, wait until it is quiet, compare."""
        await self._flood(0, 300, float("inf"))
        before = await self._quiet()
        started = time.monotonic()
        await self._flood(300, sys.maxsize, started + self.seconds)
        seconds = time.monotonic() - started
        after = await self._quiet()
        self._compare(before, after)
        self._read_log()
        return {
            "seed": self.seed,
            "cases": self.cases,
            "seconds": round(seconds, 1),
            "slowest_s": round(self.slowest_s, 3),
            "statuses": dict(self.statuses.most_common()),
            "rss_mib": self.rss_mib,
            "before": before,
            "after": after,
            "problems": self.problems[:50],
        }

    async def _flood(self, first: int, last: int, until: float) -> None:
        numbers = iter(range(first, last))
        stop = asyncio.Event()

        async def worker() -> None:
            for number in numbers:
                if time.monotonic() > until or stop.is_set() or len(self.problems) >= 50:
                    return
                try:
                    await self._one(number)
                except OSError as error:
                    self.problems.append(f"case {number}: the host cannot be reached: {error}")
                    stop.set()

        await self._renew()
        others = [asyncio.ensure_future(self._renew_for_ever())]
        others.append(asyncio.ensure_future(self._watch_memory()))
        try:
            await asyncio.gather(*(worker() for _ in range(WORKERS)))
        finally:
            for other in others:
                other.cancel()

    async def _one(self, number: int) -> None:
        case = self.case(number)
        began = time.monotonic()
        found = await self.send(case)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.cases += 1
        self.statuses.update(str(response.status) for response in found.responses)
        if not found.responses:
            self.statuses["closed"] += 1
        self.problems += [f"case {number}: {wrong}" for wrong in judge(found, case.secrets)]

    async def send(self, case: Case) -> Exchange:
        """Send a case and take what comes back."""
        try:
            return await exchange(
                self.host.port,
                case.pieces,
                case.expected,
                heads=case.heads,
                half_close=case.half_close,
                pause_s=0.01,
            )
        except ValueError as error:
            self.problems.append(f"case {case.number}: {error}")
            return Exchange(closed=True)

    # ---- what cases are sent to ---------------------------------------------------------

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(IDLE_S / 8)
            await self._renew()

    async def _renew(self) -> None:
        """A fresh episode and session; the old ones end with their leases."""
        params: Json = {"name": "open_episode", "arguments": {"task": TASK, "max_calls": 1000}}
        request_id = f"target-{self.seed}-{time.monotonic_ns()}"
        params["arguments"]["request_id"] = request_id
        opened = await self._ask("/control/mcp", "tools/call", params, TOKEN)
        content = opened["result"]["structuredContent"]
        info = {"name": "fuzz", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        response = await self._answer("/envs/counter/mcp", "initialize", hello)
        session = response.headers.get(b"mcp-session-id", b"").decode()
        self.target = Target(content["token"], content["episode_id"], session, time.monotonic())

    async def _ask(self, path: str, method: str, params: Json, token: str = "") -> Json:
        return (await self._answer(path, method, params, token)).json()

    async def _answer(self, path: str, method: str, params: Json, token: str = "") -> Any:
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n"
            f"authorization: Bearer {token or 'none'}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        found = await exchange(self.host.port, [head.encode() + body])
        if not found.responses:
            raise OSError("a good request was not answered")
        return found.responses[0]

    # ---- looking at the host ------------------------------------------------------------

    async def _watch_memory(self) -> None:
        while True:
            await asyncio.sleep(max(1.0, self.seconds / 20))
            self.rss_mib.append(self.host.resources()["rss_kib"] // 1024)

    async def _quiet(self) -> dict[str, int]:
        """What the host holds once every lease is over and every connection is gone."""
        until = time.monotonic() + 30 + 4 * IDLE_S
        while True:
            await asyncio.sleep(0.3)
            seen = await asyncio.to_thread(self._look)
            busy = {key: seen[key] for key in QUIET if seen[key]}
            if not busy and seen["connections"] <= 1:
                break
            if time.monotonic() > until:
                self.problems.append(f"the host does not become quiet: {busy}, {seen}")
                break
        await asyncio.sleep(0.5)
        return await asyncio.to_thread(self._look)

    def _look(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.host.url}/healthz", timeout=DEADLINE_S) as response:
            health: dict[str, Any] = orjson.loads(response.read())
        counts = {k: v for k, v in health.items() if type(v) is int}
        return counts | self.host.resources()

    def _compare(self, before: dict[str, int], after: dict[str, int]) -> None:
        for key, spare in SPARE.items():
            if after[key] > before[key] + spare:
                self.problems.append(f"{key}: {before[key]} before, {after[key]} after")

    def _read_log(self) -> None:
        self.problems += log_problems(self.host.folder / "stderr", [TOKEN, self.target.token])


def log_problems(path: Path, secrets: Sequence[str]) -> list[str]:
    """Lines of a host's log that tell of something unforeseen, or a secret."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        if any(secret in line for secret in secrets if secret):
            found.append("a log line holds a token")
        if "Traceback" in line or '"frames"' in line or '"level":"error"' in line:
            found.append(f"the log says: {line[:1500]}")
    return found[:20]


async def fuzz(seconds: float, seed: int, only: int | None = None) -> dict[str, Json]:
    """One run in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="astra-fuzz-") as folder:
        options = [
            "--idle-s", f"{IDLE_S:g}", "--keep-finished", "20", "--keep-journals", "50",
            "--max-episodes", "200", "--wait-s", "0.5",
        ]  # fmt: skip
        host = HostProcess(Path(folder), [DATA / "counter.json"], options, PROGRAM)
        host.start()
        try:
            run = Fuzz(host, seed, seconds)
            if only is not None:
                await run._renew()
                case = run.case(only)
                found = await run.send(case)
                return {
                    "sent": [repr(piece) for piece in case.pieces],
                    "got": [(r.status, repr(r.body[:3000])) for r in found.responses],
                    "problems": judge(found, case.secrets),
                }
            summary = await run.run()
            if (code := host.stop()) != 0:
                summary["problems"].append(f"the host ended with {code}")
            return summary
        finally:
            if host.process is not None and host.process.poll() is None:
                host.kill()


def main() -> None:
    """Fuzz and print the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="send this case alone and show what came back")
    given = parser.parse_args()
    summary = asyncio.run(fuzz(given.seconds, given.seed, given.only))
    print(orjson.dumps(summary, option=orjson.OPT_INDENT_2).decode())
    sys.exit(1 if summary["problems"] else 0)


if __name__ == "__main__":
    main()
