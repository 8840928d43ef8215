"""Bundles with bytes and fields changed: the loader and `astra check` give findings, nothing else.

A mutant either loads or raises BundleError with one clear sentence; no other exception, no hang.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from click.testing import CliRunner

from astra_mcp.cli.bundles import check
from astra_mcp.errors import BundleError
from astra_mcp.store import load_bundle, load_json, read_identity
from astra_mcp.store.reading import load_public, read_manifest
from tests.e2e.conftest import DATA, ENVS
from tests.fuzz.mutate import bend_text, bend_tree

Json = Any
SINGLE = [DATA / "counter.json", DATA / "tea_shop.json"]
FOLDER = sorted(path for path in ENVS.iterdir() if (path / "bundle.json").is_file())[0]
LOADERS: tuple[Callable[[Path], Any], ...] = (
    load_bundle,
    load_public,
    read_manifest,
    read_identity,
)
Source = TypeVar("Source")


def loads(load: Callable[[Source], Any], source: Source) -> bool:
    """Whether it loads; what it raises otherwise is a BundleError that a person can read."""
    try:
        load(source)
    except BundleError as error:
        refusal = error
    else:
        return True
    assert refusal.message
    assert refusal.remedy
    assert "Traceback" not in str(refusal)
    assert "\n" not in str(refusal)
    return False


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.stem)
def test_a_bundle_with_changed_fields_loads_or_is_refused(path: Path) -> None:
    whole = orjson.loads(path.read_bytes())
    loaded = 0
    for seed in range(250):
        rng = random.Random(f"fields:{seed}")
        value = json.loads(json.dumps(whole))
        # Not the whole tree alone: deep places are where the format is.
        for _ in range(rng.choice([1, 1, 2])):
            part = rng.choice([value, value["manifest"], value["sealed"]["tasks"][0]])
            bend_tree(part, rng)
            if not _has_parts(value):
                break
        text = json.dumps(value)
        loaded += loads(load_json, text)
    assert 0 < loaded < 250


def _has_parts(value: Json) -> bool:
    try:
        return isinstance(value["sealed"]["tasks"][0], dict) and isinstance(value["manifest"], dict)
    except (KeyError, TypeError, IndexError):
        return False


def test_a_bundle_file_with_changed_bytes_loads_or_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bent.json"
    whole = SINGLE[0].read_bytes()
    for seed in range(200):
        rng = random.Random(f"bytes:{seed}")
        data = whole
        for _ in range(rng.choice([1, 1, 3])):
            data = bend_text(data, rng)
        path.write_bytes(data)
        for load in LOADERS:
            loads(load, path)


def test_a_bundle_directory_with_changed_files_loads_or_is_refused(tmp_path: Path) -> None:
    files = ["bundle.json", "tools.py", "state.json", "sealed/tasks.jsonl"]
    loaded = 0
    for seed in range(120):
        rng = random.Random(f"folder:{seed}")
        folder = tmp_path / str(seed)
        shutil.copytree(FOLDER, folder)
        file = folder / rng.choice(files)
        match rng.randrange(8):
            case 0:
                file.unlink()
            case 1:
                file.unlink()
                file.mkdir()
            case 2:
                file.write_bytes(b"")
            case _:
                file.write_bytes(bend_text(file.read_bytes(), rng))
        for load in LOADERS:
            loaded += loads(load, folder)
        loads(partial(load_bundle, verify=False), folder)
        shutil.rmtree(folder)
    assert loaded > 0


def test_astra_check_reports_findings_on_bent_bundles(tmp_path: Path) -> None:
    """All in one run: one that is broken does not keep the others from being checked."""
    whole = orjson.loads(SINGLE[0].read_bytes())
    for seed in range(30):
        rng = random.Random(f"check:{seed}")
        value = json.loads(json.dumps(whole))
        task = value["sealed"]["tasks"][0]
        parts = [value["manifest"], task, task["plan"][0], task["subtasks"][0], value["state"]]
        part = rng.choice(parts)
        bend_tree(part, rng)
        if rng.random() < 0.4:
            value["code"] = bend_text(value["code"].encode(), rng).decode("utf-8", "replace")
        (tmp_path / f"b{seed:02}.json").write_text(json.dumps(value))
    (tmp_path / "whole.json").write_bytes(SINGLE[0].read_bytes())
    result = CliRunner().invoke(check, [str(tmp_path), "--json"])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert len(found) == 31
    assert found[str(tmp_path / "whole.json")]["findings"] == []
    assert sum(bool(checked["findings"]) for checked in found.values()) > 10
    assert "Traceback" not in result.output
