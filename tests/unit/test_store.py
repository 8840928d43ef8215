"""Bundles on disk: lossless, checked, atomic, and refused with a sentence when they are not right."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from graderkit import TEA_SHOP, tea_shop
from hypothesis import given
from hypothesis import strategies as st

from astra_mcp.bundle import Bundle
from astra_mcp.errors import BundleError
from astra_mcp.store import (
    MAX_FILE_BYTES,
    dump_json,
    find_bundles,
    load_bundle,
    load_json,
    load_public,
    read_identity,
    read_manifest,
    repack,
    save_dir,
    save_json,
)
from astra_mcp.store.strict_json import first_difference, parse

RAW = json.loads(TEA_SHOP.read_text("utf-8"))
SHIPPED = sorted((Path(__file__).parents[2] / "synthesized_envs").glob("*/bundle.json"))


@pytest.fixture
def shop_dir(tmp_path: Path) -> Path:
    path = tmp_path / "tea-shop"
    save_dir(tea_shop(), path)
    return path


def raw(**changes: Any) -> dict[str, Any]:
    """The raw bundle with fields changed at dotted places (`manifest__now`)."""
    copy = json.loads(json.dumps(RAW))
    for place, value in changes.items():
        *parents, last = place.split("__")
        node = copy
        for parent in parents:
            node = node[int(parent) if parent.isdigit() else parent]
        node[last] = value
    return copy


def refusal(load: Callable[[], Any]) -> str:
    with pytest.raises(BundleError) as caught:
        load()
    assert caught.value.remedy, "every refusal says what to do"
    message = str(caught.value)
    assert "\n" not in message
    assert "pydantic" not in message
    return message


class TestRoundTrip:
    def test_directory_and_json_are_the_same_bundle(self, shop_dir: Path) -> None:
        again = load_bundle(shop_dir)
        assert again == tea_shop()
        assert again.digest == tea_shop().digest
        assert dump_json(again) == dump_json(tea_shop())

    def test_json_is_kept_value_by_value(self) -> None:
        dumped = json.loads(dump_json(tea_shop()))
        assert first_difference(dumped, RAW) is None
        assert list(dumped["manifest"]) == list(RAW["manifest"]), "unspelled fields stay so"

    def test_a_field_spelled_with_its_default_stays_spelled(self) -> None:
        spelled = raw(manifest__tools__0__server="main", sealed__tasks__0__tolerated=[])
        dumped = json.loads(dump_json(load_json(spelled)))
        assert first_difference(dumped, spelled) is None
        assert load_json(spelled).digest == load_json(raw(sealed__tasks__0__tolerated=[])).digest

    def test_the_code_keeps_its_bytes(self, tmp_path: Path) -> None:
        code = "# caf\u00e9 \u2028 \r\n\tx = 1\n\n\n"
        bundle = load_json(raw(code=code))
        save_dir(bundle, tmp_path / "b")
        assert (tmp_path / "b" / "tools.py").read_bytes() == code.encode()
        assert load_bundle(tmp_path / "b").code == code

    @pytest.mark.parametrize("now", ["2025-03-12T10:00:00+01:00", "2025-03-12T10:00:00.500000Z"])
    def test_now_keeps_its_spelling(self, now: str) -> None:
        dumped = json.loads(dump_json(load_json(raw(manifest__now=now))))
        assert dumped["manifest"]["now"] == now

    @pytest.mark.parametrize(
        "change",
        [
            {"manifest__now": "2025-03-12T10:00:00+00:00"},
            {"manifest__now": "2025-03-12 10:00:00Z"},
            {"manifest__now": 1741773600},
            {"sealed__tasks__0__max_calls": "8"},
            {"sealed__tasks__0__difficulty__level": True},
        ],
    )
    def test_a_spelling_that_would_be_lost_is_refused(self, change: dict[str, Any]) -> None:
        assert "not spelled as astra writes it" in refusal(lambda: load_json(raw(**change)))

    def test_both_forms_have_the_state_in_one_order_and_spelling(self, tmp_path: Path) -> None:
        orders = dict(reversed(RAW["state"]["orders"].items()))
        bundle = load_json(raw(state__orders=orders))
        save_dir(bundle, tmp_path / "b")
        for one in (bundle, load_bundle(tmp_path / "b"), tea_shop()):
            assert list(one.state["orders"]) == ["OR-12", "OR-15", "OR-9"]
            assert repr(one.state["orders"]["OR-12"]["total"]) == "19"

    def test_it_does_not_share_the_callers_data(self) -> None:
        mine = raw()
        bundle = load_json(mine)
        mine["state"]["orders"].clear()
        assert bundle.state["orders"]

    @pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
    def test_shipped_bundles_are_as_save_dir_writes_them(self, path: Path, tmp_path: Path) -> None:
        save_dir(load_bundle(path.parent), tmp_path / "again")
        for name in ("bundle.json", "tools.py", "state.json", "sealed/tasks.jsonl"):
            assert (tmp_path / "again" / name).read_bytes() == (path.parent / name).read_bytes()

    @given(
        cell=st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**53), 2**53)
            | st.text(max_size=8)
            | st.floats(allow_nan=False, allow_infinity=False, width=32),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=4), inner, max_size=3)
            ),
            max_leaves=6,
        )
    )
    def test_any_state_survives(self, cell: Any) -> None:
        try:
            bundle = load_json(raw(state__extra={"R": {"cell": cell}}))
        except BundleError as error:
            assert "integers within" in error.remedy, "only numbers that RFC 8785 cannot keep"
            return
        again = load_json(dump_json(bundle))
        assert again.state == bundle.state
        assert again.digest == bundle.digest
        assert first_difference(bundle.state["extra"]["R"]["cell"], cell) is None


class TestLayout:
    def test_the_files(self, shop_dir: Path) -> None:
        found = {str(p.relative_to(shop_dir)) for p in shop_dir.rglob("*") if p.is_file()}
        assert found == {
            "bundle.json",
            "server.py",
            "tools.py",
            "state.json",
            "README.md",
            "LICENSE",
            "sealed/tasks.jsonl",
        }

    def test_the_state_is_canonical_json(self, shop_dir: Path) -> None:
        text = (shop_dir / "state.json").read_text("utf-8")
        assert text == json.dumps(
            json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )

    def test_one_task_a_line_after_the_canary(self, shop_dir: Path) -> None:
        lines = (shop_dir / "sealed" / "tasks.jsonl").read_text("utf-8").splitlines()
        assert json.loads(lines[0]) == {"canary": RAW["sealed"]["canary"]}
        assert [json.loads(line)["id"] for line in lines[1:]] == ["refund", "move", "refuse"]

    def test_the_server_file_is_the_same_in_every_bundle(self, shop_dir: Path) -> None:
        text = (shop_dir / "server.py").read_text("utf-8")
        compile(text, "server.py", "exec")
        assert "bundle_server" in text
        assert "tea" not in text

    def test_public_files_hold_nothing_sealed(self, shop_dir: Path) -> None:
        public = "".join(p.read_text("utf-8") for p in shop_dir.iterdir() if p.is_file())
        sealed = RAW["sealed"]
        assert sealed["canary"] not in public
        for task in sealed["tasks"]:
            assert task["title"] not in public
            for turn in task["turns"]:
                assert turn["say"] not in public
        assert "RF-31" not in public
        assert "CH-1210" not in public

    def test_the_card_says_what_there_is(self, shop_dir: Path) -> None:
        card = (shop_dir / "README.md").read_text("utf-8")
        for word in ("# Tea Shop", "`tea-shop@1.0.0`", "`refund_order`", "write", "CC0-1.0"):
            assert word in card
        assert "3 (2 of level 1, 1 of level 2)" in card

    def test_the_licence_names_the_expression_and_the_sources(self, shop_dir: Path) -> None:
        text = (shop_dir / "LICENSE").read_text("utf-8")
        assert text.startswith("SPDX-License-Identifier: CC0-1.0\n")
        assert "invented for these tests (CC0-1.0)" in text


class TestDigests:
    def _edit(self, path: Path, old: str, new: str) -> None:
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), "utf-8")

    @pytest.mark.parametrize(
        ("file", "old", "new"),
        [
            ("tools.py", "no such order", "no order"),
            ("state.json", "Leeds", "York"),
            ("bundle.json", "Full name", "Whole name"),
            ("sealed/tasks.jsonl", "RF-30", "RF-99"),
            ("sealed/tasks.jsonl", "ASTRA-MCP-SEALED", "ASTRA-MCP-OPENED"),
        ],
    )
    def test_a_changed_file_is_named_and_repack_accepts_it(
        self, shop_dir: Path, file: str, old: str, new: str
    ) -> None:
        self._edit(shop_dir / file, old, new)
        message = refusal(lambda: load_bundle(shop_dir))
        assert f"{file} is not what the digests" in message
        assert f"astra repack {shop_dir}" in message
        assert repack(shop_dir).digest == load_bundle(shop_dir).digest != tea_shop().digest

    def test_a_digest_that_was_changed_itself_is_noticed(self, shop_dir: Path) -> None:
        self._edit(shop_dir / "bundle.json", tea_shop().digest, "sha256:0")
        assert "its digests" in refusal(lambda: load_bundle(shop_dir))

    def test_layout_of_the_state_file_does_not_matter(self, shop_dir: Path) -> None:
        state = json.loads((shop_dir / "state.json").read_text("utf-8"))
        (shop_dir / "state.json").write_text(json.dumps(state, indent=2), "utf-8")
        assert load_bundle(shop_dir) == tea_shop()

    def test_the_public_part_is_verified_without_the_sealed_one(self, shop_dir: Path) -> None:
        shutil.rmtree(shop_dir / "sealed")
        manifest, code, state = load_public(shop_dir)
        assert (manifest, code, state) == (
            tea_shop().manifest,
            tea_shop().code,
            tea_shop().state,
        )
        assert "cannot be graded" not in refusal(lambda: load_bundle(shop_dir))
        assert "no sealed part" in refusal(lambda: load_bundle(shop_dir))
        self._edit(shop_dir / "tools.py", "no such order", "no order")
        assert "tools.py is not" in refusal(lambda: load_public(shop_dir))

    def test_repack_writes_missing_digests_and_keeps_the_audit(self, shop_dir: Path) -> None:
        head = json.loads((shop_dir / "bundle.json").read_text("utf-8"))
        del head["digests"]
        (shop_dir / "bundle.json").write_text(json.dumps(head), "utf-8")
        assert "digests is missing" in refusal(lambda: load_bundle(shop_dir))
        (shop_dir / "sealed" / "audit.json").write_text("{}", "utf-8")
        repack(shop_dir)
        assert load_bundle(shop_dir) == tea_shop()
        assert (shop_dir / "sealed" / "audit.json").read_text("utf-8") == "{}"

    def test_repack_refuses_a_single_file(self) -> None:
        assert "no directory" in refusal(lambda: repack(TEA_SHOP))


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

    def test_a_huge_file_is_refused_before_it_is_read(self, shop_dir: Path) -> None:
        with (shop_dir / "state.json").open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
        assert "larger than 64 MiB" in refusal(lambda: load_bundle(shop_dir))

    def test_an_unknown_key_of_bundle_json_is_refused(self, shop_dir: Path) -> None:
        head = json.loads((shop_dir / "bundle.json").read_text("utf-8"))
        (shop_dir / "bundle.json").write_text(json.dumps(head | {"note": 1}), "utf-8")
        assert "note is unknown" in refusal(lambda: load_bundle(shop_dir))

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
        for manifest in ({}, [], None, {"id": 1, "version": "1"}, {"id": "", "version": "1"}):
            file = tmp_path / "b.json"
            file.write_text(json.dumps({"format": RAW["format"], "manifest": manifest}), "utf-8")
            assert "no id and version" in refusal(lambda: read_identity(tmp_path / "b.json"))

    def test_the_public_part_of_a_single_file(self) -> None:
        manifest, code, state = load_public(TEA_SHOP)
        assert (manifest.id, code, state) == ("tea-shop", RAW["code"], tea_shop().state)


class TestFirstDifference:
    @pytest.mark.parametrize(
        ("a", "b", "where"),
        [
            ({"a": 1}, {"a": 1.0}, None),
            ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a.1.b"),
            ({"a": True}, {"a": 1}, "a"),
            ({"a": 1}, {}, "a"),
            ({}, {"b": None}, "b"),
            ([1], [1, 2], ""),
            ({"a": None}, {"a": False}, "a"),
        ],
    )
    def test_it_names_the_place(self, a: Any, b: Any, where: str | None) -> None:
        assert first_difference(a, b) == where


def test_parsed_json_is_what_json_says() -> None:
    assert parse('{"a": [1, 2.5, true, null, "\u00e9"]}', "x") == {
        "a": [1, 2.5, True, None, "\u00e9"]
    }


def test_a_bundle_loaded_is_a_bundle() -> None:
    assert isinstance(load_bundle(TEA_SHOP), Bundle)
    assert isinstance(load_bundle(str(TEA_SHOP)), Bundle)
