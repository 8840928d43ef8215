"""`astra new`: a complete small bundle to start from.

What is written loads, replays and is solved by its own golden plan at once, so that an author
always edits something that works. Nothing that exists is ever overwritten. The example itself
stands in templates/new/; this module only fills in identity, title and licence.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

from astra_mcp.bundle import FORMAT, Bundle
from astra_mcp.errors import UsageError
from astra_mcp.licences import check_spdx
from astra_mcp.store import load_json, save_dir

Json = Any

GUIDE: Final = "EDITING.md"
MAX_TITLE: Final = 120
_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TEMPLATES: Final = files("astra_mcp") / "templates" / "new"


def new_bundle(path: Path, *, title: str, licence: str) -> list[Path]:
    """Write a small working bundle in directory form.

    Args:
        path: Directory to make; its last part becomes the bundle's id.
        title: One line, shown to people.
        licence: SPDX expression for the bundle and its invented data.

    Returns:
        The files written, sorted; the guide `EDITING.md` is among them.

    Raises:
        UsageError: the path exists, or its name or the title does not do.
        BundleError: the licence is not known to SPDX.
    """
    path = Path(path)
    _check_free(path)
    bundle = example_bundle(_id_of(path), title=_one_line(title), licence=check_spdx(licence))
    save_dir(bundle, path)
    # The loader takes any spelling of the state; people need one with line breaks.
    (path / "state.json").write_text(_text("state.json"), encoding="utf-8")
    (path / GUIDE).write_text(_guide(bundle.manifest.id), encoding="utf-8")
    return sorted(file for file in path.rglob("*") if file.is_file())


def example_bundle(bundle_id: str, *, title: str, licence: str) -> Bundle:
    """The bundle that `new_bundle` writes, in memory."""
    return load_json(
        {
            "format": FORMAT,
            "manifest": {
                "id": bundle_id,
                "version": "0.1.0",
                "title": title,
                **json.loads(_text("manifest.json")),
                "license": licence,
                "provenance": {
                    "backend": "hand",
                    "generator": "astra-new/1",
                    "sources": [{"name": "invented for this bundle", "license": licence}],
                },
            },
            "code": _text("tools.py.txt"),
            "state": json.loads(_text("state.json")),
            "sealed": {
                "canary": f"ASTRA-MCP-SEALED-{bundle_id}",
                "tasks": json.loads(_text("tasks.json")),
            },
        },
        name=f"template of {bundle_id}",
    )


def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _guide(bundle_id: str) -> str:
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(_text(f"{GUIDE}.j2")).render(id=bundle_id)


def _check_free(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists.", "Choose a path that does not; nothing is overwritten.")


def _id_of(path: Path) -> str:
    name = path.resolve().name
    if len(name) > 80 or _ID.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} cannot be the id of a bundle.",
            "Name the directory in lower case with single hyphens, such as my-env.",
        )
    return name


def _one_line(title: str) -> str:
    title = title.strip()
    if not title or len(title) > MAX_TITLE or not title.isprintable():
        raise UsageError(
            "The title is empty, too long or not one line.",
            f"Give one line of at most {MAX_TITLE} characters.",
        )
    return title
