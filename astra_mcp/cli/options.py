"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

bundle_paths = click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
unaudited = click.option(
    "--unaudited",
    is_flag=True,
    help="Serve bundles that no audit on this machine has accepted.",
)
accept_missing = click.option(
    "--accept-missing-layer",
    "missing",
    multiple=True,
    metavar="NAME",
    help="Run without this mandatory sandbox layer; stated in the banner and in every record.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
