"""Fixtures that every test may use."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, the host's and the sandbox's only event loop."""
    return "asyncio"
