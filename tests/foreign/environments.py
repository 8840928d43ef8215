"""Where the clients of this folder live: the pinned npm packages with the scripts beside them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.installed import clean_env, node, npm_folder, python_of

__all__ = ["clean_env", "node", "node_folder", "python_of"]

CLIENTS = Path(__file__).resolve().parent / "clients"


def node_folder() -> Path:
    """A folder with the pinned npm packages and the client scripts beside them."""
    folder = npm_folder("node", CLIENTS)
    for script in CLIENTS.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder
