"""What every Python client does with a connected counter bundle; the report is one JSON line.

Runs in a virtual environment that holds one client and nothing of this project. The target comes
as JSON in argv[1]: {"url": ..., "mode": ...} or {"command": [...], "mode": ...}. An isError result
and a raised protocol error are both facts to report, never a reason to stop.
"""

import asyncio
import json
import sys
from typing import Any

TARGET: dict[str, Any] = json.loads(sys.argv[1])


async def ask(call: Any, name: str, args: dict[str, Any]) -> dict[str, Any]:
    """One call as {value}, {isError} or {code}; `call` gives (is_error, structured, text)."""
    try:
        is_error, structured, text = await call(name, args)
    except Exception as error:
        return {"code": getattr(error, "code", None), "text": str(error)}
    if is_error:
        return {"isError": True, "text": text}
    return {"value": structured["value"], "text": text}


async def walk(call: Any, tools: Any, client: Any) -> dict[str, Any]:
    """The calls that every client makes, and what it knows of the connection."""
    report: dict[str, Any] = {
        "server": client.server_info.name if client.server_info else None,
        "instructions": client.instructions,
        "protocol": client.protocol_version,
        "tools": {tool.name: tool.annotations.read_only_hint for tool in tools},
    }
    report["counted"] = [(await ask(call, "increment", {})).get("value") for _ in range(3)]
    report["invalid"] = await ask(call, "increment", {"by": 0})
    await ask(call, "increment", {"by": 50})
    report["refused"] = await ask(call, "increment", {"by": 50})
    report["unknown"] = await ask(call, "no_such_tool", {})
    report["read"] = (await ask(call, "read_counter", {})).get("value")
    return report


def main(visit: Any) -> None:
    """Print the report, or the protocol error that ended the connection before it."""
    try:
        report = asyncio.run(visit())
    except Exception as raised:
        error: BaseException = raised
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if getattr(error, "code", None) is None:
            raise
        report = {"refused_to_connect": str(error), "code": error.code}
    print(json.dumps(report))
