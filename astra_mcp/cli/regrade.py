"""`astra regrade`: saved trajectories graded again by newer bundles, without an agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
import orjson

from astra_mcp.cli.options import accept_missing, as_json

if TYPE_CHECKING:
    from astra_clients.regrade.files import RegradeSummary


@click.command()
@click.argument("records", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--bundles",
    multiple=True,
    required=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="The newer bundles; repeatable.",
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="JSONL file of new records."
)
@click.option("--overwrite", is_flag=True, help="Replace an older result.")
@click.option(
    "--open-loop",
    is_flag=True,
    help="Also grade records whose calls give other results in a changed world.",
)
@accept_missing
@as_json
def regrade(
    records: Path,
    bundles: tuple[Path, ...],
    out: Path,
    overwrite: bool,
    open_loop: bool,
    missing: tuple[str, ...],
    as_json: bool,
) -> None:
    """Grade RECORDS, a file of astra collect, again by newer versions of its tasks.

    Where only tasks changed, what was recorded is graded; where the world changed, the calls are
    made again in it first. A record that cannot be graded again gets a null reward with the reason
    and keeps its old one in `regraded_from`; exit code 1 when a record lost its reward that way.
    """
    summary = anyio.run(_regrade, records, bundles, out, overwrite, open_loop, missing)
    if as_json:
        click.echo(orjson.dumps(summary.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        for line in summary.lines():
            click.echo(line, err=True)
        click.echo(out)
    if summary.lost:
        raise SystemExit(1)


async def _regrade(
    records: Path,
    bundles: tuple[Path, ...],
    out: Path,
    overwrite: bool,
    open_loop: bool,
    missing: tuple[str, ...],
) -> RegradeSummary:
    from astra_clients.regrade import regrader
    from astra_clients.regrade.files import regrade_file

    async with regrader(bundles, open_loop=open_loop, missing=missing) as again:
        return await regrade_file(records, out, again, overwrite=overwrite)
