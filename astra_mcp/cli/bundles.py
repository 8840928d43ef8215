"""`astra new`, `astra check`, `astra repack`: writing bundles by hand."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
import orjson

from astra_mcp.cli.options import accept_missing, as_json, bundle_paths

if TYPE_CHECKING:
    from astra_mcp.bundle import Bundle
    from astra_mcp.sandbox import Sandbox


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
    # Writing replaces the directory: a relative path from inside it would then lead nowhere.
    paths = tuple(path.absolute() for path in paths)
    found = anyio.run(_check_all, paths, write, missing)
    if as_json:
        value = {path: asdict(outcome) for path, outcome in found.items()}
        click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    else:
        for path, outcome in found.items():
            _show(path, outcome)
    if any(outcome.findings for outcome in found.values()):
        raise SystemExit(1)


@dataclass(frozen=True)
class _Outcome:
    """What is wrong with a bundle now, and what `--write` has put right."""

    findings: list[dict[str, str]]
    mended: list[dict[str, str]]
    written: bool = False


def _show(path: str, outcome: _Outcome) -> None:
    note = " (written)" if outcome.written else ""
    click.echo(f"{'BAD ' if outcome.findings else 'ok  '} {path}{note}")
    for word, findings in (("", outcome.findings), ("mended: ", outcome.mended)):
        for finding in findings:
            click.echo(f"     {word}{finding['task']} {finding['place']}: {finding['problem']}")


async def _check_all(
    paths: tuple[Path, ...], write: bool, missing: tuple[str, ...]
) -> dict[str, _Outcome]:
    from astra_mcp.sandbox import Sandbox, SandboxSettings
    from astra_mcp.store import find_bundles

    sandbox = await Sandbox.start(SandboxSettings(allow_missing=frozenset(missing)))
    try:
        return {str(path): await _check(path, write, sandbox) for path in find_bundles(paths)}
    finally:
        await sandbox.aclose()


async def _check(path: Path, write: bool, sandbox: Sandbox) -> _Outcome:
    from astra_mcp.errors import BundleError, LoadError

    try:
        before, corrected = await _findings(path, sandbox)
        before += _foreign(path)
        if not write:
            return _Outcome(before + _stale(path), [])
        stale = _stale(path)
        _save(corrected, path)
        after, _ = await _findings(path, sandbox)
        after += _foreign(path)
    except (BundleError, LoadError) as error:
        return _Outcome([{"task": "-", "place": error.code, "problem": str(error)}], [])
    return _Outcome(after, [finding for finding in before + stale if finding not in after], True)


def _foreign(path: Path) -> list[dict[str, str]]:
    """Code in the folder that is not the bundle's: who starts server.py must not run it."""
    from astra_mcp.store import foreign_code

    return [
        {"task": "-", "place": name, "problem": "this is no file of a bundle, and code; remove it"}
        for name in foreign_code(path)
    ]


def _save(bundle: Bundle, path: Path) -> None:
    from astra_mcp.store import save_dir, save_json

    save = save_dir if path.is_dir() else save_json
    save(bundle, path, overwrite=True)


async def _findings(path: Path, sandbox: Sandbox) -> tuple[list[dict[str, str]], Bundle]:
    """What is wrong with the bundle, and the bundle with everything derivable put right."""
    from astra_mcp.check import check_bundle
    from astra_mcp.store import load_bundle
    from astra_mcp.world import BundleWorld

    bundle = load_bundle(path, verify=False)
    world = BundleWorld.from_bundle(bundle, sandbox, explain=True)
    try:
        checked = await check_bundle(bundle, world)
    finally:
        await world.aclose()
    return [asdict(finding) for finding in checked.findings], checked.corrected


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
