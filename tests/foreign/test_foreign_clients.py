"""Real third-party clients, each in its own environment, on every way to reach an environment.

Each client lists the tools and calls them on a bundle served alone over stdio, on the host's
ungraded URL and on an episode's URL, in each protocol era that it speaks. The counter tells whether
the state is kept: 1, 2, 3 within one visit. Everything else in the report (list, failures, unknown
tool) must be the same wherever and however a client calls.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from running import Foreign, Host, Target, together

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

OLD, NEW = "2025-11-25", "2026-07-28"

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
Commands = dict[str, list[str]]


@pytest.fixture
async def places(request: pytest.FixtureRequest, counter: Path, host: Host) -> dict[str, Target]:
    """Where clients are sent: a server of their own, /envs, and an episode of this test."""
    return {
        "stdio": {"command": [sys.executable, str(counter / "server.py")]},
        "envs": {"url": host.envs},
        "episodes": {"url": await host.open_episode(request.node.name)},
    }


@pytest.mark.parametrize(
    ("client", "mode", "protocol"), CLIENTS, ids=[f"{c}-{m}" for c, m, _ in CLIENTS]
)
async def test_a_client_keeps_its_state_and_sees_the_same_server_everywhere(
    client: str,
    mode: Any,
    protocol: str,
    places: dict[str, Target],
    commands: Commands,
    foreign: Foreign,
) -> None:
    reports = await together(
        {
            place: partial(foreign.report, commands[client], target | {"mode": mode})
            for place, target in places.items()
        }
    )
    assert set(reports) == {"stdio", "envs", "episodes"}
    for place, report in reports.items():
        assert report["counted"] == [1, 2, 3], place
        assert report["read"] == 53, place
        assert report["tools"] == {"increment": False, "read_counter": True}, place
        assert report["server"] == "counter", place
        assert report["instructions"] == "Move the counter and read it.", place
        assert report["invalid"]["isError"], place
        assert report["invalid"]["text"].startswith("invalid_arguments: "), place
        assert report["refused"]["isError"], place
        assert report["refused"]["text"] == "limit_reached: the counter stops at 100", place
        assert report["unknown"]["code"] == -32602, place
        assert report["unknown"]["text"].endswith("Unknown tool: no_such_tool"), place
        # An ungraded URL serves sessions only, so a client that would rather speak 2026 falls
        # back; the 1.x client does not say what it speaks over stdio.
        expected = None if (client, place) == ("ts-v1", "stdio") else protocol
        assert report["protocol"] == (OLD if place == "envs" else expected), place


@pytest.mark.parametrize(("client", "mode"), ONLY_NEW, ids=[c for c, _ in ONLY_NEW])
async def test_a_client_that_insists_on_2026_is_told_so_by_envs_and_served_by_play(
    client: str, mode: Any, host: Host, commands: Commands, foreign: Foreign
) -> None:
    urls = {"envs": host.envs, "play": await host.play()}
    reports = await together(
        {
            place: partial(foreign.report, commands[client], {"url": url, "mode": mode})
            for place, url in urls.items()
        }
    )
    refused = reports["envs"]
    assert refused["code"] == -32022 or OLD in refused["refused_to_connect"]
    assert reports["play"]["protocol"] == NEW
    assert reports["play"]["counted"] == [1, 2, 3]


class Inspector:
    """The Inspector's command line: one process, one connection and one method per run."""

    def __init__(self, command: list[str], foreign: Foreign, target: Target, era: str) -> None:
        self._foreign = foreign
        self._where = ["--server-url", target["url"]] if "url" in target else target["command"]
        self._command = [*command, "--protocol-era", era]

    async def run(self, method: str, *options: str) -> Any:
        """The result of one method."""
        command = [*self._command, "--method", method, *options, *self._where]
        done = await self._foreign.run(command)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        return json.loads(done.stdout)["result"]

    async def visit(self) -> tuple[list[str], list[int]]:
        """The names it lists, and what three runs count."""
        names = [tool["name"] for tool in (await self.run("tools/list"))["tools"]]
        call = ("tools/call", "--tool-name", "increment")
        return names, [(await self.run(*call))["structuredContent"]["value"] for _ in range(3)]

    async def burst(self) -> tuple[int, int, int]:
        """Three calls by 50 in one run: how many succeed, fail as tools, fail otherwise."""
        three = ["--load", "--load-requests", "3", "--load-concurrency", "1"]
        args = ["--tool-name", "increment", "--tool-args-json", '{"by": 50}']
        told = await self.run("tools/call", *args, *three)
        return told["ok"], told["toolErrors"], told["errors"]


async def test_inspector_runs_share_the_state_of_an_episode_and_nothing_else(
    places: dict[str, Target], commands: Commands, foreign: Foreign, host: Host
) -> None:
    command = commands["inspector"]
    again = {"url": await host.open_episode("inspector-2026")}
    jobs = {
        place: Inspector(command, foreign, target, "legacy").visit
        for place, target in places.items()
    }
    jobs["episodes, 2026"] = Inspector(command, foreign, again, "modern").visit
    visits = await together(jobs)
    for place, (names, _) in visits.items():
        assert names == ["increment", "read_counter"], place
    # Each run is a process with a connection of its own. An episode is a handle in the URL, so its
    # state outlives them; a server started for the run, or an ungraded session, begins anew.
    assert {place: counted for place, (_, counted) in visits.items()} == {
        "stdio": [1, 1, 1],
        "envs": [1, 1, 1],
        "episodes": [1, 2, 3],
        "episodes, 2026": [1, 2, 3],
    }


async def test_inspector_keeps_the_state_within_one_run(
    places: dict[str, Target], commands: Commands, foreign: Foreign
) -> None:
    bursts = await together(
        {
            place: Inspector(commands["inspector"], foreign, target, "auto").burst
            for place, target in places.items()
        }
    )
    # 50, 100, then the counter refuses: it remembers the calls before.
    assert bursts == dict.fromkeys(places, (2, 1, 0))
