"""The same call gives the same bytes, whatever the host's environment, history or process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

from astra_mcp.sandbox import Sandbox
from tests.sandbox.helpers import NOW, STATE, load

ROOT = Path(__file__).parents[2]
SOURCES = """
import calendar, datetime, decimal, hashlib, random, secrets, statistics, time, uuid, zoneinfo
def t(state):
    stamp = time.time()
    local = datetime.datetime.now(zoneinfo.ZoneInfo("Asia/Tokyo"))
    names = {"red", "green", "blue", "white", "black", "grey"}
    return {
        "set": list(names), "hash": hash("text") % 1000, "order": [k for k in state["items"]],
        "clock": [stamp, time.monotonic(), time.perf_counter_ns() % 10**6, time.strftime("%c")],
        "local": [local.isoformat(), time.localtime().tm_hour, datetime.date.today().isoformat()],
        "today": datetime.datetime.today().isoformat(), "utc": str(datetime.datetime.utcnow()),
        "random": [random.random(), random.randint(1, 99), random.choice("abcdef")],
        "shuffle": random.sample(range(20), 5), "gauss": random.gauss(0, 1),
        "own": [random.Random().random(), random.Random(7).random(), random.Random("x").random()],
        "uuid": [str(uuid.uuid1()), str(uuid.uuid4()), str(uuid.uuid5(uuid.NAMESPACE_DNS, "a"))],
        "secrets": [secrets.token_hex(4), secrets.randbelow(100), secrets.choice("abc")],
        "normal": statistics.NormalDist(0, 1).samples(2), "pi": str(decimal.Decimal(1) / 7),
        "digest": hashlib.sha256(b"a").hexdigest()[:8], "leap": calendar.isleap(2024),
        "late": datetime.datetime.strptime("2024-02-29", "%Y-%m-%d").strftime("%A %d %B %Y"),
        "slept": [time.sleep(3600), round(time.time() - stamp)],
    }
"""
SCRIPT = """
import asyncio, sys
import orjson
from astra_mcp.sandbox import Sandbox
from tests.sandbox.helpers import STATE, load
from tests.sandbox.test_determinism import SOURCES
async def main():
    sandbox = await Sandbox.start()
    worker = await (await load(sandbox, SOURCES, {"t": "read"}, call_seconds=2.0)).worker(STATE)
    for seed in (b"1", b"2"):
        reply = await worker.call("t", {}, seed)
        sys.stdout.buffer.write(orjson.dumps(reply.result) + b"\\n")
    await sandbox.aclose()
asyncio.run(main())
"""


def _elsewhere(tmp_path: Path, **variables: str) -> bytes:
    """The two results as a fresh host in another environment sees them."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout


async def _here(sandbox: Sandbox, seed: bytes, warm_up: int = 0) -> Any:
    template = await load(sandbox, SOURCES, {"t": "read"}, call_seconds=2.0)
    worker = await template.worker(STATE)
    for n in range(warm_up):
        await worker.call("t", {}, f"other {n}".encode())
    reply = await worker.call("t", {}, seed)
    assert reply.failure is None
    return reply.result


async def test_fresh_hosts_in_other_environments_see_identical_bytes(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    one = _elsewhere(tmp_path, TZ="Asia/Kathmandu", PYTHONHASHSEED="1", LC_ALL="C")
    two = _elsewhere(tmp_path, TZ="America/Lima", PYTHONHASHSEED="2", LANG="de_DE.UTF-8")
    assert one == two
    first, second = one.splitlines()
    assert first != second
    assert orjson.dumps(await _here(sandbox, b"1")) == first


async def test_earlier_calls_leave_no_trace(sandbox: Sandbox) -> None:
    assert await _here(sandbox, b"1") == await _here(sandbox, b"1", warm_up=3)


async def test_the_clock_says_now_and_moves_only_when_it_is_read(sandbox: Sandbox) -> None:
    result = await _here(sandbox, b"1")
    assert result["clock"][0] == NOW + 1e-6
    assert result["clock"][1] > result["clock"][0]
    assert result["slept"] == [None, 3600]
    assert result["local"][0].startswith("2025-03-12T19:00:00.0000")
    assert result["today"].startswith("2025-03-12T10:00:00.0000")


async def test_the_seed_decides_all_randomness(sandbox: Sandbox) -> None:
    one, two = await _here(sandbox, b"1"), await _here(sandbox, b"2")
    for key in ("random", "shuffle", "gauss", "secrets", "normal"):
        assert one[key] != two[key]
    assert one["uuid"][1] != two["uuid"][1]
    assert one["own"][0] != two["own"][0]
    assert one["own"][1:] == two["own"][1:]
    assert one["uuid"][2] == two["uuid"][2]
