"""Fixtures of bundles served alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import COUNTER

from astra_mcp.store import load_bundle, save_dir


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The counter bundle as a directory."""
    path = tmp_path_factory.mktemp("bundles") / "counter"
    save_dir(load_bundle(COUNTER), path)
    return path
