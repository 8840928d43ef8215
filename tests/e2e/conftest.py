"""A real host in the test's own process, its control client, and bundles made for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson
import pytest

from astra_clients.control import ControlClient, EpisodeRequest, OpenedEpisode
from astra_clients.exchange import new_pool
from astra_clients.mcp_client import McpClient
from astra_mcp.host.app import Host
from astra_mcp.host.run import hosting
from astra_mcp.settings import HostSettings
from tests.e2e.nasty import nasty_bundle

ENVS = Path(__file__).parents[2] / "synthesized_envs"
DATA = Path(__file__).parents[1] / "data"
CONTROL_TOKEN = "control-token-of-the-tests-0123456789"


@dataclass
class Rig:
    """A host with clients of both planes."""

    host: Host
    pool: aiohttp.ClientSession
    control: ControlClient

    async def open(self, task: str, **options: object) -> OpenedEpisode:
        """Open an episode."""
        return await self.control.open_episode(EpisodeRequest(task=task, **options))

    def agent(self, opened: OpenedEpisode) -> McpClient:
        """The agent's plane of an episode."""
        return McpClient(self.pool, opened.endpoint)


Rigger = Callable[..., AbstractAsyncContextManager[Rig]]


@asynccontextmanager
async def rigged(*paths: Path, **settings: object) -> AsyncIterator[Rig]:
    """A host over these bundles."""
    options = HostSettings.model_validate({"unaudited": True, **settings})
    async with hosting(paths or (ENVS,), options, CONTROL_TOKEN) as host, new_pool() as pool:
        url = f"{host.url}/control/mcp"
        yield Rig(host, pool, ControlClient(pool, url, CONTROL_TOKEN, busy_s=0.1))


@pytest.fixture
def rig_of() -> Rigger:
    """`async with rig_of(*paths, **settings) as rig`."""
    return rigged


@pytest.fixture
def nasty(tmp_path: Path) -> Path:
    """A bundle whose tools fail in every way."""
    path = tmp_path / "nasty.json"
    path.write_bytes(orjson.dumps(nasty_bundle()))
    return path
