"""One sandbox per test module; its tests share an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from astra_mcp.sandbox import Sandbox, SandboxSettings


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    """A sandbox whose wall deadlines are short, so that tests of hanging tools end soon."""
    started = await Sandbox.start(SandboxSettings(wall_factor=2.0, wall_margin_s=1.0))
    yield started
    await started.aclose()
