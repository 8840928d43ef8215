"""`astra doctor`: what this machine can enforce, loudly."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version

import anyio
import click
import orjson

from astra_mcp.cli.options import accept_missing, as_json

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
    machine = f"{platform.system()} {platform.release()} {platform.machine()}"
    if as_json:
        value = {
            "astra_mcp": __version__,
            "python": platform.python_version(),
            "machine": machine,
            "versions": versions,
            **report.as_json(),
        }
        click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo(f"astra-mcp {__version__}, Python {platform.python_version()}, {machine}")
        click.echo("  ".join(f"{name} {number}" for name, number in versions.items()))
        click.echo(report.as_text())
    sys.exit(0 if report.ok else 3)
