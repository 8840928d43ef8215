"""`astra report`: a file of trajectories as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("records", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Default: RECORDS with .html.")
def report(records: Path, out: Path | None) -> None:
    """Make a self-contained HTML report of RECORDS, a file of `astra collect`."""
    from astra_clients.report import write_report

    out = out or records.with_suffix(".html")
    write_report(records, out)
    click.echo(out)
