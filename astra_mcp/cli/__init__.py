"""The command line: `astra COMMAND`.

Data go to stdout, progress and logs to stderr. Exit codes: 0 done, 1 findings, 2 usage, 3
environment. An error is one sentence on what happened and one on what to do. Commands import what
they need when they run, so that `astra --help` is quick.
"""

from __future__ import annotations

import sys

import click
from pydantic import ValidationError

from astra_mcp import __version__
from astra_mcp.cli.bench import bench
from astra_mcp.cli.bundles import check, new, repack
from astra_mcp.cli.collect import collect
from astra_mcp.cli.demo import demo
from astra_mcp.cli.doctor import doctor
from astra_mcp.cli.regrade import regrade
from astra_mcp.cli.replay import replay
from astra_mcp.cli.report import report
from astra_mcp.cli.serve import serve
from astra_mcp.cli.top import top
from astra_mcp.errors import AstraError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="astra")
def cli() -> None:
    """Verifiable MCP tool environments: make, check, serve, attempt, grade."""


for _command in (
    demo, new, check, repack, serve, top, collect, replay, regrade, report, doctor, bench,
):  # fmt: skip
    cli.add_command(_command)


def main() -> None:
    """Run a command; every error of ours becomes two sentences and an exit code."""
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted. Run the same command again to go on.", err=True)
        sys.exit(130)
    except AstraError as error:
        click.echo(f"error: {error.message}", err=True)
        if error.remedy:
            click.echo(f"  do: {error.remedy}", err=True)
        sys.exit(error.exit_code)
    except (OSError, ValidationError) as error:
        click.echo(f"error: {_sentence(error)}", err=True)
        click.echo("  do: Correct that option, path or permission, then run it again.", err=True)
        sys.exit(2 if isinstance(error, ValidationError) else 3)


def _sentence(error: OSError | ValidationError) -> str:
    """What the machine or a model says, as one sentence."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "The configuration"
        return f"{where}: {first['msg']}."
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}."
