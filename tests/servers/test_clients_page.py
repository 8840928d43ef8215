"""docs/clients.md shows configurations that start a working server."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client

from astra_mcp.store import load_bundle, save_dir

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")


def stdio_entries() -> list[dict[str, Any]]:
    """Every entry of every JSON block that names a command."""
    blocks = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    servers = [block.get("mcpServers") or block["servers"] for block in blocks]
    return [entry for group in servers for entry in group.values() if "command" in entry]


async def test_the_command_of_the_blocks_starts_the_server(tmp_path: Path) -> None:
    commands = [[entry["command"], *entry["args"]] for entry in stdio_entries()]
    assert len(commands) == 3
    assert commands == [commands[0]] * 3
    save_dir(load_bundle(ROOT / "tests" / "data" / "counter.json"), tmp_path / "counter")
    python, script = commands[0]
    assert python == "/path/to/.venv/bin/python"
    real = script.replace("/path/to/bundle", str(tmp_path / "counter"))
    parameters = StdioServerParameters(command=sys.executable, args=[real], cwd="/")
    with anyio.fail_after(30):
        async with Client(stdio_client(parameters)) as client:
            result = await client.call_tool("increment", {})
    assert result.structured_content == {"value": 1}
