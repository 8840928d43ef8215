"""Expected values that cannot grade are refused, and structured values compare strictly."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from astra_mcp.errors import BundleError
from astra_mcp.match import Matcher, check_gold, match_value

MATCHER: TypeAdapter[Matcher] = TypeAdapter(Matcher)
TEXTS = {"kind": "set", "of": {"kind": "exact"}}
RECORD = {"kind": "record", "fields": {"a": {"kind": "exact"}, "n": {"kind": "number"}}}
CODE = {"kind": "regex", "pattern": r"[A-Z]{2}-\d{4}"}
WORDS = {"kind": "contains", "all_of": ["storm"], "none_of": ["strike"]}
KINDS: list[dict[str, Any]] = [
    *({"kind": kind} for kind in ("exact", "number", "date", "time", "datetime", "bool")),
    TEXTS,
    {"kind": "list", "of": {"kind": "number"}},
    CODE,
    WORDS,
    RECORD,
]

GOOD: list[tuple[dict[str, Any], Any]] = [
    ({"kind": "exact"}, "LPB"),
    ({"kind": "exact", "aliases": ["La Paz"]}, "LPB"),
    ({"kind": "exact"}, "Eats, Shoots & Leaves"),
    ({"kind": "exact"}, "not allowed"),
    ({"kind": "exact"}, "C++"),
    ({"kind": "exact"}, "上海"),
    ({"kind": "number"}, 0),
    ({"kind": "number", "abs_tol": 0.005, "unit": "EUR", "unit_aliases": ["€"]}, 415.52),
    ({"kind": "number"}, -3),
    ({"kind": "number"}, 6.02e23),
    ({"kind": "number"}, 1e-9),
    ({"kind": "number", "locale": "de"}, 1.379),
    ({"kind": "date"}, "2024-02-29"),
    ({"kind": "time"}, "16:20"),
    ({"kind": "time"}, "16:20:30"),
    ({"kind": "datetime"}, "2025-03-02T16:15"),
    ({"kind": "datetime"}, "2025-03-02T16:15:00Z"),
    ({"kind": "datetime"}, "2025-03-02T16:15:00+02:00"),
    ({"kind": "bool"}, False),
    (TEXTS, ["a"]),
    (TEXTS, ["War and Peace", "Eats, Shoots & Leaves"]),
    ({"kind": "list", "of": {"kind": "exact"}}, ["a", "a"]),
    ({"kind": "list", "of": {"kind": "list", "of": {"kind": "number"}}}, [[1, 2], [3]]),
    (CODE, "RS-5152"),
    (WORDS, "late because of the storm"),
    (RECORD, {"a": "x", "n": 5}),
]

BAD: list[tuple[dict[str, Any], Any]] = [
    *(
        (matcher, gold)
        for matcher in KINDS
        for gold in (None, "", [], {}, " \n", {"z": 1}, float("nan"), "...", [None], [""], object())
    ),
    ({"kind": "exact"}, 5),
    ({"kind": "exact"}, "x" * 1_001),
    ({"kind": "exact"}, "answer: five"),
    ({"kind": "exact", "aliases": [" "]}, "a"),
    ({"kind": "exact", "aliases": ["."]}, "a"),
    ({"kind": "number"}, "5"),
    ({"kind": "number"}, True),
    ({"kind": "number"}, float("inf")),
    ({"kind": "number", "abs_tol": 5}, 4),
    ({"kind": "number", "abs_tol": 4}, -4),
    ({"kind": "number", "abs_tol": -1}, 4),
    ({"kind": "number", "abs_tol": float("nan")}, 4),
    ({"kind": "number", "rel_tol": 0.9}, 4),
    ({"kind": "number", "abs_tol": 1}, 0),
    ({"kind": "number", "unit": " "}, 4),
    ({"kind": "number", "unit_aliases": ["€"]}, 4),
    ({"kind": "date"}, "16 August 2025"),
    ({"kind": "date"}, "2025-02-30"),
    ({"kind": "date"}, "2025-08-16T10:00"),
    ({"kind": "time"}, "4:20"),
    ({"kind": "time"}, "24:00"),
    ({"kind": "datetime"}, "2025-01-01"),
    ({"kind": "datetime"}, "2025-01-01T25:00"),
    ({"kind": "bool"}, "yes"),
    ({"kind": "bool"}, 1),
    (CODE, "zz"),
    ({"kind": "regex", "pattern": ".*"}, "a"),
    ({"kind": "regex", "pattern": "a*"}, "a"),
    ({"kind": "regex", "pattern": r"(?=look)a"}, "a"),
    ({"kind": "regex", "pattern": r"(a)\1"}, "aa"),
    ({"kind": "regex", "pattern": "a)|(?:b"}, "a"),
    ({"kind": "regex", "pattern": "(a"}, "a"),
    ({"kind": "regex", "pattern": "a" * 600}, "a" * 600),
    ({"kind": "regex", "pattern": "done\\."}, "done."),
    ({"kind": "contains", "all_of": ["a"], "none_of": ["b"]}, "a b"),
    ({"kind": "contains", "all_of": ["storm"]}, "the storms"),
    ({"kind": "contains", "all_of": [" "]}, "a"),
    (TEXTS, ["a", "a"]),
    (TEXTS, ["a", 5]),
    (TEXTS, "a"),
    (TEXTS, [f"member {i}" for i in range(101)]),
    (TEXTS, ["x" * 900 + str(i) for i in range(6)]),
    ({"kind": "set", "of": {"kind": "exact", "aliases": ["z"]}}, ["a", "b"]),
    ({"kind": "record", "fields": {}}, {}),
    (RECORD, {"a": "x"}),
    (RECORD, {"a": "x", "n": 5, "more": 1}),
    (RECORD, {"a": "x", "n": "5"}),
    (
        {"kind": "record", "fields": {"a b": {"kind": "bool"}, "A_b": {"kind": "bool"}}},
        {"a b": True, "A_b": True},
    ),
]


@pytest.mark.parametrize(("matcher", "gold"), GOOD)
def test_a_gold_that_can_grade_is_accepted(matcher: dict[str, Any], gold: Any) -> None:
    check_gold(MATCHER.validate_python(matcher), gold)


@pytest.mark.parametrize(("matcher", "gold"), BAD)
def test_a_gold_that_cannot_grade_is_refused(matcher: dict[str, Any], gold: Any) -> None:
    with pytest.raises(BundleError) as refused:
        check_gold(MATCHER.validate_python(matcher), gold)
    assert refused.value.remedy


SAME: list[tuple[dict[str, Any], Any, Any]] = [
    ({"kind": "exact"}, "BK-204", "bk-204"),
    ({"kind": "exact", "aliases": ["La Paz"]}, "LPB", "la paz"),
    ({"kind": "number", "abs_tol": 0.005}, 374.2, 374.2049),
    ({"kind": "number"}, 240, 240.0),
    ({"kind": "number"}, 0.3, 0.1 + 0.2),
    ({"kind": "date"}, "2025-08-16", "2025-08-16"),
    ({"kind": "time"}, "16:20", "16:20:00"),
    ({"kind": "datetime"}, "2025-03-02T16:15:00Z", "2025-03-02T17:15:00+01:00"),
    ({"kind": "datetime"}, "2025-03-02T16:15", "2025-03-02T16:15:00+01:00"),
    ({"kind": "bool"}, True, True),
    (TEXTS, ["a", "b"], ["b", "a"]),
    (TEXTS, ["a", "b"], ["b", "a", "a"]),
    ({"kind": "set", "of": {"kind": "number", "abs_tol": 0.1}}, [1.0, 1.1], [1.05, 0.95]),
    ({"kind": "list", "of": {"kind": "number"}}, [1, 2], [1, 2.0]),
    (CODE, "RS-5152", "RS-0001"),
    (WORDS, "the storm", "a storm came"),
    (RECORD, {"a": "x", "n": 5}, {"n": 5.0, "a": "X"}),
]
OTHER: list[tuple[dict[str, Any], Any, Any]] = [
    ({"kind": "exact"}, "BK-204", "BK-2040"),
    ({"kind": "exact"}, "5", 5),
    ({"kind": "exact"}, "x", None),
    ({"kind": "number", "abs_tol": 0.005}, 374.2, 374.2051),
    ({"kind": "number"}, 240, "240"),
    ({"kind": "number"}, 1, True),
    ({"kind": "number"}, 240, None),
    ({"kind": "number"}, 240, float("nan")),
    ({"kind": "number"}, 240, [240]),
    ({"kind": "number"}, 9007199254740992, 9007199254740991),
    ({"kind": "date"}, "2025-08-16", "2025-08-17"),
    ({"kind": "date"}, "2025-08-16", "16 August 2025"),
    ({"kind": "time"}, "16:20", "04:20"),
    ({"kind": "time"}, "16:20", ""),
    ({"kind": "datetime"}, "2025-03-02T16:15:00Z", "2025-03-02T16:15:00+01:00"),
    ({"kind": "bool"}, True, 1),
    ({"kind": "bool"}, False, None),
    ({"kind": "bool"}, True, "true"),
    (TEXTS, ["a", "b"], ["a"]),
    (TEXTS, ["a", "b"], ["a", "b", "c"]),
    (TEXTS, ["a", "b"], "a, b"),
    ({"kind": "set", "of": {"kind": "number", "abs_tol": 0.1}}, [1.0, 1.1], [1.05, 2]),
    ({"kind": "list", "of": {"kind": "number"}}, [1, 2], [2, 1]),
    ({"kind": "list", "of": {"kind": "number"}}, [1, 2], [1, 2, 2]),
    (CODE, "RS-5152", "RS-51522"),
    (WORDS, "the storm", "no storm"),
    (RECORD, {"a": "x", "n": 5}, {"n": 5, "a": "x", "z": 1}),
    (RECORD, {"a": "x", "n": 5}, {"n": 5}),
    (RECORD, {"a": "x", "n": 5}, [["a", "x"], ["n", 5]]),
]


@pytest.mark.parametrize(("matcher", "gold", "value"), SAME)
def test_a_structured_value_is_the_expected_one(
    matcher: dict[str, Any], gold: Any, value: Any
) -> None:
    model = MATCHER.validate_python(matcher)
    check_gold(model, gold)
    assert match_value(model, gold, value)


@pytest.mark.parametrize(("matcher", "gold", "value"), OTHER)
def test_a_structured_value_is_another_one(matcher: dict[str, Any], gold: Any, value: Any) -> None:
    model = MATCHER.validate_python(matcher)
    check_gold(model, gold)
    assert not match_value(model, gold, value)
