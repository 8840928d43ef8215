"""MCP over HTTP as bytes: request envelopes, routing headers and SSE frames of both eras.

Pure: nothing here opens a connection. Era "2026" (protocol 2026-07-28) is stateless: every request
carries its protocol version, client info and capabilities in `params._meta`, mirrored by the
headers MCP-Protocol-Version, Mcp-Method and Mcp-Name. Era "2025" (2025-11-25 and older) opens with
`initialize` and may carry an Mcp-Session-Id. Left out on purpose: `Mcp-Param-*` headers (schemas of
bundles cannot ask for them), resumption, requests from the server.

Spec: https://modelcontextprotocol.io/specification (basic/transports).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import orjson

from astra_mcp import __version__

Json = Any
Era = Literal["2026", "2025"]

MODERN_VERSION: Final = "2026-07-28"
LEGACY_VERSION: Final = "2025-11-25"
LEGACY_VERSIONS: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", LEGACY_VERSION})
CALL_ID_KEY: Final = "astra/callId"
CLIENT_INFO: Final[dict[str, str]] = {"name": "astra-clients", "version": __version__}

#: Method -> the parameter that the Mcp-Name header repeats.
NAMED_BY: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
}

_META: Final = "io.modelcontextprotocol/"
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_ENCODED = re.compile(r"=\?base64\?.*\?=")


def header_value(text: str) -> str:
    """`text` as an HTTP header value; what a header cannot carry is wrapped in base64."""
    if (not text or _PLAIN.fullmatch(text)) and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


def envelope(client_info: Mapping[str, str]) -> dict[str, Json]:
    """The `_meta` keys that every request of era 2026 carries."""
    return {
        f"{_META}protocolVersion": MODERN_VERSION,
        f"{_META}clientInfo": dict(client_info),
        f"{_META}clientCapabilities": {},
    }


def base_headers(token: str | None) -> dict[str, str]:
    """Headers of every POST, whatever the era."""
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return headers


def modern_headers(method: str, params: Mapping[str, Json]) -> dict[str, str]:
    """Routing headers of one request of era 2026."""
    headers = {"mcp-protocol-version": MODERN_VERSION, "mcp-method": method}
    if (key := NAMED_BY.get(method)) is not None:
        headers["mcp-name"] = header_value(str(params[key]))
    return headers


def request_bytes(request_id: int, method: str, params: Mapping[str, Json]) -> bytes:
    """One JSON-RPC request.

    Raises:
        TypeError: `params` is no JSON.
    """
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification_bytes(method: str) -> bytes:
    """One JSON-RPC notification without parameters."""
    return orjson.dumps({"jsonrpc": "2.0", "method": method})


class SseDecoder:
    """Bytes of a `text/event-stream` in, `data` of complete events out.

    Comments, ids and retry hints are dropped. An event larger than `max_bytes` raises ValueError,
    so a server cannot fill memory with one line.
    """

    def __init__(self, max_bytes: int) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._max = max_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """Events completed by `chunk`, in order."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        events: list[bytes] = []
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                self._data, self._size = [], 0
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)
        if self._size + len(self._rest) > self._max:
            raise ValueError(f"an event is larger than {self._max} bytes")
        return events
