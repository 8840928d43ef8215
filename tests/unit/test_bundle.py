"""A bundle that exists is consistent: what does not fit together is refused by the models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from graderkit import TEA_SHOP, tea_shop
from pydantic import ValidationError

from astra_mcp.bundle import Bundle, Manifest, Provenance
from astra_mcp.canonical import canonical_bytes, digest, state_hash
from astra_mcp.errors import BundleError, ExpressionError
from astra_mcp.licences import check_spdx
from astra_mcp.task import Task

RAW = json.loads(TEA_SHOP.read_text("utf-8"))


def changed(**changes: Any) -> dict[str, Any]:
    """The raw bundle with values at dotted places changed; `...` removes one."""
    raw: dict[str, Any] = json.loads(json.dumps(RAW))
    for place, value in changes.items():
        *parents, last = place.split("__")
        node: Any = raw
        for parent in parents:
            node = node[int(parent) if parent.isdigit() else parent]
        key: Any = int(last) if last.isdigit() else last
        if value is ...:
            del node[key]
        else:
            node[key] = value
    return raw


def refusal(**changes: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        Bundle.model_validate(changed(**changes))
    return str(caught.value)


def task_refusal(task: int = 0, **changes: Any) -> str:
    raw = changed(**{f"sealed__tasks__{task}__{place}": v for place, v in changes.items()})
    with pytest.raises((ValidationError, ExpressionError)) as caught:
        Task.model_validate(raw["sealed"]["tasks"][task])
    return str(caught.value)


def test_the_tea_shop_is_fine() -> None:
    assert Bundle.model_validate(changed()).ref == "tea-shop@1.0.0"


@pytest.mark.parametrize(
    "place",
    [
        "extra",
        "manifest__extra",
        "manifest__limits",
        "manifest__tools__0__extra",
        "sealed__extra",
        "sealed__tasks__0__extra",
        "sealed__tasks__0__turns__0__extra",
        "sealed__tasks__0__subtasks__0__expect__extra",
    ],
)
def test_an_unknown_field_is_refused_everywhere(place: str) -> None:
    value = {"extra": 1} if place.endswith("limits") else 1
    assert "Extra inputs are not permitted" in refusal(**{place: value})


def test_models_are_frozen() -> None:
    bundle = tea_shop()
    with pytest.raises(ValidationError, match="frozen"):
        bundle.code = "x"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        bundle.sealed.tasks[0].max_calls = 99  # type: ignore[misc]


class TestManifest:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"manifest__id": "Tea Shop"}, "manifest.id"),
            ({"manifest__id": "tea--shop"}, "manifest.id"),
            ({"manifest__id": "../up"}, "manifest.id"),
            ({"manifest__version": "1.0"}, "manifest.version"),
            ({"manifest__now": "2025-03-12T10:00:00"}, "needs a time zone"),
            ({"manifest__servers": []}, "manifest.servers"),
            ({"manifest__tools": []}, "manifest.tools"),
            ({"manifest__tools__0__server": "other"}, "unknown server other"),
            ({"manifest__tools__1__name": "find_customer"}, "twice: ['find_customer']"),
            ({"manifest__servers": [RAW["manifest"]["servers"][0]] * 2}, "twice: ['main']"),
            ({"manifest__tools__0__name": "Find"}, "manifest.tools.0.name"),
            ({"manifest__tools__0__description": "Too short."}, "manifest.tools.0.description"),
            ({"manifest__limits": {"call_seconds": 0}}, "call_seconds"),
            ({"manifest__limits": {"memory_mb": 1}}, "memory_mb"),
            ({"manifest__tools__0__input_schema": {"type": "object", "$ref": "#"}}, "input_schema"),
            ({"format": "astra-mcp/bundle@2"}, "format"),
        ],
    )
    def test_what_is_refused(self, change: dict[str, Any], says: str) -> None:
        assert says in refusal(**change)

    def test_tools_are_found_by_name(self) -> None:
        manifest = tea_shop().manifest
        assert manifest.by_name["get_stock"].effects == "read"
        assert set(manifest.by_name) == {tool.name for tool in manifest.tools}


class TestReferences:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"plan__0__tool": "gone"}, "unknown tools ['gone']"),
            ({"turns__0__hide": ["gone"]}, "unknown tools ['gone']"),
            ({"tolerated__0__tool": "gone"}, "unknown tools ['gone']"),
            ({"distractors": ["gone"]}, "unknown tools ['gone']"),
            ({"subtasks__0__forbid": ["gone"]}, "unknown tools ['gone']"),
            ({"subtasks__0__evidence": [[{"tool": "gone"}]]}, "unknown tools ['gone']"),
            ({"final_state__rows__0__table": "gone"}, "unknown tables ['gone']"),
        ],
    )
    def test_of_a_task_into_the_world(self, change: dict[str, Any], says: str) -> None:
        assert says in refusal(**{f"sealed__tasks__0__{k}": v for k, v in change.items()})

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"plan__0__turn": "u9"}, "unknown turn u9"),
            ({"plan__0__args__name": {"$expr": "s2.x"}}, "refers to ['s2']"),
            ({"plan__0__args__name": {"$expr": "s1.x"}}, "refers to ['s1']"),
            ({"plan__0__args__name": {"$expr": "s1.["}}, "does not parse"),
            ({"plan__2__id": "s1"}, "step ids must be unique"),
            ({"plan__0__reasoned": ["other"]}, "reasoned arguments ['other']"),
            ({"subtasks__0__after": ["q2"]}, "after ['q2'], which are not earlier"),
            ({"subtasks__0__after": ["q1"]}, "after ['q1'], which are not earlier"),
            ({"subtasks__0__steps": ["s9"]}, "unknown steps ['s9']"),
            ({"subtasks__0__turn": "u9"}, "unknown turn u9"),
            ({"subtasks__2__id": "q1"}, "sub-task ids must be unique"),
            ({"subtasks__0__steps": ["s2"]}, "steps without a sub-task: ['s1']"),
            ({"subtasks__0__steps": []}, "needs steps or evidence"),
            ({"subtasks__0__kind": "hold"}, "only a call sub-task has steps"),
            ({"subtasks__0__expect__expr": "s9.x"}, "refers to ['s9']"),
            ({"answer__expr": "s9.x"}, "refers to ['s9']"),
            ({"answer": None, "final_state": None}, "needs an answer or a final state"),
            ({"answer__value": ""}, "answer"),
            ({"answer__value": None}, "answer"),
            ({"answer__match": {"kind": "date"}}, "answer"),
            ({"turns": []}, "turns"),
            ({"turns__0__opens": "next"}, "opens with 'start'"),
            ({"turns__0__id": "U1"}, "turns.0.id"),
            ({"max_calls": 0}, "max_calls"),
            ({"final_state__rows__0__where": {}}, "where"),
            ({"final_state__rows__0__count": -1}, "count"),
            ({"difficulty__level": 6}, "level"),
        ],
    )
    def test_within_a_task(self, change: dict[str, Any], says: str) -> None:
        assert says in task_refusal(**change)

    def test_select_needs_an_expected_value_and_has_to_parse(self) -> None:
        pattern = {"tool": "find_customer", "select": "result.customer_id"}
        evidence: dict[str, Any] = {"subtasks__0__evidence": [[pattern]]}
        assert "needs an expected value" in task_refusal(subtasks__0__expect=..., **evidence)
        bad: dict[str, Any] = {"subtasks__0__evidence": [[pattern | {"select": "result.["}]]}
        assert "does not parse" in task_refusal(**bad)

    def test_a_second_start_and_a_question_without_words_are_refused(self) -> None:
        assert "no other" in task_refusal(1, turns__1__opens="start")
        assert "needs ask_words" in task_refusal(1, turns__1__ask_words=[])
        assert "turn ids must be unique" in task_refusal(1, turns__1__id="u1")

    def test_a_task_is_found_by_its_id(self) -> None:
        assert tea_shop().task("move").id == "move"
        with pytest.raises(KeyError):
            tea_shop().task("gone")

    def test_task_ids_are_unique(self) -> None:
        assert "task ids must be unique" in refusal(sealed__tasks__1__id="refund")


class TestDigests:
    def test_they_depend_on_their_parts_only(self) -> None:
        base = tea_shop()
        world = Bundle.model_validate(changed(code=RAW["code"] + "#"))
        tasks = Bundle.model_validate(changed(sealed__canary="another-canary"))
        assert world.world_digest != base.world_digest
        assert world.tasks_digest == base.tasks_digest
        assert tasks.world_digest == base.world_digest
        assert tasks.tasks_digest != base.tasks_digest
        assert len({base.digest, world.digest, tasks.digest}) == 3

    def test_spelled_defaults_and_the_order_of_keys_do_not_matter(self) -> None:
        spelled = changed(manifest__language="en", sealed__tasks__0__plan__0__reasoned=[])
        spelled["state"] = dict(reversed(spelled["state"].items()))
        assert Bundle.model_validate(spelled).digest == tea_shop().digest

    @pytest.mark.parametrize(
        "change",
        [
            {"state__stock__Assam__grams": 901},
            {"state__stock__Assam__more": None},
            {"manifest__title": "Tea shop"},
            {"manifest__tools__0__effects": "write"},
            {"manifest__now": "2025-03-12T10:00:01Z"},
        ],
    )
    def test_every_part_of_the_world_matters(self, change: dict[str, Any]) -> None:
        assert Bundle.model_validate(changed(**change)).world_digest != tea_shop().world_digest

    def test_parts_cannot_slide_into_each_other(self) -> None:
        assert digest(b"ab", b"c") != digest(b"a", b"bc") != digest(b"abc")
        assert digest(b"") != digest() != digest(b"", b"")

    def test_the_state_hash_does_not_depend_on_key_order(self) -> None:
        assert state_hash({"a": {"x": 1, "y": 2}}) == state_hash({"a": {"y": 2, "x": 1}})
        assert state_hash({"a": 1}) != state_hash({"a": 2})

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53 + 1, {1: 2}, {"a": {1}}])
    def test_what_has_no_canonical_form_is_refused(self, value: Any) -> None:
        with pytest.raises(BundleError, match="no canonical JSON form"):
            canonical_bytes(value)


class TestLicences:
    @pytest.mark.parametrize(
        "text", ["CC0-1.0", "MIT", "Apache-2.0 OR MIT", "GPL-2.0-only WITH Classpath-exception-2.0"]
    )
    def test_spdx_expressions_pass(self, text: str) -> None:
        assert check_spdx(text) == text

    @pytest.mark.parametrize(
        "text",
        ["", "  ", "unknown", "Public Domain", "MIT AND", "MIT, CC0-1.0", "NOASSERTION", "(MIT"],
    )
    def test_all_else_is_refused(self, text: str) -> None:
        with pytest.raises(BundleError) as caught:
            check_spdx(text)
        assert "SPDX" in str(caught.value)

    def test_manifest_and_sources_are_checked(self) -> None:
        assert "Proprietary" in refusal(manifest__license="Proprietary")
        source = [{"name": "somewhere", "license": "free"}]
        assert "'free'" in refusal(manifest__provenance__sources=source)
        with pytest.raises(ValidationError):
            Provenance.model_validate({"backend": "magic", "generator": "x"})
        with pytest.raises(ValidationError):
            Manifest.model_validate(RAW["manifest"] | {"license": ""})
