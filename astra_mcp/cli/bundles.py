"""`astra new`, `astra check`, `astra repack`: writing bundles by hand."""

from __future__ import annotations

from pathlib import Path

import anyio
import click
import orjson

from astra_mcp.cli.options import accept_missing, as_json, bundle_paths


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--title", default="", help="Title of the bundle; default: made of its name.")
@click.option("--licence", default="CC0-1.0", show_default=True, help="SPDX expression.")
def new(path: Path, title: str, licence: str) -> None:
    """Write a small complete bundle at PATH to start from."""
    from astra_mcp.scaffold import new_bundle

    title = title or path.name.replace("-", " ").capitalize()
    for written in new_bundle(path, title=title, licence=licence):
        click.echo(written)
    click.echo(f"Now: astra check {path}", err=True)


@click.command()
@bundle_paths
@click.option("--write", is_flag=True, help="Put derived values, difficulty and digests right.")
@accept_missing
@as_json
def check(paths: tuple[Path, ...], write: bool, missing: tuple[str, ...], as_json: bool) -> None:
    """Check bundles while writing them: form, golden plans, phrasings, grades.

    Findings show sealed values: keep them on your own terminal.
    """
    found = anyio.run(_check_all, paths, write, missing)
    if as_json:
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
    else:
        for path, findings in found.items():
            click.echo(f"{'ok  ' if not findings else 'BAD '} {path}")
            for finding in findings:
                click.echo(f"     {finding['task']} {finding['place']}: {finding['problem']}")
    if any(found.values()) and not write:
        raise SystemExit(1)


async def _check_all(
    paths: tuple[Path, ...], write: bool, missing: tuple[str, ...]
) -> dict[str, list[dict[str, str]]]:
    from dataclasses import asdict

    from astra_mcp.check import check_bundle
    from astra_mcp.errors import BundleError, LoadError
    from astra_mcp.sandbox import Sandbox, SandboxSettings
    from astra_mcp.store import find_bundles, load_bundle, save_dir, save_json
    from astra_mcp.world import BundleWorld

    sandbox = await Sandbox.start(SandboxSettings(allow_missing=frozenset(missing)))
    found: dict[str, list[dict[str, str]]] = {}
    try:
        for path in find_bundles(paths):
            try:
                bundle = load_bundle(path, verify=False)
                world = BundleWorld.from_bundle(bundle, sandbox)
                checked = await check_bundle(bundle, world)
                await world.aclose()
            except (BundleError, LoadError) as error:
                found[str(path)] = [{"task": "-", "place": error.code, "problem": str(error)}]
                continue
            found[str(path)] = [asdict(finding) for finding in checked.findings]
            if write:
                save = save_dir if path.is_dir() else save_json
                save(checked.corrected, path, overwrite=True)
            else:
                found[str(path)] += _stale(path)
    finally:
        await sandbox.aclose()
    return found


def _stale(path: Path) -> list[dict[str, str]]:
    """A finding when the digests are not of these files."""
    from astra_mcp.errors import BundleError
    from astra_mcp.store import load_bundle

    try:
        load_bundle(path)
    except BundleError as error:
        return [{"task": "-", "place": "digests", "problem": str(error)}]
    return []


@click.command()
@bundle_paths
def repack(paths: tuple[Path, ...]) -> None:
    """Accept edited files of bundle directories: validate them and write new digests."""
    from astra_mcp.store import find_bundles
    from astra_mcp.store import repack as repack_one

    for path in find_bundles(paths):
        repack_one(path)
        click.echo(path)
