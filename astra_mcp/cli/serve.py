"""`astra serve`: bundles as MCP servers on one port."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import click
import orjson

from astra_mcp.cli.options import accept_missing, bundle_paths, unaudited
from astra_mcp.errors import UsageError
from astra_mcp.settings import CONTROL_TOKEN_ENV, METRICS_TOKEN_ENV, HostSettings


@click.command()
@bundle_paths
@unaudited
@accept_missing
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, help="Port; 0 lets the kernel choose.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="Host name to answer for.")
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="Write {url, control_url, pid, token_file} here once it listens.",
)
@click.option("--token-file", type=click.Path(path_type=Path), help="Where the token is put.")
@click.option(
    "--no-open-worlds",
    is_flag=True,
    help="Serve no /envs and /play: agents that are graded could rehearse there.",
)
@click.option("--journal", type=click.Path(path_type=Path), help="Folder of episode journals.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of byte-exact recordings of every episode; private, for astra replay.",
)
@click.option("--max-episodes", default=1000, show_default=True, help="Open episodes at a time.")
@click.option("--max-waiting", default=256, show_default=True, help="Requests that may wait.")
@click.option("--wait-s", default=2.0, show_default=True, help="Longest wait for a slot.")
@click.option("--idle-s", default=600.0, show_default=True, help="Lease without a request.")
@click.option("--total-s", default=3600.0, show_default=True, help="Lease in all.")
@click.option("--drain-s", default=5.0, show_default=True, help="Time to end calls at SIGTERM.")
@click.option("--keep-finished", default=2000, show_default=True, help="Ended episodes in memory.")
@click.option("--keep-journals", default=100_000, show_default=True, help="Ended ones on disk.")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes behind the port, each with its own episodes.",
)
@click.option("--until-stdin-closes", is_flag=True, hidden=True)
def serve(
    paths: tuple[Path, ...],
    unaudited: bool,
    missing: tuple[str, ...],
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    ready_file: Path | None,
    token_file: Path | None,
    journal: Path | None,
    record: Path | None,
    max_episodes: int,
    max_waiting: int,
    wait_s: float,
    idle_s: float,
    total_s: float,
    drain_s: float,
    keep_finished: int,
    keep_journals: int,
    processes: int,
    no_open_worlds: bool,
    until_stdin_closes: bool,
) -> None:
    """Serve bundles as MCP servers: /envs/<id>/mcp, /episodes/<token>/mcp, /control/mcp.

    The token of the control plane comes from ASTRA_CONTROL_TOKEN, or is made and written to the
    token file. /metrics wants that one, or the one in ASTRA_METRICS_TOKEN, which opens nothing
    else.
    """
    from astra_mcp.host.run import run_host
    from astra_mcp.host.supervisor import claim, supervise

    require_acknowledgement(unaudited)
    settings = HostSettings(
        host=host,
        port=port,
        allowed_hosts=allow_host,
        max_episodes=max_episodes,
        max_waiting=max_waiting,
        wait_s=wait_s,
        idle_s=idle_s,
        total_s=total_s,
        drain_s=drain_s,
        keep_finished=keep_finished,
        keep_journals=keep_journals,
        journal=journal,
        record=record,
        accept_missing_layers=frozenset(missing),
        open_worlds=not no_open_worlds,
        unaudited=unaudited,
        processes=processes,
    )
    claim(journal, processes)
    token, given = control_token()
    watcher = token_from(METRICS_TOKEN_ENV) or None

    def announce(url: str) -> None:
        where = _put_token(token, given, token_file, ready_file)
        info = {
            "url": url,
            "control_url": f"{url}/control/mcp",
            "pid": os.getpid(),
            "token_file": str(where) if where else None,
        }
        if ready_file is not None:
            _write_whole(ready_file, orjson.dumps(info), 0o600)
        for line in _greeting(url, where, given, token):
            click.echo(line, err=True)

    anyio.run(
        run_host if processes == 1 else supervise,
        paths,
        settings,
        token,
        announce,
        until_stdin_closes,
        watcher,
        backend_options=_uvloop(),
    )


def _greeting(url: str, where: Path | None, given: bool, token: str) -> list[str]:
    """What a person wants to know once the host listens."""
    if given:
        source = f"token from {CONTROL_TOKEN_ENV}"
    else:
        source = f"token in {where}" if where else f"token, shown once: {token}"
    return [
        f"listening on {url} (stop with Ctrl-C)",
        f"  environments   {url}/envs lists them; any MCP client connects to {url}/envs/<id>/mcp",
        f"  control plane  {url}/control/mcp, {source}",
    ]


def require_acknowledgement(unaudited: bool) -> None:
    """Refuse to serve what no audit has accepted, unless the operator says so.

    Raises:
        UsageError: `--unaudited` is not given.
    """
    if not unaudited:
        raise UsageError(
            "These bundles have no audit that was made on this machine.",
            "Add --unaudited to serve them all the same; rewards are then as good as they are.",
        )


def control_token() -> tuple[str, bool]:
    """The control token, and whether the environment gave it.

    Raises:
        UsageError: the environment's token is too short to be one.
    """
    from astra_mcp.host.tokens import new_token

    given = token_from(CONTROL_TOKEN_ENV)
    return (given, True) if given else (new_token(), False)


def token_from(variable: str) -> str:
    """A token that the environment gives, taken out of it; "" when it gives none.

    Raises:
        UsageError: it is too short to be one.
    """
    given = os.environ.pop(variable, "")
    if given and len(given) < 16:
        raise UsageError(
            f"{variable} has fewer than 16 characters.",
            "Use a random token, such as `python -c 'import secrets; print(secrets.token_hex())'`.",
        )
    return given


def _put_token(
    token: str, given: bool, token_file: Path | None, ready_file: Path | None
) -> Path | None:
    """Write the token where only this user reads it; None when nobody asked for a file."""
    if token_file is None and ready_file is not None:
        token_file = ready_file.with_name(f"{ready_file.name}.token")
    if token_file is not None:
        _write_whole(token_file, token.encode() + b"\n", 0o600)
    return token_file


def _write_whole(path: Path, data: bytes, mode: int) -> None:
    """Write a file that nobody ever sees half written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def _uvloop() -> dict[str, bool]:
    return {"use_uvloop": True} if sys.platform != "win32" else {}
