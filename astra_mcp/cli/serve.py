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
from astra_mcp.settings import CONTROL_TOKEN_ENV, HostSettings


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
@click.option("--journal", type=click.Path(path_type=Path), help="Folder of episode journals.")
@click.option("--max-episodes", default=1000, show_default=True, help="Open episodes at a time.")
@click.option("--idle-s", default=600.0, show_default=True, help="Lease without a request.")
@click.option("--total-s", default=3600.0, show_default=True, help="Lease in all.")
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
    max_episodes: int,
    idle_s: float,
    total_s: float,
    until_stdin_closes: bool,
) -> None:
    """Serve bundles as MCP servers: /envs/<id>/mcp, /episodes/<token>/mcp, /control/mcp.

    The token of the control plane comes from ASTRA_CONTROL_TOKEN, or is made and written to the
    token file.
    """
    from astra_mcp.host.run import run_host

    require_acknowledgement(unaudited)
    settings = HostSettings(
        host=host,
        port=port,
        allowed_hosts=allow_host,
        max_episodes=max_episodes,
        idle_s=idle_s,
        total_s=total_s,
        journal=journal,
        accept_missing_layers=frozenset(missing),
        unaudited=unaudited,
    )
    token, given = control_token()

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
        click.echo(f"listening on {url}", err=True)
        if not given and where is None:
            click.echo(f"control token (shown once): {token}", err=True)

    anyio.run(
        run_host, paths, settings, token, announce, until_stdin_closes, backend_options=_uvloop()
    )


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

    given = os.environ.pop(CONTROL_TOKEN_ENV, "")
    if given and len(given) < 16:
        raise UsageError(
            f"{CONTROL_TOKEN_ENV} has fewer than 16 characters.",
            "Use a random token, such as `python -c 'import secrets; print(secrets.token_hex())'`.",
        )
    return (given, True) if given else (new_token(), False)


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
