"""`astra demo`: the whole loop without a key: serve, attempt, grade, report."""

from __future__ import annotations

from pathlib import Path

import anyio
import click

from astra_mcp.cli.hosted import running_host

AGENTS = ("golden", "null", "random")


@click.command()
@click.option(
    "--bundles",
    type=click.Path(exists=True, path_type=Path),
    help="Bundles to use; default: the committed examples.",
)
@click.option(
    "--out",
    default="runs/demo",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for the trajectories and the report.",
)
@click.option("--seeds", default=5, show_default=True, help="Attempts of each agent at each task.")
def demo(bundles: Path | None, out: Path, seeds: int) -> None:
    """Serve the example bundles, let scripted agents attempt every task, grade, report."""
    from pydantic import SecretStr

    from astra_clients.agents import AgentSpec
    from astra_clients.collector import collect
    from astra_clients.plan import CollectPlan
    from astra_clients.report import print_table, print_tasks, read_records, write_report
    from astra_mcp.cli.collect import tasks_of

    folder = bundles or example_bundles()
    records = out / "trajectories.jsonl"
    out.mkdir(parents=True, exist_ok=True)
    tasks = tasks_of([folder])
    click.echo("The bundles are served without an audit.", err=True)
    with running_host([folder], ["--unaudited", "--no-open-worlds"]) as host:
        click.echo(f"host {host.url} (pid {host.pid}), {len(tasks)} tasks", err=True)
        plan = CollectPlan(
            control_url=host.control_url,
            token=SecretStr(host.token),
            tasks=tuple(tasks),
            agents=tuple(AgentSpec(name=name, kind=name) for name in AGENTS),
            seeds=tuple(range(seeds)),
            out=records,
            overwrite=True,
        )
        summary = anyio.run(collect, plan)
    found = list(read_records(records))
    print_tasks(found)
    print_table(found)
    page = out / "report.html"
    write_report(records, page)
    for line in summary.lines():
        click.echo(line, err=True)
    click.echo(f"trajectories  {records}")
    click.echo(f"report        {page}")
    if not summary.complete:
        raise SystemExit(1)


def example_bundles() -> Path:
    """The folder of example bundles: of a checkout, or of the installed package.

    Raises:
        UsageError: neither is there.
    """
    from astra_mcp.errors import UsageError

    here = Path(__file__).resolve().parent
    for folder in (here.parents[1] / "synthesized_envs", here.parent / "examples"):
        if folder.is_dir():
            return folder
    raise UsageError("The example bundles are not here.", "Name a folder with --bundles.")
