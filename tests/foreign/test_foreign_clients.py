"""Real third-party clients, each in its own environment, on every way to reach an environment.

Each client lists the tools and calls them on a bundle served alone over stdio, on the host's
ungraded URL and on an episode's URL, in each protocol era that it speaks. The counter tells whether
the state is kept: 1, 2, 3 within one visit. Everything else in the report (list, failures, unknown
tool) must be the same wherever and however a client calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from running import Foreign, Host

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

OLD, NEW = "2025-11-25", "2026-07-28"
PLACES = ["stdio", "envs", "episodes"]

#: (client, negotiation, protocol it ends up with where both eras are served)
CLIENTS: list[tuple[str, Any, str]] = [
    ("fastmcp", "auto", NEW),
    ("fastmcp", "legacy", OLD),
    ("mcp", "auto", NEW),
    ("mcp", "legacy", OLD),
    ("ts-v1", None, OLD),
    ("ts-v2", "auto", NEW),
    ("ts-v2", "legacy", OLD),
]
ONLY_NEW: list[tuple[str, Any]] = [("fastmcp", NEW), ("mcp", NEW), ("ts-v2", {"pin": NEW})]

Target = Callable[[str], Awaitable[dict[str, Any]]]


@pytest.fixture
def target(request: pytest.FixtureRequest, counter: Path, host: Host) -> Target:
    """Where a client is sent, by the name of the place."""

    async def find(place: str) -> dict[str, Any]:
        if place == "stdio":
            return {"command": [sys.executable, str(counter / "server.py")]}
        if place == "envs":
            return {"url": host.envs}
        return {"url": await host.open_episode(request.node.name)}

    return find


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("client", "mode", "protocol"), CLIENTS, ids=[f"{c}-{m}" for c, m, _ in CLIENTS]
)
async def test_a_client_keeps_its_state_and_sees_the_same_server_everywhere(
    client: str,
    mode: Any,
    protocol: str,
    place: str,
    target: Target,
    commands: dict[str, list[str]],
    foreign: Foreign,
) -> None:
    report = foreign.report(commands[client], {**await target(place), "mode": mode})
    assert report["counted"] == [1, 2, 3]
    assert report["read"] == 53
    assert report["tools"] == {"increment": False, "read_counter": True}
    assert report["server"] == "counter"
    assert report["instructions"] == "Move the counter and read it."
    assert report["invalid"]["isError"]
    assert report["invalid"]["text"].startswith("invalid_arguments: ")
    refused = {"isError": True, "text": "limit_reached: the counter stops at 100"}
    assert report["refused"] == refused
    assert report["unknown"]["code"] == -32602
    assert report["unknown"]["text"].endswith("Unknown tool: no_such_tool")
    # An ungraded URL serves sessions only, so a client that would rather speak 2026 falls back;
    # the 1.x client does not say what it speaks over stdio.
    expected = OLD if place == "envs" else protocol
    assert report["protocol"] == (None if (client, place) == ("ts-v1", "stdio") else expected)


@pytest.mark.parametrize(("client", "mode"), ONLY_NEW, ids=[c for c, _ in ONLY_NEW])
async def test_a_client_that_insists_on_2026_is_told_so_by_envs_and_served_by_play(
    client: str, mode: Any, host: Host, commands: dict[str, list[str]], foreign: Foreign
) -> None:
    refused = foreign.report(commands[client], {"url": host.envs, "mode": mode})
    assert refused["code"] == -32022 or "2025-11-25" in refused["refused_to_connect"]
    url = await host.play()
    report = foreign.report(commands[client], {"url": url, "mode": mode})
    assert report["protocol"] == NEW
    assert report["counted"] == [1, 2, 3]


class Inspector:
    """The Inspector's command line: one process, one connection and one method per run."""

    def __init__(self, command: list[str], foreign: Foreign, target: dict[str, Any], era: str):
        self._foreign = foreign
        where = ["--server-url", target["url"]] if "url" in target else target["command"]
        self._command = [*command, "--protocol-era", era]
        self._where = where

    def run(self, *options: str, code: int = 0) -> Any:
        """What it prints as JSON, of stdout or, on an error, of stderr."""
        done = self._foreign.run([*self._command, *options, *self._where])
        assert done.returncode == code, done.stderr[-3000:]
        return json.loads((done.stdout if code == 0 else done.stderr).strip().splitlines()[-1])

    def count(self) -> int:
        """One `increment`."""
        answer = self.run("--method", "tools/call", "--tool-name", "increment")
        return int(answer["result"]["structuredContent"]["value"])


@pytest.mark.parametrize(
    ("place", "era"),
    [("stdio", "modern"), ("envs", "legacy"), ("episodes", "legacy"), ("episodes", "modern")],
)
async def test_inspector(
    place: str, era: str, target: Target, commands: dict[str, list[str]], foreign: Foreign
) -> None:
    inspector = Inspector(commands["inspector"], foreign, await target(place), era)
    tools = inspector.run("--method", "tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["increment", "read_counter"]
    # Each run is a process with a connection of its own. An episode is a handle in the URL, so its
    # state outlives them; a server started for the run, or an ungraded session, begins anew.
    counted = [inspector.count() for _ in range(3)]
    assert counted == ([1, 2, 3] if place == "episodes" else [1, 1, 1])


@pytest.mark.parametrize("place", ["stdio", "envs"])
async def test_inspector_keeps_the_state_within_one_run(
    place: str, target: Target, commands: dict[str, list[str]], foreign: Foreign
) -> None:
    inspector = Inspector(commands["inspector"], foreign, await target(place), "auto")
    call = ["--method", "tools/call", "--tool-name", "increment", "--tool-args-json", '{"by": 50}']
    three = ["--load", "--load-requests", "3", "--load-concurrency", "1"]
    summary = inspector.run(*call, *three)["result"]
    # 50, 100, then the counter refuses: it remembers the calls before.
    assert (summary["ok"], summary["toolErrors"], summary["errors"]) == (2, 1, 0)
