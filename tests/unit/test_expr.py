"""The expression language: what it computes, which names it reads, what it refuses."""

from __future__ import annotations

import copy
import json
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astra_mcp.errors import ExpressionError
from astra_mcp.expr import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_TEXT,
    MAX_VALUES,
    arg_refs,
    bind_args,
    compile_expr,
)

DATA: dict[str, Any] = {
    "s1": {
        "id": "DP-1",
        "books": [
            {"id": "BK-1", "title": "Salt"},
            {"id": "BK-204", "title": "The Salt Atlas", "free": True},
        ],
        "rate": 0.9195,
        "day": "2024-12-19",
    },
    "s2": {
        "tables": [
            {"id": "T-1", "seats": 6, "step_free": True},
            {"id": "T-2", "seats": 10, "step_free": True},
            {"id": "T-3", "seats": 8, "step_free": True},
            {"id": "T-4", "seats": 7, "step_free": False},
        ],
        "days": 240,
        "work_ids": ["B", "A", "X"],
    },
    "s3": {"works": [{"id": "A", "title": "a"}, {"id": "B", "title": "b"}, {"id": "C"}]},
}


def value_of(text: str, data: Any = DATA) -> Any:
    return compile_expr(text).evaluate(data)


@pytest.mark.parametrize(
    ("text", "value", "refs"),
    [
        ("s1.books[?title=='The Salt Atlas'] | [0].id", "BK-204", {"s1"}),
        ("min_by(s2.tables[?step_free && seats >= `7`], &seats).id", "T-3", {"s2"}),
        ("max_by(s2.tables, &seats).id", "T-2", {"s2"}),
        ("add_days(s1.day, s2.days)", "2025-08-16", {"s1", "s2"}),
        ("round(mul(s1.rate, `1500`), `2`)", 1379.25, {"s1"}),
        ("pick(s3.works, 'id', s2.work_ids)[].title", ["a", "b"], {"s2", "s3"}),
        ("intersect(s2.work_ids, s3.works[].id)", ["B", "A"], {"s2", "s3"}),
        ("unique(['b', 'a', 'b'])", ["b", "a"], set()),
        ("{first: s1.id, rest: s2.tables[*].{n: id}}.first", "DP-1", {"s1", "s2"}),
        ("s3.works[*].[id, title] | [0]", ["A", "a"], {"s3"}),
        ("@.s1.id", "DP-1", {"s1"}),
        ('"s1".id', "DP-1", {"s1"}),
        ("days_between(s1.day, '2025-08-16')", 240, {"s1"}),
        ("before(s1.day, '2025-08-16')", True, {"s1"}),
        ("before('16:20', '09:00')", False, set()),
        ("map(&add(seats, `1`), s2.tables)", [7, 11, 9, 8], {"s2"}),
        ("s2.tables[].add(seats, `1`)", [7, 11, 9, 8], {"s2"}),
        ("s1.nothing.at.all", None, {"s1"}),
        ("s1.missing || s2.days", 240, {"s1", "s2"}),
        ("length(s2.tables[?seats > `6`])", 3, {"s2"}),
    ],
)
def test_an_expression_has_a_value_and_the_root_names_it_reads(
    text: str, value: Any, refs: set[str]
) -> None:
    assert value_of(text) == value
    assert compile_expr(text).refs == refs


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("add(`0.1`, `0.2`)", 0.3),
        ("sub(`0.3`, `0.1`)", 0.2),
        ("mul(`1.1`, `1.1`)", 1.21),
        ("sum(`[0.1, 0.2, 0.3]`)", 0.6),
        ("avg(`[0.1, 0.2]`)", 0.15),
        ("round(`2.675`, `2`)", 2.68),
        ("round(`1.005`, `2`)", 1.01),
        ("round(`2.5`)", 3),
        ("round(`-2.5`)", -3),
        ("round(`1250`, `-2`)", 1300),
        ("div(`6`, `3`)", 2),
        ("div(`1`, `8`)", 0.125),
        ("mul(`374.2`, add(`1`, div(`14.5`, `100`)))", 428.459),
    ],
)
def test_arithmetic_is_decimal(text: str, value: float) -> None:
    assert json.dumps(value_of(text)) == json.dumps(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "((((",
        "s1.",
        "`NaN`",
        "`[1, Infinity]`",
        "`" + "[" * 900 + "]" * 900 + "`",
        "nope(s1)",
        "add(s1.id)",
        "round(`1`, `2`, `3`)",
        "@",
        "*",
        "keys(@)",
        "[@][0].s1",
        "{a: @}.a.s1",
        "@[0]",
        "s1 || @",
        "@ == s1",
        "x" * (MAX_LENGTH + 1),
        "!" * 200 + "s1",
        " | ".join(["s1"] + ["[@,@]"] * (MAX_DEPTH + 10)),
    ],
)
def test_what_is_no_expression_is_refused_when_it_is_compiled(text: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        compile_expr(text)
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize(
    "text",
    [
        "div(`1`, `0`)",
        "div(`1.5`, `0.0`)",
        "mul(`1e200`, `1e200`)",
        "mul(`9007199254740992`, `2`)",
        "add(`true`, `1`)",
        "add(s1.nothing, `1`)",
        'sum(`[1, "2"]`)',
        "round(`1`, `1.5`)",
        "round(`1`, `99`)",
        "add_days('19 December 2024', `1`)",
        "add_days('2025-02-30', `1`)",
        "add_days('2025-02-01', `1.5`)",
        "add_days('9999-12-31', `1`)",
        "before('2025-01-01', '09:00')",
        "before('2025-01-01T00:00:00Z', '2025-01-01T00:00:00')",
        "pick(`[1]`, 'id', `[1]`)",
        "min_by(s2.tables, &step_free)",
        "s4.id",
        "s1 | [@,@] " + "| [@,@][]" * 40,
        "s1 | [to_string(@),to_string(@)] " + "| [to_string(@),to_string(@)]" * 25,
    ],
)
def test_what_has_no_value_is_refused_when_it_is_evaluated(text: str) -> None:
    with pytest.raises(ExpressionError):
        value_of(text)


def test_a_refusal_does_not_quote_the_data() -> None:
    data = {"s1": {"secret": "KESTREL-42"}}
    for text in ("abs(s1.secret)", "add(s1.secret, `1`)", "sort_by(s1.secret, &x)"):
        with pytest.raises(ExpressionError) as refused:
            value_of(text, data)
        assert "KESTREL" not in str(refused.value)


def test_data_nested_without_end_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    for text in ("s1.x", "unique(s1.x)", "to_string(s1.x)"):
        with pytest.raises(ExpressionError):
            value_of(text, {"s1": {"x": deep}})


def test_data_beyond_the_size_limits_are_refused() -> None:
    for big in ([0] * (MAX_VALUES + 1), "x" * (MAX_TEXT + 1), {"a": [[0] * MAX_VALUES]}):
        with pytest.raises(ExpressionError, match="too large"):
            value_of("s1.x", {"s1": {"x": big}})


def test_infinite_data_never_become_a_value() -> None:
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ExpressionError):
            value_of("s1.x", {"s1": {"x": bad}})
    assert value_of("to_number('nan')", {}) is None
    assert value_of("to_number('1e999')", {}) is None


def test_unique_and_intersect_know_true_from_one_and_one_from_one_point_zero() -> None:
    data = {"a": [1, True, 1.0, "1", {"x": 1, "y": 2}, {"y": 2, "x": 1.0}], "b": [True]}
    assert value_of("unique(a)", data) == [1, True, "1", {"x": 1, "y": 2}]
    assert value_of("intersect(a, b)", data) == [True]
    assert value_of("intersect(a, b)", data)[0] is True


def test_evaluating_changes_nothing() -> None:
    before = copy.deepcopy(DATA)
    for text in ("sort_by(s2.tables, &seats)", "reverse(s2.work_ids)", "merge(s1, s3)"):
        value_of(text)
    assert before == DATA


def test_arguments_are_bound_at_every_depth_and_the_plan_is_not_touched() -> None:
    args = {
        "id": {"$expr": "s1.id"},
        "rows": [{"n": {"$expr": "s2.days"}}, {"n": 3}],
        "all": {"$expr": "s2.work_ids"},
        "none": None,
    }
    plan = copy.deepcopy(args)
    assert arg_refs(args) == {"s1", "s2"}
    bound = bind_args(args, DATA)
    assert bound == {
        "id": "DP-1",
        "rows": [{"n": 240}, {"n": 3}],
        "all": ["B", "A", "X"],
        "none": None,
    }
    bound["all"].append("changed")
    assert DATA["s2"]["work_ids"] == ["B", "A", "X"]
    assert args == plan


@pytest.mark.parametrize(
    "leaf", [{"$expr": 5}, {"$expr": "s1.id", "and": 1}, {"$expr": "s1.nothing"}, {"$expr": "s9.x"}]
)
def test_a_leaf_that_binds_to_nothing_is_refused(leaf: dict[str, Any]) -> None:
    with pytest.raises(ExpressionError):
        bind_args({"a": [leaf]}, DATA)


# ---- properties ----------------------------------------------------------------------------

ROOTS = ("s1", "s2", "s3", "s4")
paths = st.sampled_from(ROOTS).flatmap(
    lambda root: st.sampled_from(
        [f"{root}.n", f"{root}.rows[0].n", f"{root}.rows[?n > `0`].n | [0]"]
    )
)
trees = st.recursive(
    paths,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"add({p[0]}, {p[1]})"),
        inner.map(lambda e: f"({e})"),
        st.tuples(inner, inner).map(lambda p: f"[{p[0]}, {p[1]}] | max(@)"),
        st.tuples(inner, inner).map(lambda p: f"max_by([{{n: {p[0]}}}, {{n: {p[1]}}}], &n).n"),
        st.tuples(inner, inner).map(lambda p: f"{{s1: {p[0]}, s9: {p[1]}}}.s1"),
    ),
    max_leaves=6,
)
numbers = st.integers(1, 99)


@settings(max_examples=150)
@given(trees, st.lists(numbers, min_size=4, max_size=4))
def test_an_expression_needs_exactly_the_names_it_says(text: str, values: list[int]) -> None:
    data = {r: {"n": n, "rows": [{"n": n}]} for r, n in zip(ROOTS, values, strict=True)}
    expr = compile_expr(text)
    value = expr.evaluate(data)
    for root in ROOTS:
        less = {name: item for name, item in data.items() if name != root}
        if root in expr.refs:
            with pytest.raises(ExpressionError):
                expr.evaluate(less)
        else:
            assert expr.evaluate(less) == value


money = st.decimals(min_value=-(10**6), max_value=10**6, places=3, allow_nan=False)


@given(money, money)
def test_adding_and_rounding_money_agree_with_decimals(a: Decimal, b: Decimal) -> None:
    got = value_of("round(add(a, b), `2`)", {"a": float(a), "b": float(b)})
    want = (a + b).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
    assert Decimal(repr(got)) == want


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@given(st.text(max_size=60))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    try:
        expr = compile_expr(text)
        expr.evaluate({name: {} for name in expr.refs})
    except ExpressionError:
        pass
