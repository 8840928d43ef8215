"""`astra top`: what a running host does, live."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import click
import orjson

from astra_mcp.cli.options import as_json
from astra_mcp.errors import UsageError
from astra_mcp.settings import CONTROL_TOKEN_ENV, METRICS_TOKEN_ENV


@click.command()
@click.argument("url")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"Holds the token; else ${METRICS_TOKEN_ENV} or ${CONTROL_TOKEN_ENV}.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="One snapshot of one interval as plain text.")
@as_json
def top(url: str, token_file: Path | None, interval: float, once: bool, as_json: bool) -> None:
    """Show what the host at URL does: calls, errors, latency, episodes, workers, memory, queue.

    On a terminal a table that lives, until q or Ctrl-C; else a line for each interval. --json
    prints one snapshot as one JSON object. URL may be any URL of the host; its path is not used.
    """
    token = _token(token_file)
    _check(url)
    from astra_clients.top import first_snapshot, watch

    if once or as_json:
        from astra_clients.top.screen import text

        seen = anyio.run(first_snapshot, url, token, interval)
        click.echo(orjson.dumps(seen.as_json()) if as_json else text(seen, _origin(url)))
        return
    from rich.console import Console

    console = Console()
    try:
        anyio.run(watch, url, token, interval, console, _say)
    finally:
        if not console.is_terminal:
            _flush()


def _token(file: Path | None) -> str:
    if file is not None:
        token = file.read_text().strip()
    else:
        token = os.environ.get(METRICS_TOKEN_ENV) or os.environ.get(CONTROL_TOKEN_ENV, "")
        token = token.strip()
    if not token:
        raise UsageError(
            "There is no token to read the metrics with.",
            f"Give --token-file, or set {METRICS_TOKEN_ENV} or {CONTROL_TOKEN_ENV}.",
        )
    return token


def _check(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise UsageError("The URL of a host begins with http://.", "Give the one that it printed.")


def _origin(url: str) -> str:
    from yarl import URL

    return str(URL(url).origin())


def _say(line: str) -> None:
    print(line, flush=True)


def _flush() -> None:
    """Whoever reads the pipe may be gone: nothing is left to say then, not even at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
