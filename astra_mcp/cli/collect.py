"""`astra collect`: agents attempt tasks over MCP; one graded trajectory per episode."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
import orjson

from astra_mcp.cli.hosted import running_host
from astra_mcp.cli.options import accept_missing, as_json, bundle_paths, unaudited
from astra_mcp.cli.serve import require_acknowledgement
from astra_mcp.errors import AuthError, UsageError
from astra_mcp.settings import CONTROL_TOKEN_ENV

if TYPE_CHECKING:
    from astra_clients.plan import CollectPlan, TaskRef


@click.command()
@bundle_paths
@click.option(
    "--agent",
    "agents",
    multiple=True,
    required=True,
    metavar="SPEC",
    help="golden, noisy, repeat, null, random, or chat:model=NAME,base_url=URL; repeatable.",
)
@click.option(
    "--seeds",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="How many seeds.",
)
@click.option(
    "--first-seed",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2**53 - 1_000_001),
    help="The first of them.",
)
@click.option(
    "--task", "only", multiple=True, metavar="ID", help="Only this task: t1, id#t1, id@version#t1."
)
@click.option("--concurrency", default=8, show_default=True, help="Episodes at a time.")
@click.option("--fault-rate", default=0.0, show_default=True, help="Share of failing calls.")
@click.option("--far-distractors", default=0, show_default=True, help="Tools of other bundles.")
@click.option(
    "--far-band",
    default="any",
    show_default=True,
    type=click.Choice(["any", "high", "medium", "low"]),
    help="How similar those bundles are.",
)
@click.option("--max-calls", type=int, help="Calls per episode; default: the task's limit.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="JSONL file of records."
)
@click.option("--overwrite", is_flag=True, help="Start anew although the file holds records.")
@click.option("--retry-failed", is_flag=True, help="Play episodes without a reward again.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of byte-exact recordings of every episode; private, for astra replay.",
)
@click.option("--url", help="Use this running host's control URL; token in ASTRA_CONTROL_TOKEN.")
@unaudited
@accept_missing
@as_json
def collect(
    paths: tuple[Path, ...],
    agents: tuple[str, ...],
    seeds: int,
    first_seed: int,
    only: tuple[str, ...],
    concurrency: int,
    fault_rate: float,
    far_distractors: int,
    far_band: str,
    max_calls: int | None,
    out: Path,
    overwrite: bool,
    retry_failed: bool,
    record: Path | None,
    url: str | None,
    unaudited: bool,
    missing: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run agents on every task of PATH... and write one graded record per episode.

    Starts a host of its own unless --url names one. Run the same command again after a kill: what
    is in the file already is not played again.
    """
    from astra_clients.agents import AgentSpec
    from astra_clients.collector import collect as run_collect

    if url is None:
        require_acknowledgement(unaudited)
    elif not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url} is no http URL.", "Give the one that `serve` shows.")
    elif record is not None:
        raise UsageError(
            "Another host is used, so this command cannot record.",
            "Start that host with astra serve --record.",
        )
    if out.exists() and not out.is_file():
        raise UsageError(f"--out {out} is no regular file.", "Name a file to write records to.")
    specs = [AgentSpec.parse(text) for text in agents]
    tasks = tasks_of(paths, only)
    with _host(paths, url, missing, record) as (control_url, token):
        plan = _plan(
            control_url=control_url,
            token=token,
            tasks=tuple(tasks),
            agents=tuple(specs),
            seeds=tuple(range(first_seed, first_seed + seeds)),
            out=out,
            overwrite=overwrite,
            retry_failed=retry_failed,
            concurrency=concurrency,
            fault_rate=fault_rate,
            far_distractors=far_distractors,
            far_band=far_band,
            max_calls=max_calls,
        )
        summary = anyio.run(run_collect, plan)
    if as_json:
        click.echo(orjson.dumps(summary.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        for line in summary.lines():
            click.echo(line, err=True)
        click.echo(out)
    if not summary.complete:
        raise SystemExit(1)


def tasks_of(paths: Sequence[Path], only: Sequence[str] = ()) -> list[TaskRef]:
    """Every task of the bundles at `paths`, loaded.

    Raises:
        UsageError: `only` leaves none.
    """
    from astra_clients.plan import TaskRef
    from astra_mcp.store import find_bundles, load_bundle

    refs = []
    for path in find_bundles(paths):
        bundle = load_bundle(path)
        for task in bundle.sealed.tasks:
            names = {task.id, f"{bundle.manifest.id}#{task.id}", f"{bundle.ref}#{task.id}"}
            if not only or not names.isdisjoint(only):
                refs.append(TaskRef(task=f"{bundle.ref}#{task.id}", bundle=bundle))
    if not refs:
        raise UsageError(
            f"None of these bundles has a task {' or '.join(only)}.",
            "Write t1, id#t1 or id@version#t1, or leave --task out.",
        )
    return refs


def _plan(**values: object) -> CollectPlan:
    from pydantic import ValidationError

    from astra_clients.plan import CollectPlan

    try:
        return CollectPlan.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        option = "--" + str(first["loc"][0] if first["loc"] else "agent").replace("_", "-")
        raise UsageError(f"{option}: {first['msg']}.", "See astra collect --help.") from error


@contextmanager
def _host(
    paths: Sequence[Path], url: str | None, missing: Sequence[str], record: Path | None
) -> Iterator[tuple[str, str]]:
    """Control URL and token of the named host, or of one started for this run."""
    if url is not None:
        token = os.environ.get(CONTROL_TOKEN_ENV, "")
        if not token:
            raise AuthError(
                "There is no control token for --url.", f"Put it into {CONTROL_TOKEN_ENV}."
            )
        yield url, token
        return
    layers = [part for name in missing for part in ("--accept-missing-layer", name)]
    recorded = ["--record", str(record)] if record is not None else []
    with running_host(paths, ["--unaudited", "--no-open-worlds", *layers, *recorded]) as host:
        yield host.control_url, host.token
