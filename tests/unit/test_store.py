"""Bundles on disk: lossless, laid out as documented, and checked against their digests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from graderkit import TEA_SHOP, tea_shop
from hypothesis import given
from hypothesis import strategies as st
from storekit import RAW, SHIPPED, raw, refusal

from astra_mcp.bundle import Bundle
from astra_mcp.store import (
    dump_json,
    load_bundle,
    load_json,
    load_public,
    repack,
    save_dir,
)
from astra_mcp.store.strict_json import first_difference, parse


@pytest.fixture
def shop_dir(tmp_path: Path) -> Path:
    path = tmp_path / "tea-shop"
    save_dir(tea_shop(), path)
    return path


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
            | st.integers(1 - 2**53, 2**53 - 1)
            | st.text(max_size=8)
            | st.floats(1 - 2.0**53, 2.0**53 - 1),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=4), inner, max_size=3)
            ),
            max_leaves=6,
        )
    )
    def test_any_state_survives(self, cell: Any) -> None:
        bundle = load_json(raw(state__extra={"R": {"cell": cell}}))
        again = load_json(dump_json(bundle))
        assert again.state == bundle.state
        assert again.digest == bundle.digest
        assert first_difference(bundle.state["extra"]["R"]["cell"], cell) is None

    @pytest.mark.parametrize("number", [2**53 + 1, -(2**60), 1e17, 2.0**60])
    def test_a_number_that_canonical_json_cannot_keep_is_refused(self, number: float) -> None:
        says = refusal(lambda: load_json(raw(state__stock__Assam__grams=number)))
        assert "integers within" in says


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
        assert f"other content: {file}" in message
        assert f"astra check --write {shop_dir}" in message
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
        assert "other content: tools.py" in refusal(lambda: load_public(shop_dir))

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
