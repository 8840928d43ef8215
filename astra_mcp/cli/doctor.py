"""`astra doctor`: what this machine can enforce, loudly."""

from __future__ import annotations

import sys
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING

import anyio
import click
import orjson

from astra_mcp.cli.options import accept_missing, as_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from astra_mcp.sandbox import DoctorReport

PACKAGES = ("mcp", "fastmcp", "RestrictedPython", "uvicorn", "pydantic", "jsonschema-rs")


@click.command()
@accept_missing
@as_json
def doctor(missing: tuple[str, ...], as_json: bool) -> None:
    """Print every sandbox layer's state and run the behaviour contract in a real worker."""
    from astra_mcp import __version__
    from astra_mcp.sandbox import SandboxSettings, doctor_report

    settings = SandboxSettings(allow_missing=frozenset(missing))
    report = anyio.run(doctor_report, settings)
    versions = {name: version(name) for name in PACKAGES}
    if as_json:
        value = {"astra_mcp": __version__, "versions": versions, "ok": report.ok} | asdict(report)
        click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(f"astra-mcp {__version__}, {report.system}")
        click.echo(", ".join(f"{name} {number}" for name, number in versions.items()))
        for line in _lines(report):
            click.echo(line)
    sys.exit(0 if report.ok else 3)


def _lines(report: DoctorReport) -> Iterator[str]:
    """The report for a person: layers, then behaviours, then the verdict."""
    from astra_mcp.sandbox import MANDATORY

    yield "\nlayers"
    for name, state in report.layers.items():
        mark = "ok " if state == "on" else "BAD" if name in MANDATORY else "-- "
        kind = "mandatory" if name in MANDATORY else "optional"
        yield f"  {mark} {name:<14} {kind:<10} {state}"
    yield "\nbehaviours"
    for behaviour in report.behaviours:
        detail = f": {behaviour.detail}" if behaviour.detail else ""
        yield f"  {'ok ' if behaviour.passed else 'BAD'} {behaviour.name}{detail}"
    yield ""
    if report.problem:
        yield f"The sandbox did not start. {report.problem}"
    for name in report.missing:
        yield f"Missing: {name}. --accept-missing-layer {name} runs without it."
    yield "Bundles may run here." if report.ok else "Bundles should not run here."
