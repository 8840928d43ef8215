"""A file of trajectories as one HTML page, or as a table on a terminal.

The page stands alone: styles and plots are inside, nothing is fetched, no script runs, every datum
is escaped, and it reads in light and dark. It shows numbers and names, never a conversation or an
answer, so that it may be shown where the records may not. The same records give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from astra_clients.output import read_records
from astra_clients.report.numbers import AgentRow, Summary, summarize
from astra_mcp.errors import UsageError

Json = Any
__all__ = [
    "Summary",
    "print_table",
    "print_tasks",
    "read_records",
    "render",
    "summarize",
    "summary_table",
    "tasks_table",
    "write_report",
]

#: Mid tones that can be told apart by most eyes and stand out on white and on black.
COLOURS: Final = (
    "#3f83c8", "#d9772b", "#2f9d72", "#b35a9f", "#9a8a2e", "#5f6fcf", "#c2504f", "#2f9aa8",
)  # fmt: skip


def write_report(records: Path, out: Path) -> Summary:
    """Read a JSONL file of records and write the page.

    Args:
        records: What a collection wrote.
        out: The HTML file; replaced as a whole when it exists.

    Raises:
        UsageError: there are no records.
    """
    summary = summarize(read_records(records))
    if not summary.episodes:
        raise UsageError(f"{records} holds no record.", "Run `astra collect` first.")
    page = render(summary, records.name)
    draft = out.with_name(f"{out.name}.{os.getpid()}.tmp")
    draft.write_text(page, encoding="utf-8")
    os.replace(draft, out)
    return summary


def render(summary: Summary, source: str) -> str:
    """The page as text."""
    from astra_clients.report import plots  # matplotlib is slow to import

    colours = {row.agent: COLOURS[i % len(COLOURS)] for i, row in enumerate(summary.agents)}
    environment = Environment(
        loader=PackageLoader("astra_clients.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(reward=reward_text, seconds=seconds_text, rate=rate_text)
    return environment.get_template("page.html.j2").render(
        summary=summary,
        source=source,
        colours=colours,
        rewards_plot=Markup(plots.rewards(summary, colours)),
        latency_plot=Markup(plots.latency(summary, colours)),
        plotted=min(len(summary.bundles), plots.MAX_BUNDLES),
    )


def summary_table(records: Iterable[Mapping[str, Json]], title: str | None = None) -> Table:
    """One line per agent, for a terminal."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("agent", overflow="fold", min_width=8)
    names = ("graded", "reward", "right", "recall", "prec.", "calls", "calls/s", "p50", "p99")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in summarize(records).agents:
        table.add_row(Text(row.agent), *_cells(row))
    return table


def print_table(records: Iterable[Mapping[str, Json]], title: str | None = None) -> None:
    """`summary_table` on standard output; where nobody reads a terminal, as wide as it needs."""
    _print(summary_table(records, title))


def tasks_table(records: Iterable[Mapping[str, Json]], title: str | None = None) -> Table:
    """One line per task, for a terminal: level, hops, each agent's reward, speed."""
    summary = summarize(records)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("task", overflow="fold", min_width=8)
    agents = [Text(row.agent) for row in summary.agents]
    names: list[str | Text] = ["level", "hops", *agents, "calls/s", "p50", "p99"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in summary.tasks:
        table.add_row(
            Text(f"{row.bundle}#{row.task}"),
            str(row.level),
            str(row.hops),
            *map(reward_text, row.rewards),
            rate_text(row.calls_per_s),
            seconds_text(row.p50_s),
            seconds_text(row.p99_s),
        )
    return table


def print_tasks(records: Iterable[Mapping[str, Json]], title: str | None = None) -> None:
    """`tasks_table` on standard output; see `print_table`."""
    _print(tasks_table(records, title))


def _print(table: Table) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(table)


def _cells(row: AgentRow) -> list[str]:
    graded = row.episodes - row.failures
    return [
        f"{graded}/{row.episodes}" if row.failures else str(graded),
        *map(reward_text, (row.reward, row.outcome, row.recall, row.precision)),
        f"{row.calls_per_episode:.1f}",
        rate_text(row.calls_per_s),
        seconds_text(row.p50_s),
        seconds_text(row.p99_s),
    ]


def reward_text(value: float | None) -> str:
    """A number between 0 and 1 with three digits, or a dash."""
    return "–" if value is None else f"{value:.3f}"


def rate_text(value: float | None) -> str:
    """A rate with as many digits as mean something."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def seconds_text(value: float | None) -> str:
    """A time in the unit that suits it."""
    if value is None:
        return "–"
    if value < 1:
        digits = 0 if value >= 0.01 else 1
        return f"{value * 1000:.{digits}f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"
