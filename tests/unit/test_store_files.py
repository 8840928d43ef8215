"""Bundles on disk: refused with a sentence when not right, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from graderkit import TEA_SHOP, tea_shop
from storekit import RAW, raw, refusal

from astra_mcp.store import (
    MAX_FILE_BYTES,
    find_bundles,
    load_bundle,
    load_json,
    load_public,
    read_identity,
    read_manifest,
    save_dir,
    save_json,
)


@pytest.fixture
def shop_dir(tmp_path: Path) -> Path:
    path = tmp_path / "tea-shop"
    save_dir(tea_shop(), path)
    return path


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "no JSON"),
            ("[1, 2", "no JSON"),
            ("[]", "no JSON object"),
            ('{"format": "astra-mcp/bundle@2"}', "not of the format"),
            ('{"a": 1, "a": 2}', "'a' stands twice"),
            ('{"a": {"b": NaN}}', "NaN is no JSON number"),
            ('{"a": -Infinity}', "no JSON number"),
            ('{"a": 1e999}', "too large"),
            ('{"a": "\\ud800"}', "surrogate"),
            ('{"a": ' + "9" * 5000 + "}", "too many digits"),
            ("[" * 100_000, "nested too deep"),
        ],
    )
    def test_bad_json(self, text: str, says: str) -> None:
        assert says in refusal(lambda: load_json(text))

    def test_bad_utf8(self, shop_dir: Path) -> None:
        (shop_dir / "tools.py").write_bytes(b"x = '\xff'")
        assert "not UTF-8 at byte 5" in refusal(lambda: load_bundle(shop_dir))
        assert "not UTF-8" in refusal(lambda: load_json(b"\xff\xfe"))

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"manifest__license": "Beerware-9"}, "manifest.license"),
            ({"manifest__tools__0__effects": "maybe"}, "manifest.tools.0.effects"),
            ({"manifest__extra": 1}, "manifest.extra"),
            ({"state__orders": []}, "state.orders"),
            ({"state__orders__OR-9": 3}, "state.orders.OR-9"),
            ({"code": 3}, "code"),
            ({"sealed__tasks": []}, "sealed.tasks"),
            ({"sealed__tasks__1__plan__0__tool": "gone"}, "unknown tools ['gone']"),
            ({"state__stock__Assam__grams": 2**60}, "state"),
            ({"sealed__tasks__0__plan__0__args__name": {"$expr": "s1.["}}, "does not parse"),
        ],
    )
    def test_what_the_models_refuse_is_one_sentence_with_its_place(
        self, change: dict[str, Any], says: str
    ) -> None:
        message = refusal(lambda: load_json(raw(**change), name="shop.json"))
        assert message.startswith("shop.json: ") or message.startswith("shop.json ")
        assert says in message

    def test_a_message_does_not_quote_sealed_values(self, shop_dir: Path) -> None:
        file = shop_dir / "sealed" / "tasks.jsonl"
        text = file.read_text("utf-8").replace('"value": "RF-31"', '"value": {"secret": "RF-31"}')
        file.write_text(text, "utf-8")
        message = refusal(lambda: load_bundle(shop_dir))
        assert "sealed/tasks.jsonl task 1" in message
        assert "RF-31" not in message

    def test_a_bad_line_of_tasks_is_named(self, shop_dir: Path) -> None:
        file = shop_dir / "sealed" / "tasks.jsonl"
        file.write_text(file.read_text("utf-8") + "{oops}\n", "utf-8")
        assert "tasks.jsonl line 5" in refusal(lambda: load_bundle(shop_dir))
        file.write_text('{"id": "x"}\n', "utf-8")
        assert "canary" in refusal(lambda: load_bundle(shop_dir))
        file.write_text("", "utf-8")
        assert "canary" in refusal(lambda: load_bundle(shop_dir))

    @pytest.mark.parametrize(
        "file", ["bundle.json", "tools.py", "state.json", "sealed/tasks.jsonl"]
    )
    def test_a_link_is_refused(self, shop_dir: Path, tmp_path: Path, file: str) -> None:
        (shop_dir / file).rename(tmp_path / "elsewhere")
        (shop_dir / file).symlink_to(tmp_path / "elsewhere")
        assert "is a symbolic link" in refusal(lambda: load_bundle(shop_dir))

    def test_a_linked_sealed_folder_is_refused(self, shop_dir: Path, tmp_path: Path) -> None:
        (shop_dir / "sealed").rename(tmp_path / "elsewhere")
        (shop_dir / "sealed").symlink_to(tmp_path / "elsewhere")
        assert "is a symbolic link" in refusal(lambda: load_bundle(shop_dir))

    @pytest.mark.parametrize(
        "file", ["bundle.json", "tools.py", "state.json", "sealed/tasks.jsonl"]
    )
    def test_a_missing_file_is_named(self, shop_dir: Path, file: str) -> None:
        (shop_dir / file).unlink()
        assert f"{file} does not exist" in refusal(lambda: load_bundle(shop_dir))

    def test_a_pipe_does_not_make_it_wait(self, shop_dir: Path) -> None:
        (shop_dir / "tools.py").unlink()
        os.mkfifo(shop_dir / "tools.py")
        assert "no regular file" in refusal(lambda: load_bundle(shop_dir))

    def test_a_directory_in_place_of_a_file_is_refused(self, shop_dir: Path) -> None:
        (shop_dir / "tools.py").unlink()
        (shop_dir / "tools.py").mkdir()
        assert "no regular file" in refusal(lambda: load_bundle(shop_dir))

    def test_a_huge_file_is_refused_before_it_is_read(self, shop_dir: Path) -> None:
        with (shop_dir / "state.json").open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
        assert "larger than 64 MiB" in refusal(lambda: load_bundle(shop_dir))

    def test_an_unknown_key_of_bundle_json_is_refused(self, shop_dir: Path) -> None:
        head = json.loads((shop_dir / "bundle.json").read_text("utf-8"))
        (shop_dir / "bundle.json").write_text(json.dumps(head | {"note": 1}), "utf-8")
        assert "note is unknown" in refusal(lambda: load_bundle(shop_dir))

    def test_what_could_not_be_loaded_again_is_not_saved(self, tmp_path: Path) -> None:
        bad = tea_shop().model_copy(update={"state": {"t": {"r": {"c": 1e17}}}})
        assert "integers within" in refusal(lambda: save_dir(bad, tmp_path / "b"))
        assert list(tmp_path.iterdir()) == []

    def test_a_value_that_is_no_json_is_not_saved(self, tmp_path: Path) -> None:
        bad = tea_shop().model_copy(update={"state": {"t": {"r": {"c": float("nan")}}}})
        refusal(lambda: save_dir(bad, tmp_path / "b"))
        refusal(lambda: save_json(bad, tmp_path / "b.json"))
        assert list(tmp_path.iterdir()) == []


class TestSaving:
    def test_what_is_there_is_not_overwritten_unasked(self, shop_dir: Path, tmp_path: Path) -> None:
        assert "exists" in refusal(lambda: save_dir(tea_shop(), shop_dir))
        (tmp_path / "b.json").write_text("mine", "utf-8")
        assert "exists" in refusal(lambda: save_json(tea_shop(), tmp_path / "b.json"))
        assert (tmp_path / "b.json").read_text("utf-8") == "mine"

    def test_only_a_bundle_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "letter.txt").write_text("dear", "utf-8")
        says = refusal(lambda: save_dir(tea_shop(), tmp_path / "home", overwrite=True))
        assert "something else than a bundle" in says
        assert (tmp_path / "home" / "letter.txt").read_text("utf-8") == "dear"

    def test_overwriting_keeps_files_that_are_not_the_bundles_own(self, shop_dir: Path) -> None:
        (shop_dir / "sealed" / "audit.json").write_text('{"ok": true}', "utf-8")
        (shop_dir / "notes").mkdir()
        (shop_dir / "notes" / "a.txt").write_text("note", "utf-8")
        (shop_dir / "README.md").write_text("edited", "utf-8")
        other = load_json(raw(manifest__title="Coffee Shop"))
        save_dir(other, shop_dir, overwrite=True)
        assert load_bundle(shop_dir) == other
        assert (shop_dir / "sealed" / "audit.json").read_text("utf-8") == '{"ok": true}'
        assert (shop_dir / "notes" / "a.txt").read_text("utf-8") == "note"
        assert (shop_dir / "README.md").read_text("utf-8").startswith("# Coffee Shop")
        assert [p.name for p in shop_dir.parent.iterdir()] == [shop_dir.name]

    def test_a_write_that_fails_leaves_the_old_bundle(
        self, shop_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rename = os.rename

        def broken(src: Any, dst: Any) -> None:
            if Path(dst) == shop_dir and ".new-" in str(src):
                raise OSError("disk full")
            rename(src, dst)

        monkeypatch.setattr(os, "rename", broken)
        with pytest.raises(OSError, match="disk full"):
            save_dir(load_json(raw(manifest__title="Coffee")), shop_dir, overwrite=True)
        assert load_bundle(shop_dir) == tea_shop()
        assert [p.name for p in shop_dir.parent.iterdir()] == [shop_dir.name]

    def test_a_json_file_is_replaced_in_one_step(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_json(tea_shop(), tmp_path / "sub" / "b.json")
        before = (tmp_path / "sub" / "b.json").read_bytes()

        def broken(src: Any, dst: Any) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(os, "replace", broken)
        with pytest.raises(OSError, match="disk full"):
            save_json(load_json(raw(manifest__title="C")), tmp_path / "sub" / "b.json", True)
        assert (tmp_path / "sub" / "b.json").read_bytes() == before
        assert len(list((tmp_path / "sub").iterdir())) == 1


class TestFinding:
    def test_a_bundle_a_file_and_a_folder_of_both(self, shop_dir: Path, tmp_path: Path) -> None:
        file = tmp_path / "a.json"
        save_json(tea_shop(), file)
        (tmp_path / "notes.json").write_text('{"a": 1}', "utf-8")
        (tmp_path / "empty").mkdir()
        assert find_bundles(shop_dir) == [shop_dir]
        assert find_bundles([file]) == [file]
        assert find_bundles([tmp_path]) == [file, shop_dir]
        assert find_bundles([shop_dir, tmp_path]) == [shop_dir, file], "each once, in order"

    def test_nothing_found_is_an_error(self, tmp_path: Path) -> None:
        assert "holds no bundle" in refusal(lambda: find_bundles([tmp_path]))
        assert "does not exist" in refusal(lambda: find_bundles([tmp_path / "x"]))
        assert "No bundle was named" in refusal(lambda: find_bundles([]))

    def test_the_head_is_read_without_state_and_tasks(self, shop_dir: Path) -> None:
        shutil.rmtree(shop_dir / "sealed")
        (shop_dir / "state.json").unlink()
        assert read_manifest(shop_dir) == tea_shop().manifest
        assert read_identity(shop_dir) == ("tea-shop", "1.0.0")
        assert read_manifest(TEA_SHOP) == tea_shop().manifest
        assert read_identity(TEA_SHOP) == ("tea-shop", "1.0.0")

    def test_an_identity_that_is_missing_is_refused(self, tmp_path: Path) -> None:
        odd: list[Any] = [{}, [], None, {"id": 1, "version": "1"}, {"id": "", "version": "1"}]
        for manifest in odd:
            file = tmp_path / "b.json"
            file.write_text(json.dumps({"format": RAW["format"], "manifest": manifest}), "utf-8")
            assert "no id and version" in refusal(lambda: read_identity(tmp_path / "b.json"))

    def test_the_public_part_of_a_single_file(self) -> None:
        manifest, code, state = load_public(TEA_SHOP)
        assert (manifest.id, code, state) == ("tea-shop", RAW["code"], tea_shop().state)
