"""`astra bench`: what this host costs on this machine, beside what others cost on it."""

from __future__ import annotations

import sys

import anyio
import click
import orjson

from astra_mcp.cli.options import as_json
from astra_mcp.errors import UsageError


@click.group()
def bench() -> None:
    """Measure speed and memory on this machine."""


@bench.command()
@click.option("--quick", is_flag=True, help="A look in less than 45 s; else a few minutes.")
@click.option("--tiny", is_flag=True, hidden=True, help="The least that has the right shape.")
@as_json
def host(quick: bool, tiny: bool, as_json: bool) -> None:
    """FastMCP, the SDK's server and this host with a trivial tool, round robin, over loopback.

    Tables go to stdout as Markdown, or one JSON object with --json. Exit code 1 when a server
    answers wrongly; a slow one is no error.
    """
    if sys.platform != "linux":
        raise UsageError("This benchmark reads /proc, so it needs Linux.", "Run it there.")
    from astra_clients.bench.effort import FULL, QUICK, TINY
    from astra_clients.bench.results import tables
    from astra_clients.bench.run import measure

    effort = TINY if tiny else QUICK if quick else FULL
    results = anyio.run(measure, effort, _say)
    click.echo(orjson.dumps(results.as_json()).decode() if as_json else tables(results))


def _say(what: str) -> None:
    click.echo(what, err=True)
