"""`astra new` writes a bundle that works at once, and never writes over anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from astra_mcp.check import check_bundle
from astra_mcp.errors import AstraError, BundleError, UsageError
from astra_mcp.sandbox import Sandbox
from astra_mcp.scaffold import GUIDE, new_bundle
from astra_mcp.store import load_bundle, repack
from astra_mcp.world import BundleWorld


def make(path: Path) -> list[Path]:
    return new_bundle(path, title="Harbour office", licence="CC0-1.0")


async def findings(path: Path) -> list[str]:
    bundle = load_bundle(path)
    sandbox = await Sandbox.start()
    try:
        world = BundleWorld.from_bundle(bundle, sandbox)
        checked = await check_bundle(bundle, world)
        await world.aclose()
    finally:
        await sandbox.aclose()
    return [f"{f.task} {f.place}: {f.problem}" for f in checked.findings]


def test_says_what_it_wrote(tmp_path: Path) -> None:
    written = make(tmp_path / "my-env")
    assert written == sorted(p for p in (tmp_path / "my-env").rglob("*") if p.is_file())
    names = {p.relative_to(tmp_path / "my-env").as_posix() for p in written}
    assert {"bundle.json", "tools.py", "state.json", "sealed/tasks.jsonl", GUIDE} <= names


def test_name_title_and_licence_are_the_authors(tmp_path: Path) -> None:
    new_bundle(tmp_path / "my-env", title="Ærø Havn", licence="MIT OR CC0-1.0")
    bundle = load_bundle(tmp_path / "my-env")
    assert (bundle.manifest.id, bundle.manifest.title) == ("my-env", "Ærø Havn")
    assert bundle.manifest.license == "MIT OR CC0-1.0"
    assert [source.license for source in bundle.manifest.provenance.sources] == ["MIT OR CC0-1.0"]
    assert "my-env" in bundle.sealed.canary


async def test_checks_and_grades_at_once(tmp_path: Path) -> None:
    make(tmp_path / "my-env")
    assert await findings(tmp_path / "my-env") == []


async def test_check_tells_an_author_what_an_edit_of_the_data_did(tmp_path: Path) -> None:
    make(tmp_path / "my-env")
    file = tmp_path / "my-env" / "state.json"
    state = json.loads(file.read_text())
    state["berths"]["BE-31"]["night_eur"] = 29.75
    file.write_text(json.dumps(state))
    with pytest.raises(BundleError, match=r"state\.json"):
        load_bundle(tmp_path / "my-env")
    repack(tmp_path / "my-env")
    found = await findings(tmp_path / "my-env")
    assert any("29.75" in finding and "answer" in finding for finding in found)


def test_the_state_is_written_for_people(tmp_path: Path) -> None:
    make(tmp_path / "my-env")
    assert len((tmp_path / "my-env" / "state.json").read_text().splitlines()) > 10


def test_the_guide_gives_no_sealed_byte_away(tmp_path: Path) -> None:
    make(tmp_path / "my-env")
    bundle = load_bundle(tmp_path / "my-env")
    guide = (tmp_path / "my-env" / GUIDE).read_text()
    secrets = [bundle.sealed.canary]
    for task in bundle.sealed.tasks:
        assert task.answer is not None
        secrets += [*task.answer.accept, *(turn.say for turn in task.turns)]
    assert [secret for secret in secrets if secret in guide] == []


def test_nothing_that_exists_is_touched(tmp_path: Path) -> None:
    make(tmp_path / "my-env")
    before = {p: p.read_bytes() for p in (tmp_path / "my-env").rglob("*") if p.is_file()}
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("my-env", "empty", "file", "dangling"):
        with pytest.raises(UsageError, match="exists"):
            make(tmp_path / name)
    assert {p: p.read_bytes() for p in before} == before
    assert (tmp_path / "file").read_text() == "mine"
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("name", ["My-Env", "my_env", "my--env", "-env", "env-", "é", "a" * 81])
def test_a_name_that_cannot_be_an_id_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="id of a bundle"):
        make(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("title", "licence"),
    [("", "CC0-1.0"), ("two\nlines", "CC0-1.0"), ("x" * 121, "CC0-1.0"), ("Fine", "NoSuch-1.0")],
)
def test_a_title_or_licence_that_will_not_do_leaves_nothing_behind(
    tmp_path: Path, title: str, licence: str
) -> None:
    with pytest.raises(AstraError):
        new_bundle(tmp_path / "my-env", title=title, licence=licence)
    assert list(tmp_path.iterdir()) == []
