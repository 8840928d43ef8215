"""A bundle of tools that fail in every way that a tool can, for tests of what a failure means."""

from __future__ import annotations

from typing import Any

CODE = """
class ToolError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def put(state, *, key, value):
    if key in state["items"]:
        raise ToolError("conflict", "there is such an item already")
    state["items"][key] = {"id": key, "value": value}
    return {"count": len(state["items"])}


def count(state):
    return {"count": len(state["items"])}


def spin(state):
    n = 0
    while True:
        n += 1


def hog(state):
    rows = []
    while True:
        rows.append("x" * 1000000)


def flood(state):
    return {"count": 1, "text": "x" * 100000}


def crash(state):
    return {"count": 1 // 0}


def refuse_after_write(state, *, key):
    state["items"][key] = {"id": key, "value": 1}
    raise ToolError("refused", "no")


def sly_read(state):
    state["items"]["sly"] = {"id": "sly", "value": 1}
    return {"count": 1}


def wrong_schema(state):
    return {"count": "many"}


def bad_row(state):
    state["items"]["x"] = 5
    return {"count": 1}


def new_table(state):
    state["other"] = {"x": {"id": "x"}}
    return {"count": 1}
"""

WRITES = {"put", "refuse_after_write", "bad_row", "new_table"}
ARGS: dict[str, dict[str, Any]] = {
    "put": {
        "key": {"type": "string", "minLength": 1, "maxLength": 40},
        "value": {"type": "integer", "minimum": 0, "maximum": 1000},
    },
    "refuse_after_write": {"key": {"type": "string", "minLength": 1, "maxLength": 40}},
}
NAMES = [
    "put", "count", "spin", "hog", "flood", "crash", "refuse_after_write", "sly_read",
    "wrong_schema", "bad_row", "new_table",
]  # fmt: skip


def _tool(name: str) -> dict[str, Any]:
    arguments = ARGS.get(name, {})
    output: dict[str, Any] = {"count": {"type": "integer"}}
    if name == "flood":
        output["text"] = {"type": "string"}
    return {
        "name": name,
        "description": f"A tool of the failure tests, named {name}.",
        "input_schema": {
            "type": "object",
            "properties": arguments,
            "required": list(arguments),
            "additionalProperties": False,
        },
        "output_schema": {
            "type": "object",
            "properties": output,
            "required": list(output),
            "additionalProperties": False,
        },
        "effects": "write" if name in WRITES else "read",
    }


def nasty_bundle(**manifest: Any) -> dict[str, Any]:
    """The bundle as its single-file object; `manifest` overrides fields."""
    return {
        "format": "astra-mcp/bundle@1",
        "manifest": {
            "id": "nasty",
            "version": "1.0.0",
            "title": "Nasty",
            "summary": "Tools that fail.",
            "domain": "testing",
            "license": "CC0-1.0",
            "now": "2025-01-01T00:00:00Z",
            "provenance": {"backend": "hand", "generator": "tests/1"},
            "limits": {"call_seconds": 0.3, "memory_mb": 64, "output_bytes": 4096},
            "servers": [{"name": "main", "instructions": "Tools that fail."}],
            "tools": [_tool(name) for name in NAMES],
            **manifest,
        },
        "code": CODE,
        "state": {"items": {"a": {"id": "a", "value": 7}}},
        "sealed": {
            "canary": "ASTRA-MCP-SEALED-nasty-canary",
            "tasks": [
                {
                    "id": "t1",
                    "title": "Put one item",
                    "turns": [{"id": "u1", "say": "Put the item b with the value 41, then count."}],
                    "plan": [
                        {"id": "s1", "tool": "put", "args": {"key": "b", "value": 41}},
                        {"id": "s2", "tool": "count", "args": {}},
                    ],
                    "subtasks": [
                        {"id": "q1", "ask": "Put it.", "steps": ["s1"]},
                        {
                            "id": "q2",
                            "ask": "How many are there?",
                            "steps": ["s2"],
                            "expect": {
                                "value": 2,
                                "expr": "s2.count",
                                "match": {"kind": "number"},
                            },
                        },
                    ],
                    "answer": {
                        "value": 2,
                        "expr": "s2.count",
                        "match": {"kind": "number"},
                        "accept": ["2", "two"],
                        "reject": ["3", "1"],
                    },
                    "final_state": {
                        "rows": [{"table": "items", "where": {"id": "b", "value": 41}}]
                    },
                    "difficulty": {
                        "level": 1, "hops": 1, "steps": 2, "width": 2, "turns": 1, "writes": 1,
                        "tools": 11,
                    },
                    "max_calls": 8,
                }
            ],
        },
    }  # fmt: skip
