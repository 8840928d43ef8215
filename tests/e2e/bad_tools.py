"""A bundle whose tools attack the sandbox with what the language lets them say, and broken bundles.

What escapes the language layer is private API and stands in tests/sandbox/test_os_attacks.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from tests.e2e.nasty import nasty_bundle

MEMORY = "memory_limit"
#: Tool -> (its body, codes that the call may fail with).
TOOLS: dict[str, tuple[str, set[str]]] = {
    "loops": ("while True:\n        pass", {"timeout"}),
    "loops_and_catches": (
        "while True:\n        try:\n            while True:\n                pass\n"
        "        except Exception:\n            pass",
        {"timeout"},
    ),
    "allocates": ('rows = []\n    while True:\n        rows.append("x" * 1000000)', {MEMORY}),
    "allocates_at_once": ('return {"count": len("x" * (1 << 40))}', {MEMORY}),
    "doubles": ("rows = [1]\n    while True:\n        rows += rows", {MEMORY, "timeout"}),
    "counts_high": ('return {"count": len(str(9 ** 9 ** 9))}', {"timeout", MEMORY, "crash"}),
    "prints": ('while True:\n        print("x" * 100000)', {"timeout", "output_limit", "crash"}),
    "returns_a_gigabyte": (
        'return {"count": 1, "text": "x" * (1 << 30)}',
        {"output_limit", MEMORY, "crash"},
    ),
    "returns_megabytes": ('return {"count": 1, "text": "x" * (8 << 20)}', {"output_limit"}),
    "returns_depth": (
        "value = []\n    for _ in range(10000):\n        value = [value]\n"
        '    return {"count": 1, "text": value}',
        {"output_limit", "crash", "contract_violation"},
    ),
    "returns_itself": (
        'value = {}\n    value["count"] = value\n    return value',
        {"crash", "output_limit", "contract_violation"},
    ),
    "returns_no_json": ('return {"count": {1, 2}}', {"crash", "contract_violation"}),
    "returns_nan": ('return {"count": 1e308 * 10 - 1e308 * 10}', {"crash", "contract_violation"}),
    "recurses": ("return recurses(state)", {"crash", MEMORY, "timeout"}),
    "exits": ("raise SystemExit(0)", {"crash"}),
    "interrupts": ("raise KeyboardInterrupt()", {"crash"}),
    "ends_generators": ("raise GeneratorExit()", {"crash"}),
    "writes_depth": (
        "value = []\n    for _ in range(10000):\n        value = [value]\n"
        '    state["items"]["deep"] = {"id": "deep", "value": value}\n    return {"count": 1}',
        {"contract_violation", "output_limit", "crash"},
    ),
    "writes_a_gigabyte": (
        'state["items"]["big"] = {"id": "big", "value": "x" * (1 << 30)}\n    return {"count": 1}',
        {"contract_violation", "output_limit", MEMORY, "crash"},
    ),
    "empties": ("state.clear()\n    return {}", {"contract_violation", "crash"}),
}  # fmt: skip
#: What a bundle cannot even load with: bundle id -> code of its one tool.
UNLOADABLE: dict[str, str] = {
    "forks": "import os\ndef count(state):\n    os.fork()\n    return {'count': 1}\n",
    "kills": "import os\ndef count(state):\n    os.kill(os.getpid(), 9)\n    return {'count': 1}\n",
    "threads": "import threading\ndef count(state):\n    return {'count': 1}\n",
    "loops-at-start": "while True:\n    pass\ndef count(state):\n    return {'count': 1}\n",
    "allocates-at-start": "X = 'x' * (1 << 40)\ndef count(state):\n    return {'count': 1}\n",
    "exits-at-start": "raise SystemExit(1)\ndef count(state):\n    return {'count': 1}\n",
    "is-no-python": "def count(state:\n",
    "is-deep-python": "def count(state):\n    return " + "(" * 3000 + ")" * 3000,
}


def _tool(name: str, effects: str) -> dict[str, Any]:
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    properties = {"count": {"type": "integer"}, "text": {"type": "string"}}
    return {
        "name": name,
        "description": f"A tool of the bad-input tests, named {name}.",
        "input_schema": nothing,
        "output_schema": {**nothing, "properties": properties},
        "effects": effects,
    }  # fmt: skip


def bad_tools_bundle(bundle_id: str = "bad-tools") -> dict[str, Any]:
    """The nasty bundle with these tools beside its `put` and `count`."""
    raw = nasty_bundle(id=bundle_id)
    kept = {"put", "count"}
    raw["manifest"]["tools"] = [t for t in raw["manifest"]["tools"] if t["name"] in kept]
    for name, (body, _) in TOOLS.items():
        raw["code"] += f"\n\ndef {name}(state):\n    {body}\n"
        effects = "write" if name.startswith(("writes", "empties")) else "read"
        raw["manifest"]["tools"].append(_tool(name, effects))
    raw["sealed"]["tasks"][0]["difficulty"]["tools"] = len(raw["manifest"]["tools"])
    raw["sealed"]["tasks"][0]["max_calls"] = 200
    raw["sealed"]["canary"] = f"ASTRA-MCP-SEALED-{bundle_id}"
    return raw


def write_bundles(folder: Path) -> None:
    """A folder of bundles to serve, good and bad."""
    (folder / "bad-tools.json").write_bytes(orjson.dumps(bad_tools_bundle()))
    for name, code in UNLOADABLE.items():
        raw = nasty_bundle(id=name)
        raw["manifest"]["tools"] = [t for t in raw["manifest"]["tools"] if t["name"] == "count"]
        raw["code"] = code
        plan = raw["sealed"]["tasks"][0]
        plan["plan"] = [{"id": "s2", "tool": "count", "args": {}}]
        plan["subtasks"] = plan["subtasks"][1:]
        plan.pop("final_state")
        plan["difficulty"] |= {"hops": 1, "steps": 1, "width": 1, "writes": 0, "tools": 1}
        (folder / f"{name}.json").write_bytes(orjson.dumps(raw))
    whole = orjson.dumps(nasty_bundle(id="torn"))
    (folder / "torn.json").write_bytes(whole[: len(whole) // 2])
    (folder / "binary.json").write_bytes(b'"astra-mcp/bundle@1"' + bytes(range(256)) * 4)
    (folder / "twice.json").write_bytes(whole.replace(b'"torn"', b'"twice","id":"twice"', 1))
    deep = whole.replace(b'"torn"', b'"deep"', 1)
    (folder / "deep.json").write_bytes(
        deep.replace(b'"value":7', b'"value":' + b"[" * 900 + b"]" * 900)
    )
    unknown = nasty_bundle(id="unknown-field", colour="red")
    (folder / "unknown-field.json").write_bytes(orjson.dumps(unknown))
