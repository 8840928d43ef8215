"""docs/clients.md shows configurations that start a working server."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from astra_mcp.store import load_bundle, save_dir

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")


def stdio_entries() -> list[dict[str, Any]]:
    """Every entry of every JSON block that names a command."""
    blocks = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    servers = [block.get("mcpServers") or block["servers"] for block in blocks]
    return [entry for group in servers for entry in group.values() if "command" in entry]


def test_the_page_has_a_block_for_each_application() -> None:
    assert len(stdio_entries()) == 3


@pytest.mark.parametrize("number", range(3))
async def test_the_command_of_each_block_starts_the_server(number: int, tmp_path: Path) -> None:
    save_dir(load_bundle(ROOT / "tests" / "data" / "counter.json"), tmp_path / "counter")
    entry = stdio_entries()[number]
    real = {
        "/path/to/.venv/bin/python": sys.executable,
        "/path/to/bundle": str(tmp_path / "counter"),
    }
    words = [entry["command"], *entry["args"]]
    for shown, path in real.items():
        words = [word.replace(shown, path) for word in words]
    parameters = StdioServerParameters(command=words[0], args=words[1:], cwd="/")
    with anyio.fail_after(30):
        async with Client(stdio_client(parameters)) as client:
            result = await client.call_tool("increment", {})
    assert result.structured_content == {"value": 1}
