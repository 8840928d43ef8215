"""What is put in place of a recording's placeholders, and what a comparison overlooks. Pure.

The complete list of what a replay takes for equal although it differs:

1. the episode's id, its token, the control token, session ids, the host's address;
2. `seconds` (how long a call took), `idle_s` and `total_s` (the host's leases) in answers of
   open_episode, get_episode and resources/read; a column of a result that has such a name is
   compared in the answer of the call itself;
3. in event streams: comments (heartbeats), and how often one notification is repeated in a row;
4. with another bundle allowed: its version, its digests and its canary.

Everything else is compared byte by byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from astra_mcp.host.tape import Exchange

Json = Any
_MEASURED: Final = re.compile(
    rb'(\\*"(?:seconds|idle_s|total_s)\\*":)-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?'
)


@dataclass
class Filling:
    """Pairs (as recorded, as it is now); the later ones are found only as the replay goes on."""

    pairs: list[tuple[bytes, bytes]] = field(default_factory=list)

    def add(self, recorded: str, now: str) -> None:
        """Another pair; nothing when both are the same."""
        pair = (recorded.encode(), now.encode())
        if recorded and now and recorded != now and pair not in self.pairs:
            self.pairs.append(pair)

    def fill(self, data: bytes) -> bytes:
        """Recorded bytes as they have to be sent now."""
        for recorded, now in self.pairs:
            data = data.replace(recorded, now)
        return data

    def blank(self, data: bytes) -> bytes:
        """Bytes received now as they would have been recorded."""
        for recorded, now in self.pairs:
            data = data.replace(now, recorded)
        return data


def plain(exchange: Exchange, answer: bytes) -> bytes:
    """An answer to `exchange` without what was measured and not computed."""
    if tells_times(exchange):
        return _MEASURED.sub(rb"\g<1>0", answer)
    return answer


def tells_times(exchange: Exchange) -> bool:
    """Whether the answer holds times of the host's."""
    method, name = operation(exchange)
    told = name in ("open_episode", "get_episode") or method == "resources/read"
    return exchange.plane == "control" and told


def operation(exchange: Exchange) -> tuple[str, str]:
    """The JSON-RPC method and the tool's name, as far as the request has them."""
    try:
        message = orjson.loads(exchange.body)
        params = message.get("params") or {}
        return str(message.get("method", "")), str(params.get("name", ""))
    except (ValueError, AttributeError):
        return "", ""


def request_ids(exchanges: Iterable[Exchange]) -> set[str]:
    """The request_ids that episodes were opened with."""
    found: set[str] = set()
    for exchange in exchanges:
        if operation(exchange)[1] == "open_episode":
            found.add(str(orjson.loads(exchange.body)["params"]["arguments"]["request_id"]))
    return found


def frames(stream: bytes) -> list[bytes]:
    """The whole events of a stream, without comments and without immediate repetitions."""
    events: list[bytes] = []
    for block in _blocks(stream):
        lines = [line for line in block.split(b"\n") if line and not line.startswith(b":")]
        event = b"\n".join(lines)
        if event and (not events or events[-1] != event):
            events.append(event)
    return events


def _blocks(stream: bytes) -> Iterable[bytes]:
    """What stands between empty lines; an event that is not complete is left out."""
    *whole, _ = stream.replace(b"\r\n", b"\n").split(b"\n\n")
    return whole
