"""A host in a process of its own for as long as a command runs.

The child listens on a port that the kernel gives it, writes a ready file, and stops when its
standard input closes, so it cannot outlive its parent however that one ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from astra_mcp.errors import HostStartError
from astra_mcp.settings import CONTROL_TOKEN_ENV, METRICS_TOKEN_ENV

READY_S: Final = 60.0
STOP_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Hosted:
    """A running host: its addresses and the control token."""

    url: str
    control_url: str
    token: str
    pid: int


@contextmanager
def running_host(paths: Sequence[Path], options: Sequence[str] = ()) -> Iterator[Hosted]:
    """Serve `paths` in a child process while the block runs.

    Args:
        options: Further options of `astra serve`.

    Raises:
        HostStartError: it does not start; the message is what it said last.
    """
    with tempfile.TemporaryDirectory(prefix="astra-host-") as folder:
        ready = Path(folder) / "ready.json"
        command = [
            # -P: without it a module in the current folder would run here, outside the sandbox.
            sys.executable, "-P", "-m", "astra_mcp.cli", "serve", *map(str, paths), "--port", "0",
            "--ready-file", str(ready), "--until-stdin-closes", *options,
        ]  # fmt: skip
        secrets = (CONTROL_TOKEN_ENV, METRICS_TOKEN_ENV)
        env = {key: value for key, value in os.environ.items() if key not in secrets}
        errors = Path(folder) / "stderr"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr, env=env
            )
        try:
            info = _wait(process, ready, errors)
            token = Path(info["token_file"]).read_text().strip()
            yield Hosted(info["url"], info["control_url"], token, info["pid"])
        finally:
            _stop(process)


def _wait(process: subprocess.Popen[bytes], ready: Path, errors: Path) -> dict[str, Any]:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if ready.exists():
            info: dict[str, Any] = orjson.loads(ready.read_bytes())
            return info
        if process.poll() is not None:
            raise _why(process.returncode, errors.read_text(errors="replace"))
        time.sleep(0.01)
    raise HostStartError(
        f"The host did not listen within {READY_S:g} s.", "Run `astra doctor` to see why."
    )


def _why(code: int, said: str) -> HostStartError:
    """What a host that ended at once said about it: its own two sentences."""
    lines = [line.strip() for line in said.splitlines()]
    message = next((x.removeprefix("error: ") for x in lines if x.startswith("error: ")), "")
    remedy = next((x.removeprefix("do: ") for x in lines if x.startswith("do: ")), "")
    error = HostStartError(
        message or f"The host ended with exit code {code} before it listened.",
        remedy or "Run `astra doctor`, then `astra serve` with the same bundles.",
    )
    error.exit_code = code if code in (1, 2) else error.exit_code
    return error


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
