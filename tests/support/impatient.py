"""`astra` with a host that waits a second where it otherwise waits half a minute.

`python -m tests.support.impatient serve ...` is `astra serve` whose /healthz also counts what must
not pile up: asyncio tasks, event streams, calls in flight, connections, threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from astra_mcp.cli import main
from astra_mcp.host import app, server

#: Longest time for a request to arrive and for an answer to stay unread, in seconds.
REQUEST_S = 1.0
STALLED_S = 1.0
LIMITS = server.Limits(
    request_s=REQUEST_S, stalled_s=STALLED_S, keep_alive_s=20, connections=400, sweep_s=0.2
)


def health(host: app.Host, plain: Any = app.Host.health) -> Mapping[str, Any]:
    """Host.health with what must not pile up."""
    return plain(host) | {
        "tasks": len(asyncio.all_tasks()),
        "streams": len(host._transport.streams),
        "calls": len(host._transport.calls),
        "connections": len(host.traffic.connections),
        "threads": threading.active_count(),
    }


if __name__ == "__main__":
    assert server.serve.__kwdefaults__ is not None
    server.serve.__kwdefaults__["limits"] = LIMITS
    app.Host.health = health  # type: ignore[method-assign]
    main()
