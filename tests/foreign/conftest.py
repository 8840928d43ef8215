"""The counter bundle, one host that serves it, and the installed clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from environments import node, node_folder, python_of
from running import Foreign, Host

from astra_mcp.cli.hosted import running_host
from astra_mcp.store import load_bundle, save_dir

HERE = Path(__file__).resolve().parent

FASTMCP = "fastmcp==4.2.3"
MCP = "mcp==2.3.0"


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The counter bundle as a directory."""
    path = tmp_path_factory.mktemp("bundles") / "counter"
    save_dir(load_bundle(HERE.parent / "data" / "counter.json"), path)
    return path


@pytest.fixture(scope="session")
def host(counter: Path) -> Iterator[Host]:
    """One host for all tests of this folder."""
    with running_host([counter], ["--unaudited"]) as hosted:
        yield Host(hosted)


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    """A runner whose clients see an empty home."""
    return Foreign(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def commands() -> dict[str, list[str]]:
    """How each client is started; installs them all at first use."""
    scripts, folder = HERE / "clients", node_folder()
    inspector = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    return {
        "fastmcp": [str(python_of("fastmcp", FASTMCP)), str(scripts / "fastmcp_client.py")],
        "mcp": [str(python_of("mcp", MCP)), str(scripts / "mcp_client.py")],
        "ts-v1": [str(node()), str(folder / "ts_v1.mjs")],
        "ts-v2": [str(node()), str(folder / "ts_v2.mjs")],
        "inspector": [str(node()), str(folder / inspector), "--cli", "--format", "json", "--quiet"],
    }
