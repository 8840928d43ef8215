"""One process of several: `python -m astra_mcp.host.shard`, started by supervisor.py only.

It is told what to serve by one line of JSON on standard input, which then stays open for as long as
the supervisor lives; its end is the order to drain. It says one line on standard output: that it
listens, or why it does not. It is a host like any other, with peers.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any, Final

import anyio
import orjson

from astra_mcp.errors import AstraError
from astra_mcp.host.run import run_host
from astra_mcp.settings import HostSettings

Json = Any
_STDIN: Final = 0


def main() -> int:
    """Serve; gives the exit code."""
    order = _read_order()
    if order is None:
        return 3
    supervisor, peers = os.getppid(), Path(order["peers"])
    settings = HostSettings.model_validate_json(orjson.dumps(order["settings"]))
    _name_logs(settings.shard)
    try:
        anyio.run(
            run_host,
            [Path(path) for path in order["paths"]],
            settings,
            order["control_token"],
            lambda url: _say({"url": url}),
            True,
            order["metrics_token"],
            peers,
            backend_options={"use_uvloop": sys.platform != "win32"},
        )
    except AstraError as error:
        _say({"error": error.message, "remedy": error.remedy, "exit_code": error.exit_code})
        return error.exit_code
    finally:
        if os.getppid() != supervisor:
            _remove(peers)
    return 0


def _remove(peers: Path) -> None:
    """Clean up for a supervisor that was killed; the last process does it."""
    try:
        peers.rmdir()
    except OSError:
        return  # another process still has its socket there, or was quicker


def _read_order() -> dict[str, Json] | None:
    """The first line, read without a buffer, so that what follows is not lost."""
    line = bytearray()
    while not line.endswith(b"\n"):
        part = os.read(_STDIN, 1 << 16)
        if not part:
            return None  # the supervisor is gone
        line += part
    order: dict[str, Json] = orjson.loads(line)
    return order


def _say(value: dict[str, Json]) -> None:
    try:
        os.write(1, orjson.dumps(value) + b"\n")
    except BrokenPipeError:
        return  # the supervisor is gone; standard input says so, too


def _name_logs(shard: int) -> None:
    """Every line of the log says whose it is."""
    make = logging.getLogRecordFactory()

    def named(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.shard = shard
        return record

    logging.setLogRecordFactory(named)


if __name__ == "__main__":
    sys.exit(main())
