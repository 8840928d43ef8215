"""Phrasings that example tasks list: each accepted or refused as its author says."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from astra_mcp.match import Matcher, check_gold, match_text

MATCHER: TypeAdapter[Matcher] = TypeAdapter(Matcher)
EURO = {"kind": "number", "unit": "EUR", "unit_aliases": ["€", "euros", "euro"]}

CASES: list[tuple[dict[str, Any], Any, list[str], list[str]]] = [
    (
        {"kind": "time"},
        "16:20",
        ["4:20 pm", "16:20", "4.20 p.m.", "at 16:20 on Saturday"],
        ["16:30", "4:20 am", "16:20 or 15:45", "19:30", "not 16:20"],
    ),
    (
        {**EURO, "abs_tol": 0.011},
        415.52,
        ["EUR 415.52", "€415.52", "415.52 euros", "about 415.52 EUR"],
        [
            "392.00",
            "374.20",
            "415.52 or 428.46",
            "4155.2",
            "435.26 EUR",
            "435.26 USD",
            "415.52 USD",
        ],
    ),
    (
        {"kind": "exact"},
        "RS-5152",
        ["RS-5152", "rs-5152", "**RS-5152**"],
        ["RS-5139", "5152 or 5139", "RS-515", "RS-51522"],
    ),
    (
        {"kind": "exact"},
        "PU-324",
        ["PU-324", "pu-324."],
        ["PU-317", "PU-331", "TK-8103", "324 or 317"],
    ),
    (
        {"kind": "set", "of": {"kind": "exact", "aliases": []}},
        ["The Lamplit Slip", "Regatta Noon", "Winter Quay"],
        [
            "The Lamplit Slip; Winter Quay; Regatta Noon",
            "- Winter Quay\n- Regatta Noon\n- The Lamplit Slip",
        ],
        [
            "The Lamplit Slip, Winter Quay",
            "The Lamplit Slip; Winter Quay; Regatta Noon; Two Skiffs",
            "Nets at Dawn; Winter Quay; Regatta Noon",
            "Winter Quay",
        ],
    ),
    (
        {"kind": "date"},
        "2025-08-16",
        ["16 August 2025", "August 16, 2025", "2025-08-16", "on Saturday 16 August 2025"],
        ["16 August 2024", "2025-08-15", "15 or 16 August 2025", "2024-12-19"],
    ),
    (
        {**EURO, "abs_tol": 0.005},
        860.93,
        ["€860.93", "860.93 euros", "EUR 860.93"],
        ["2240.18", "1379.25", "860.93 or 492.05", "86.093"],
    ),
]

ACCEPTED = [(m, gold, text) for m, gold, accept, _ in CASES for text in accept]
REFUSED = [(m, gold, text) for m, gold, _, reject in CASES for text in reject]


@pytest.mark.parametrize(("matcher", "gold", "text"), ACCEPTED)
@pytest.mark.parametrize("wrap", ["{}", "ANSWER: {}", "I looked it up.\n\n**ANSWER:** {}\n"])
def test_a_listed_phrasing_is_accepted(
    matcher: dict[str, Any], gold: Any, text: str, wrap: str
) -> None:
    model = MATCHER.validate_python(matcher)
    check_gold(model, gold)
    verdict = match_text(model, gold, wrap.format(text))
    assert verdict, verdict.why


@pytest.mark.parametrize(("matcher", "gold", "text"), REFUSED)
@pytest.mark.parametrize("wrap", ["{}", "ANSWER: {}", "I looked it up.\n\n**ANSWER:** {}\n"])
def test_a_listed_near_miss_is_refused(
    matcher: dict[str, Any], gold: Any, text: str, wrap: str
) -> None:
    assert not match_text(MATCHER.validate_python(matcher), gold, wrap.format(text))


@pytest.mark.parametrize(("matcher", "gold", "text"), REFUSED)
def test_a_refusal_says_why_without_the_expected_value(
    matcher: dict[str, Any], gold: Any, text: str
) -> None:
    why = match_text(MATCHER.validate_python(matcher), gold, text).why
    assert why
    for secret in gold if isinstance(gold, list) else [str(gold)]:
        assert secret not in why
