"""A running host, and third-party clients run as processes against it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
from environments import clean_env
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from astra_mcp.cli.hosted import Hosted

T = TypeVar("T")
Target = dict[str, Any]
RUN_S = 60.0


@dataclass
class Host:
    """The running host, and what a trainer does there to let an agent in."""

    hosted: Hosted

    @property
    def envs(self) -> str:
        """Where any client gets an ungraded counter."""
        return f"{self.hosted.url}/envs/counter/mcp"

    async def open_episode(self, request_id: str) -> str:
        """The endpoint of a new episode."""
        opened = await self.control("open_episode", task="counter#t1", request_id=request_id)
        return str(opened["endpoint"])

    async def control(self, tool: str, **args: Any) -> Any:
        """One call of a control tool."""
        headers = {"Authorization": f"Bearer {self.hosted.token}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(self.hosted.control_url, http_client=http)) as client,
        ):
            result = await client.call_tool(tool, args)
        assert not result.is_error, result.content
        return result.structured_content

    async def play(self) -> str:
        """The endpoint of a new ungraded episode."""
        async with httpx2.AsyncClient() as http:
            answer = await http.post(f"{self.hosted.url}/play/counter")
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["url"])


class Foreign:
    """Runs third-party clients as processes."""

    def __init__(self, home: Path) -> None:
        self._env = clean_env(home)

    async def report(self, command: list[str], target: Target) -> dict[str, Any]:
        """What a client script tells of its visit to a target."""
        done = await self.run([*command, json.dumps(target)])
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return facts

    async def run(self, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        """One process to its end."""
        with anyio.fail_after(RUN_S):
            return await anyio.run_process(command, env=self._env, check=False)


async def together(jobs: Mapping[str, Callable[[], Awaitable[T]]]) -> dict[str, T]:
    """Every job's result, two jobs at a time."""
    results: dict[str, T] = {}
    two = anyio.CapacityLimiter(2)

    async def one(name: str, job: Callable[[], Awaitable[T]]) -> None:
        async with two:
            results[name] = await job()

    async with anyio.create_task_group() as tasks:
        for name, job in jobs.items():
            tasks.start_soon(one, name, job)
    return results
