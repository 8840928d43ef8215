"""`astra replay`: recorded episodes played again without a model, each answer compared."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
import orjson

from astra_mcp.cli.options import accept_missing, as_json

if TYPE_CHECKING:
    from astra_clients.replay import Replayed


@click.command()
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--bundles",
    multiple=True,
    required=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Bundles to serve; repeatable.",
)
@click.option(
    "--allow-other-digest",
    is_flag=True,
    help="Play against a bundle that is not the recorded one, and show what differs.",
)
@accept_missing
@as_json
def replay(
    files: tuple[Path, ...],
    bundles: tuple[Path, ...],
    allow_other_digest: bool,
    missing: tuple[str, ...],
    as_json: bool,
) -> None:
    """Play FILE..., recordings of --record or folders of them, and compare every answer.

    Needs no model: the recorded bytes are sent again to a host of its own. Exit code 1 when a file
    is not identical. Differences show private data: keep them on your own terminal.
    """
    done = anyio.run(_replay_all, files, bundles, allow_other_digest, missing)
    if as_json:
        found = [asdict(one) | {"file": str(one.file)} for one in done]
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
    else:
        for one in done:
            _show(one)
    if any(one.verdict != "identical" for one in done):
        raise SystemExit(1)


async def _replay_all(
    files: tuple[Path, ...],
    bundles: tuple[Path, ...],
    allow_other_digest: bool,
    missing: tuple[str, ...],
) -> list[Replayed]:
    from astra_clients.replay import Replayer

    async with Replayer(bundles, missing) as player:
        return [
            await player.replay(file, allow_other_digest=allow_other_digest)
            for file in _recordings(files)
        ]


def _recordings(paths: tuple[Path, ...]) -> list[Path]:
    """The files named, and those in the folders named.

    Raises:
        UsageError: a folder holds no recording.
    """
    from astra_mcp.errors import UsageError
    from astra_mcp.host.tape import SUFFIX

    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"{path} holds no recording.", "Give a folder of --record.")
        found += inside
    return found


def _show(one: Replayed) -> None:
    counted = f"{one.compared} of {one.exchanges} exchanges compared"
    click.echo(f"{one.verdict:<10} {one.file} {one.task} {counted}")
    if one.reason:
        click.echo(f"  {one.reason}")
    for difference in one.differences[:1]:
        where = "" if difference.at is None else f", byte {difference.at}"
        click.echo(f"  first difference: {difference.request}, {difference.what}{where}")
        click.echo(f"    recorded: {difference.recorded!r}")
        click.echo(f"    now:      {difference.now!r}")
