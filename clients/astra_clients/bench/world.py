"""The one bundle that every part of the benchmark serves, and the requests that are sent to it.

Its only tool adds two integers, so that what is measured is the host and not the tool. Its one task
is a chain of five calls. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from astra_clients.wire import (
    CLIENT_INFO,
    LEGACY_VERSION,
    base_headers,
    envelope,
    modern_headers,
    notification_bytes,
    request_bytes,
)

Json = Any

BUNDLE_ID: Final = "bench-sums"
TASK: Final = f"{BUNDLE_ID}#t1"
TOOL: Final = "add"
STEPS: Final = 5
ANSWER: Final = STEPS * (STEPS + 1) // 2
#: Different requests that a connection sends in turn; their sums have digits of their own.
VARIANTS: Final = 32
_FIRST_SUM: Final = 7_300_000

_CODE: Final = """class ToolError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def add(state, *, a, b):
    return {"sum": a + b}
"""
_INTEGER: Final = {"type": "integer", "minimum": -1_000_000_000, "maximum": 1_000_000_000}


def bundle_json(bundle_id: str = BUNDLE_ID) -> dict[str, Json]:
    """The bundle in its single-file form, under any id."""
    licence = "CC0-1.0"
    source = {"name": "invented for the benchmark", "license": licence}
    return {
        "format": "astra-mcp/bundle@1",
        "manifest": {
            "id": bundle_id,
            "version": "1.0.0",
            "title": "Sums",
            "summary": "Adds two numbers; what is measured with it is the host around it.",
            "domain": "benchmark",
            "language": "en",
            "license": licence,
            "now": "2025-01-01T00:00:00Z",
            "provenance": {"backend": "hand", "generator": "astra-bench/1", "sources": [source]},
            "servers": [{"name": "main", "instructions": "Add numbers."}],
            "tools": [
                {
                    "name": TOOL,
                    "server": "main",
                    "description": "Add two whole numbers and return their sum.",
                    "input_schema": _object(a=_INTEGER, b=_INTEGER),
                    "output_schema": _object(sum={"type": "integer"}),
                    "effects": "read",
                }
            ],
        },
        "code": _CODE,
        "state": {"notes": {"n1": {"id": "n1", "text": "nothing is kept here"}}},
        "sealed": {"canary": f"ASTRA-MCP-SEALED-{bundle_id}", "tasks": [_task()]},
    }


def _object(**properties: Json) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            name: {**schema, "description": f"The number {name}."}
            for name, schema in properties.items()
        },
        "required": list(properties),
        "additionalProperties": False,
    }


def _task() -> dict[str, Json]:
    plan = [
        {
            "id": f"s{n}",
            "turn": "u1",
            "tool": TOOL,
            "args": {"a": {"$expr": f"s{n - 1}.sum"} if n > 1 else 0, "b": n},
        }
        for n in range(1, STEPS + 1)
    ]
    expect = {"value": ANSWER, "expr": f"s{STEPS}.sum", "match": {"kind": "number"}}
    return {
        "id": "t1",
        "title": "Add up a few numbers one after the other",
        "turns": [
            {"id": "u1", "say": f"Start at 0, add 1, then 2 and so on to {STEPS}. What is the sum?"}
        ],
        "plan": plan,
        "subtasks": [
            {"id": f"q{n}", "ask": f"What is the sum after adding {n}?", "steps": [f"s{n}"]}
            for n in range(1, STEPS + 1)
        ],
        "answer": expect,
        "tolerated": [],
        "distractors": [],
        "difficulty": {
            "level": 2,
            "hops": STEPS,
            "steps": STEPS,
            "width": 1,
            "turns": 1,
            "writes": 0,
            "tools": 1,
            "features": [],
        },
        "max_calls": 20,
    }


@dataclass(frozen=True, slots=True)
class Shot:
    """One request as bytes, and the digits that a right answer holds."""

    request: bytes
    digits: bytes


def shots(host: str, path: str, session: str = "") -> list[Shot]:
    """`VARIANTS` calls of the tool at one endpoint, each with another sum.

    Args:
        session: Call inside this session of the 2025 era; "" means the 2026 era.
    """
    made = []
    for n in range(VARIANTS):
        total = _FIRST_SUM + n
        args = {"a": total - 11, "b": 11}
        if session:
            body = request_bytes(n + 2, "tools/call", {"name": TOOL, "arguments": args})
            headers = legacy_headers(session)
        else:
            body, headers = call_body(n + 2, args), CALL_HEADERS
        made.append(Shot(post(host, path, body, headers), str(total).encode()))
    return made


def legacy_headers(session: str) -> dict[str, str]:
    """Headers of a request inside a session of the 2025 era."""
    return base_headers(None) | {
        "mcp-protocol-version": LEGACY_VERSION,
        "mcp-session-id": session,
    }


def hello(host: str, path: str) -> bytes:
    """The request that opens a session of the 2025 era."""
    params = {
        "protocolVersion": LEGACY_VERSION,
        "capabilities": {},
        "clientInfo": CLIENT_INFO,
    }
    return post(host, path, request_bytes(1, "initialize", params), base_headers(None))


def ready(host: str, path: str, session: str) -> bytes:
    """The notification that follows it."""
    body = notification_bytes("notifications/initialized")
    return post(host, path, body, legacy_headers(session))


_PARAMS: Final = {"name": TOOL, "arguments": {}}
CALL_HEADERS: Final = base_headers(None) | modern_headers("tools/call", _PARAMS)


def call_body(request_id: int, args: Mapping[str, Json], tool: str = TOOL) -> bytes:
    """A `tools/call` of the 2026 era."""
    params = {"name": tool, "arguments": args, "_meta": envelope(CLIENT_INFO)}
    return request_bytes(request_id, "tools/call", params)


def post(host: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """A whole HTTP/1.1 request as bytes."""
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
