"""A value is written down so that the matcher of its kind accepts it, and no other value is."""

from __future__ import annotations

from typing import Any

import pytest

from astra_clients.agents.answers import phrase
from astra_mcp.match import match_text
from astra_mcp.task import Expect

SET_OF_TEXTS = {"kind": "set", "of": {"kind": "exact"}}
CASES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"kind": "exact"}, "TK-8103", "TK-8104"),
    ({"kind": "number", "abs_tol": 0.011, "unit": "EUR"}, 415.52, 392.0),
    ({"kind": "number"}, 7.0, 8),
    ({"kind": "date"}, "2025-06-16", "2025-06-17"),
    ({"kind": "time"}, "16:20", "16:21"),
    ({"kind": "datetime"}, "2025-06-16T16:20", "2025-06-16T16:21"),
    ({"kind": "bool"}, True, False),
    (
        {"kind": "set", "of": {"kind": "exact"}},
        ["The Lamplit Slip", "Winter Quay"],
        ["Winter Quay"],
    ),
    ({"kind": "set", "of": {"kind": "exact"}}, ["Salt, Sand and Sea", "Quay"], ["Quay"]),
    ({"kind": "list", "of": {"kind": "number"}}, [3, 1, 2], [1, 2, 3]),
    (
        {"kind": "record", "fields": {"name": {"kind": "exact"}, "count": {"kind": "number"}}},
        {"name": "Bergen", "count": 4},
        {"name": "Bergen", "count": 5},
    ),
]


@pytest.mark.parametrize(("matcher", "value", "other"), CASES)
def test_a_value_is_phrased_as_its_matcher_takes_it(
    matcher: dict[str, Any], value: Any, other: Any
) -> None:
    expect = Expect.model_validate({"value": value, "match": matcher})
    text = f"ANSWER: {phrase(expect, value, 'en')}"
    assert match_text(expect.match, value, text)
    assert not match_text(expect.match, other, text)


def test_a_wrong_derivation_is_not_hidden_by_accepted_phrasings() -> None:
    expect = Expect.model_validate(
        {"value": "TK-1", "match": {"kind": "exact"}, "accept": ["TK-1", "tk-1"]}
    )
    assert phrase(expect, "TK-2", "en") == "TK-2"
