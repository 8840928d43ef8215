"""Sets, lists and records in answers: separators, bullets, JSON, members that hold separators."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from astra_mcp.match import Matcher, check_gold, match_text

MATCHER: TypeAdapter[Matcher] = TypeAdapter(Matcher)

CASES: list[tuple[dict[str, Any], Any, str, list[str], list[str]]] = [
    (
        {"kind": "set", "of": {"kind": "exact"}},
        ["The Lamplit Slip", "Regatta Noon", "Winter Quay"],
        "en",
        [
            "The Lamplit Slip; Winter Quay; Regatta Noon",
            "- Winter Quay\n- Regatta Noon\n- The Lamplit Slip",
            "The Lamplit Slip, Winter Quay and Regatta Noon",
            "The Lamplit Slip, Winter Quay, and Regatta Noon.",
            "1. Winter Quay\n2. Regatta Noon\n3. The Lamplit Slip",
            "* **Winter Quay**\n* Regatta Noon\n* The Lamplit Slip",
            "The paintings are The Lamplit Slip, Winter Quay and Regatta Noon",
            "They are: The Lamplit Slip, Winter Quay, Regatta Noon",
            '["Winter Quay","Regatta Noon","The Lamplit Slip"]',
            "The titles:\n- Winter Quay\n- Regatta Noon\n- The Lamplit Slip",
            "Winter Quay, Winter Quay, Regatta Noon, The Lamplit Slip",
            "“Winter Quay”, “Regatta Noon”, “The Lamplit Slip”",
            "Winter Quay\nRegatta Noon\nThe Lamplit Slip",
            "Winter Quay / Regatta Noon / The Lamplit Slip",
            "[Winter Quay, Regatta Noon, The Lamplit Slip]",
            "Paintings: Winter Quay, Regatta Noon, The Lamplit Slip",
            "Winter Quay und Regatta Noon und The Lamplit Slip",
            "1) Winter Quay\n2) Regatta Noon\n3) The Lamplit Slip",
            "*Winter Quay*, *Regatta Noon*, *The Lamplit Slip*",
        ],
        [
            "The Lamplit Slip, Winter Quay",
            "The Lamplit Slip; Winter Quay; Regatta Noon; Two Skiffs",
            "Nets at Dawn; Winter Quay; Regatta Noon",
            "Winter Quay",
            "Winter Quay or Regatta Noon, The Lamplit Slip",
            "not Winter Quay, Regatta Noon, The Lamplit Slip",
            "Winter Quay, Regatta Noon, maybe The Lamplit Slip",
            "Winter Quay Regatta Noon The Lamplit Slip",
            '["Winter Quay","Regatta Noon"]',
            "[]",
            "",
            "All but: Winter Quay, Regatta Noon, The Lamplit Slip x",
            "These are not the ones: Winter Quay, Regatta Noon, The Lamplit Slip",
        ],
    ),
    (
        {"kind": "set", "of": {"kind": "exact"}},
        ["War and Peace", "Eats, Shoots & Leaves", "Peace"],
        "en",
        [
            "War and Peace, Eats, Shoots & Leaves, Peace",
            "Peace and War and Peace and Eats, Shoots & Leaves",
            "Eats, Shoots & Leaves; Peace; War and Peace",
        ],
        ["War and Peace, Eats, Shoots & Leaves"],
    ),
    ({"kind": "set", "of": {"kind": "exact"}}, ["War", "Peace"], "en", ["War and Peace"], []),
    (
        {"kind": "set", "of": {"kind": "exact"}},
        ["BE", "CH"],
        "en",
        ["CH and BE", "be, ch", "BE、CH"],
        ["CH, BE and DE"],
    ),
    ({"kind": "set", "of": {"kind": "exact"}}, ["甲", "乙"], "zh", ["甲和乙", "是甲、乙。"], []),
    ({"kind": "set", "of": {"kind": "exact"}}, ["BE"], "en", ["BE", "The country is BE"], []),
    (
        {"kind": "list", "of": {"kind": "exact"}},
        ["BE", "CH"],
        "en",
        ["BE, CH", "1. BE\n2. CH", '["BE","CH"]'],
        ["CH, BE", "BE then CH", "BE, CH, CH"],
    ),
    (
        {"kind": "set", "of": {"kind": "number"}},
        [1, 2, 3],
        "en",
        [
            "1, 2, 3",
            "1,2,3",
            "3; 2; 1",
            "1 and 2 and 3",
            "1. 1\n2. 2\n3. 3",
            "[1,2,3]",
            "[1,2,3.0]",
            "- 1\n- 2\n- 3",
        ],
        ["1, 2", "1, 2, 3, 4", "123", "1 2 3"],
    ),
    ({"kind": "set", "of": {"kind": "number"}}, [1234], "en", ["1,234"], []),
    ({"kind": "set", "of": {"kind": "number"}}, [1, 234], "en", ["1, 234"], ["1,234"]),
    ({"kind": "set", "of": {"kind": "number"}}, [1.5, 2.5], "de", ["1,5; 2,5"], []),
    ({"kind": "set", "of": {"kind": "number"}}, [1500, 2500], "en", ["1,500 and 2,500"], []),
    (
        {"kind": "list", "of": {"kind": "date"}},
        ["2025-08-16", "2025-08-17"],
        "en",
        ["August 16, 2025 and August 17, 2025", "2025-08-16, 2025-08-17"],
        ["2025-08-17, 2025-08-16"],
    ),
    (
        {
            "kind": "record",
            "fields": {
                "name": {"kind": "exact"},
                "total_eur": {"kind": "number", "unit": "EUR"},
                "due": {"kind": "date"},
            },
        },
        {"name": "Kestrel, Ltd", "total_eur": 415.52, "due": "2025-08-16"},
        "en",
        [
            "name: Kestrel, Ltd\ntotal eur: 415.52 EUR\ndue: 16 August 2025",
            '{"name":"Kestrel, Ltd","total_eur":415.52,"due":"2025-08-16"}',
            '{"name":"Kestrel, Ltd","total_eur":"€415.52","due":"2025-08-16"}',
            "name: Kestrel, Ltd; total_eur: 415.52; due: August 16, 2025",
            "- **Name**: Kestrel, Ltd\n- **Total EUR**: 415.52\n- **Due**: 2025-08-16",
            "name: Kestrel, Ltd, total_eur: 415.52, due: 2025-08-16",
        ],
        [
            "name: Kestrel, Ltd\ntotal eur: 415.52 EUR",
            "name: Kestrel, Ltd\ntotal eur: 415.52 EUR\ndue: 16 August 2025\nextra: 5",
            '{"name":"Kestrel, Ltd","total_eur":415.52,"due":"2025-08-16","x":1}',
            "name: Kestrel, Ltd\nname: Other\ntotal eur: 415.52 EUR\ndue: 16 August 2025",
            "name: Kestrel\ntotal eur: 415.52 EUR\ndue: 16 August 2025",
        ],
    ),
    (
        {"kind": "set", "of": {"kind": "exact"}},
        ["A1", "B", "C"],
        "en",
        [
            "The following three paintings are on display: A1, B and C",
            "There are three: A1; B; C",
            "The works are:\n\n1. A1\n2. B\n3. C\n",
            "Three works: A1, B, C",
            "The paintings are A1, B, and C.",
            "A1 & B & C",
            "A1\n\nB\n\nC",
        ],
        [],
    ),
]

ACCEPTED = [(m, g, loc, text) for m, g, loc, accept, _ in CASES for text in accept]
REFUSED = [(m, g, loc, text) for m, g, loc, _, reject in CASES for text in reject]


def says(matcher: dict[str, Any], gold: Any, text: str, locale: str = "en") -> bool:
    model = MATCHER.validate_python(matcher)
    check_gold(model, gold)
    return match_text(model, gold, text, locale).ok


@pytest.mark.parametrize(("matcher", "gold", "locale", "text"), ACCEPTED)
def test_it_is_read(matcher: dict[str, Any], gold: Any, locale: str, text: str) -> None:
    assert says(matcher, gold, text, locale)


@pytest.mark.parametrize(("matcher", "gold", "locale", "text"), REFUSED)
def test_it_is_refused(matcher: dict[str, Any], gold: Any, locale: str, text: str) -> None:
    assert not says(matcher, gold, text, locale)
