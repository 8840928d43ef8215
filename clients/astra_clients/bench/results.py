"""What a run measured: models, the JSON that a command prints, and tables for people and docs.

Pure but for `machine`, which reads what this machine is. A figure that misses what was asked is
shown beside it and is no error: only wrong answers are.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

Json = Any
BASE: Final = "fastmcp"
#: FastMCP again, spoken to as clients of the 2025 era do, which costs it more.
LEGACY: Final = "fastmcp_2025"
#: In the order of the tables.
SERVERS: Final = ("fastmcp", "sdk_lowlevel", "trusted", "sandboxed")
ROWS: Final = ("fastmcp", LEGACY, "sdk_lowlevel", "trusted", "sandboxed")
TITLES: Final = {
    "fastmcp": "FastMCP, defaults",
    LEGACY: "FastMCP, defaults, 2025 session",
    "sdk_lowlevel": "SDK, low-level server",
    "trusted": "this host, trusted tool",
    "sandboxed": "this host, sandboxed tool",
}
#: At which concurrency ratios are compared.
REFERENCE: Final = 16
_PACKAGES: Final = ("astra-mcp", "fastmcp", "mcp", "uvicorn", "uvloop", "aiohttp", "orjson")


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One server at one concurrency; medians over the rounds.

    Attributes:
        cpu_us_per_call: User and system CPU of the server's whole process tree.
        p50_us, p99_us: Latency at the client, in microseconds.
        calls: Answers that were measured and checked.
        rounds: calls_per_s of each round.
        generator_busy: Share of one core that the load generator used.
    """

    server: str
    concurrency: int
    calls_per_s: float
    ratio_to_fastmcp: float
    cpu_us_per_call: float
    p50_us: float
    p99_us: float
    calls: int
    rounds: list[float]
    generator_busy: float


@dataclass(frozen=True, slots=True)
class EpisodeCosts:
    """Open, five calls and a grade: several at a time per second; opening alone."""

    episodes_per_s: float
    open_p50_ms: float
    open_p99_ms: float


@dataclass(frozen=True, slots=True)
class ClientCosts:
    """CPU microseconds of a client per call, alone and `together` clients at once."""

    together: int
    thin_cpu_us: float
    thin_cpu_us_together: float
    sdk_cpu_us: float
    sdk_cpu_us_together: float


@dataclass(frozen=True, slots=True)
class WorldCosts:
    """`Environment.call` in the sandbox without network, and what an idle worker takes of the
    process that owns it."""

    round_trip_p50_us: float
    round_trip_p99_us: float
    idle_bytes_per_world: float


@dataclass(frozen=True, slots=True)
class ScaleCosts:
    """Start, memory, and memory of the host's process per idle episode."""

    bundles: int
    start_s_one: float
    start_s_many: float
    rss_mb_one: float
    rss_mb_many: float
    idle_episodes: int
    idle_bytes_per_episode: float


@dataclass(frozen=True, slots=True)
class Target:
    """A figure beside what was asked of it."""

    name: str
    asked: str
    measured: float
    met: bool


@dataclass(frozen=True, slots=True)
class HostResults:
    """All of one run."""

    mode: str
    machine: dict[str, Json]
    load: list[LoadRow]
    episodes: EpisodeCosts
    clients: ClientCosts
    world: WorldCosts
    scale: ScaleCosts
    seconds: float

    def row(self, server: str) -> LoadRow:
        """A server at the reference concurrency."""
        return next(r for r in self.load if r.server == server and r.concurrency == REFERENCE)

    def ratios(self) -> dict[str, float]:
        """Calls per second as a multiple of FastMCP's."""
        names = [name for name in SERVERS if name != BASE]
        return {name: round(self.row(name).ratio_to_fastmcp, 2) for name in names}

    def beyond_worker(self) -> float:
        """Bytes of the host that an idle episode takes beside its worker's line and environment."""
        return self.scale.idle_bytes_per_episode - self.world.idle_bytes_per_world

    def targets(self) -> list[Target]:
        """Every figure that has a target."""
        trusted, sandboxed, scale = self.row("trusted"), self.row("sandboxed"), self.scale
        return [
            _least("trusted tool, calls/s to FastMCP's", 20, trusted.ratio_to_fastmcp),
            _most("trusted tool, server CPU us per call", 110, trusted.cpu_us_per_call),
            _least("sandboxed tool, calls/s to FastMCP's", 6, sandboxed.ratio_to_fastmcp),
            _most("sandboxed round trip p50 in the host, us", 150, self.world.round_trip_p50_us),
            _most(f"start with {scale.bundles} bundles, s", 3, scale.start_s_many),
            _most("idle episode beyond its worker, bytes", 2048, self.beyond_worker()),
            _most("episode open p50, ms", 6, self.episodes.open_p50_ms),
            _most("thin client, CPU us per call", 200, self.clients.thin_cpu_us),
        ]

    def as_json(self) -> dict[str, Json]:
        """What `--json` prints."""
        return {
            "ratio_to_fastmcp": self.ratios(),
            **asdict(self),
            "targets": [asdict(target) for target in self.targets()],
        }


def _least(name: str, asked: float, measured: float) -> Target:
    return Target(name, f">= {asked:g}", measured, measured >= asked)


def _most(name: str, asked: float, measured: float) -> Target:
    return Target(name, f"<= {asked:g}", measured, measured <= asked)


def machine() -> dict[str, Json]:
    """What this machine and these versions are."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


# ---- tables ---------------------------------------------------------------------------------


def tables(results: HostResults) -> str:
    """The results as Markdown tables, for a terminal and for docs/benchmarks.md alike."""
    return "\n".join(_lines(results))


def _lines(results: HostResults) -> Iterator[str]:
    facts = results.machine
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    yield f"Machine: {facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']};"
    yield f"Python {facts['python']}, {versions}."
    yield f"Mode {results.mode}, {results.seconds:g} s; load before {facts['load_average_before']}."
    yield ""
    yield from _load_table(results)
    yield ""
    yield from _pairs(results)
    yield ""
    yield "| asked | | measured | |"
    yield "|---|---:|---:|---|"
    for target in results.targets():
        met = "met" if target.met else "missed"
        yield f"| {target.name} | {target.asked} | {_number(target.measured)} | {met} |"


def _load_table(results: HostResults) -> Iterator[str]:
    yield "| server | connections | calls/s | to FastMCP | CPU us/call | p50 us | p99 us |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for row in results.load:
        yield (
            f"| {TITLES[row.server]} | {row.concurrency} | {row.calls_per_s:,.0f} "
            f"| {row.ratio_to_fastmcp:.1f} | {row.cpu_us_per_call:,.0f} "
            f"| {row.p50_us:,.0f} | {row.p99_us:,.0f} |"
        )


def _pairs(results: HostResults) -> Iterator[str]:
    episodes, clients, world, scale = (
        results.episodes,
        results.clients,
        results.world,
        results.scale,
    )
    many, idle = f"{scale.bundles:,} bundles", f"{scale.idle_episodes:,} open"
    busiest = max(row.generator_busy for row in results.load)
    yield "| | |"
    yield "|---|---:|"
    for name, value in (
        ("episodes per second: open, 5 calls, grade", f"{episodes.episodes_per_s:,.0f}"),
        ("episode open, p50 and p99", f"{episodes.open_p50_ms:.2f}, {episodes.open_p99_ms:.2f} ms"),
        ("sandboxed call inside the host, p50", f"{world.round_trip_p50_us:.0f} us"),
        ("sandboxed call inside the host, p99", f"{world.round_trip_p99_us:.0f} us"),
        ("start with one bundle", f"{scale.start_s_one:.2f} s"),
        (f"start with {many}", f"{scale.start_s_many:.2f} s"),
        ("memory of the host with one bundle", f"{scale.rss_mb_one:.0f} MB"),
        (f"memory of the host with {many}", f"{scale.rss_mb_many:.0f} MB"),
        (f"memory of the host per idle episode, {idle}", f"{scale.idle_bytes_per_episode:,.0f} B"),
        ("of that, its worker's line and world", f"{world.idle_bytes_per_world:,.0f} B"),
        ("thin client, CPU per call", f"{clients.thin_cpu_us:.0f} us"),
        (f"thin client, {clients.together} at once", f"{clients.thin_cpu_us_together:.0f} us"),
        ("`mcp.client.Client`, CPU per call", f"{clients.sdk_cpu_us:,.0f} us"),
        (
            f"`mcp.client.Client`, {clients.together} at once",
            f"{clients.sdk_cpu_us_together:,.0f} us",
        ),
        ("load generator, most of one core", f"{busiest:.0%}"),
    ):
        yield f"| {name} | {value} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
