"""A snapshot for a person: a table for a terminal, plain lines for a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from astra_clients.top.snapshot import Busy, Snapshot

NONE: Final = "-"
#: From so many columns on, all sections stand in one row.
WIDE: Final = 100


def layout(
    seen: Snapshot, origin: str, note: str = "", width: int = 100, height: int = 40
) -> RenderableType:
    """The screen: a headline, the sections side by side, what has ended, the busiest bundles.

    Args:
        note: What is wrong, if anything; it stands in the headline.
        width, height: Columns and lines that there are.
    """
    head = Text.assemble(
        ("astra top ", "bold"),
        origin,
        f"  {seen.version}  up {_time(seen.uptime_s)}  {_processes(seen)}",
        no_wrap=True,
        overflow="ellipsis",
    )
    head.append(note or f"last {seen.seconds:.1f} s", "bold red" if note else "dim")
    across = 4 if width >= WIDE else 2
    sections = list(_sections(seen).items())
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in range(across):
        grid.add_column(ratio=1)
    tallies = [_tally(name, rows) for name, rows in _tallies(seen).items()]
    used = 3 + len(tallies)  # and the headline, the bundles' own head and the last line
    for first in range(0, len(sections), across):
        beside = sections[first : first + across]
        grid.add_row(*(_section(name, rows) for name, rows in beside))
        used += 1 + max(len(rows) for _, rows in beside)
    quits = Text("q quits", "dim")
    return Group(head, grid, *tallies, _bundles(seen, max(1, height - used)), quits)


def _sections(seen: Snapshot) -> dict[str, dict[str, str]]:
    now, slow = seen.now, seen.admission_wait_p99_ms
    return {
        "calls": {
            "calls/s": _rate(seen.calls_s),
            "errors/s": _rate(seen.errors_s),
            "p50": _latency(seen.p50_ms),
            "p99": _latency(seen.p99_ms),
            "in flight": _count(now, "calls_in_flight"),
            "control/s": _rate(seen.operations_s),
        },
        "episodes": {
            "open": f"{_count(now, 'episodes_open')} of {_count(now, 'admission_slots')}",
            "opened/s": _rate(seen.opened_s),
            "waiting": _count(now, "admission_waiting"),
            "wait p99": _latency(slow),
            "refused/s": _rate(seen.refused_s),
            "sessions+plays": f"{_count(now, 'sessions_open')}+{_count(now, 'plays_open')}",
        },
        "host": {
            "cpu": f"{seen.cpu:.2f} cores",
            "rss": _bytes(seen.rss_bytes),
            "tree memory": _bytes(seen.tree_pss_bytes),
            "tree rss": _bytes(seen.tree_rss_bytes),
            "workers": _count(now, "sandbox_workers"),
            "templates": _count(now, "sandbox_templates"),
            "fds": f"{_or_none(seen.open_fds)} of {_or_none(seen.max_fds)}",
        },
        "http": {
            "connections": _count(now, "http_connections"),
            "2xx/s": _rate(seen.http_s.get("2xx", 0.0)),
            "4xx/s": _rate(seen.http_s.get("4xx", 0.0)),
            "5xx/s": _rate(seen.http_s.get("5xx", 0.0)),
            "loop lag p99": _latency(seen.lag_p99_ms),
            "bundles loaded": _count(now, "bundles_loaded"),
        },
    }


def _tallies(seen: Snapshot) -> dict[str, dict[str, str]]:
    """What has as many entries as there are kinds of it."""
    return {
        "errors/s": {key: _rate(value) for key, value in sorted(seen.errors.items())},
        "ended": {key: str(value) for key, value in seen.ended.items()},
        "null rewards": {key: str(value) for key, value in seen.null_rewards.items()},
    }


def _section(name: str, rows: Mapping[str, str]) -> Table:
    table = Table(box=None, expand=True, show_header=True, header_style="bold", padding=0)
    table.add_column(name, style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for key, value in rows.items():
        table.add_row(key, value)
    return table


def _tally(name: str, rows: Mapping[str, str]) -> Text:
    line = Text(f"{name:<14}", "bold", no_wrap=True, overflow="ellipsis")
    for key, value in rows.items():
        line.append(f"{key} ", "dim").append(f"{value}  ", "none")
    return line


def _bundles(seen: Snapshot, rows: int) -> Table:
    table = Table(expand=True, box=None, header_style="bold")
    table.add_column("busiest bundles", ratio=1, no_wrap=True)
    for name in ("calls/s", "errors/s", "p50", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in seen.busiest[:rows]:
        table.add_row(*map(Text, _busy(one)))
    return table


def _busy(one: Busy) -> tuple[str, str, str, str, str]:
    return (
        one.bundle,
        _rate(one.calls_s),
        _rate(one.errors_s),
        _latency(one.p50_ms),
        _latency(one.p99_ms),
    )


def text(seen: Snapshot, origin: str) -> str:
    """One snapshot as plain text, a name and a value a line."""
    about = f"up {_time(seen.uptime_s)}  {_processes(seen)}last {seen.seconds:.1f} s"
    lines = [f"{origin}  {seen.version}  {about}"]
    for name, rows in (_sections(seen) | _tallies(seen)).items():
        lines += ["", name, *(f"  {key:<20} {value}" for key, value in rows.items())]
    lines += ["", f"{'busiest bundles':<42}{'calls/s':>9}{'errors/s':>10}{'p50':>10}{'p99':>10}"]
    for one in seen.busiest:
        name, calls, failed, half, most = _busy(one)
        lines.append(f"  {name:<40}{calls:>9}{failed:>10}{half:>10}{most:>10}")
    return "\n".join(lines)


HEAD: Final = (
    f"{'calls/s':>9}{'errors/s':>9}{'p50':>9}{'p99':>9}{'episodes':>9}{'workers':>8}"
    f"{'waiting':>8}{'rss':>9}{'tree':>9}{'lag p99':>9}  busiest"
)


def line(seen: Snapshot) -> str:
    """One snapshot as one line under `HEAD`."""
    busiest = seen.busiest[0].bundle if seen.busiest else NONE
    return (
        f"{_rate(seen.calls_s):>9}{_rate(seen.errors_s):>9}{_latency(seen.p50_ms):>9}"
        f"{_latency(seen.p99_ms):>9}{_count(seen.now, 'episodes_open'):>9}"
        f"{_count(seen.now, 'sandbox_workers'):>8}{_count(seen.now, 'admission_waiting'):>8}"
        f"{_bytes(seen.rss_bytes):>9}{_bytes(seen.tree_pss_bytes):>9}"
        f"{_latency(seen.lag_p99_ms):>9}  {busiest}"
    )


def _processes(seen: Snapshot) -> str:
    if seen.processes == 1:
        return ""
    return f"{seen.processes_up} of {seen.processes} processes  "


def _count(now: Mapping[str, int], name: str) -> str:
    return _or_none(now.get(name))


def _or_none(value: int | None) -> str:
    return NONE if value is None else str(value)


def _rate(value: float) -> str:
    return "0" if value == 0 else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _latency(ms: float | None) -> str:
    if ms is None:
        return NONE
    return f"{ms:.2f} ms" if ms < 10 else f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _bytes(value: int | None) -> str:
    if value is None:
        return NONE
    mb = value / (1 << 20)
    return f"{mb:.0f} MB" if mb < 10_000 else f"{mb / 1024:.1f} GB"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
