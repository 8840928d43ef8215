"""Texts, patterns, wanted words, yes and no in answers."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from astra_mcp.match import Matcher, check_gold, match_text

MATCHER: TypeAdapter[Matcher] = TypeAdapter(Matcher)

CASES: list[tuple[dict[str, Any], Any, str, list[str], list[str]]] = [
    (
        {"kind": "bool"},
        True,
        "en",
        [
            "yes",
            "Yes.",
            "true",
            "Yes, it is.",
            "The answer is yes",
            "是",
            "是的。",
            "It is true",
            "Yes - the balance is enough",
            "**Yes**",
            "ja",
            "oui",
            "sí",
            "Yes it is",
            "Yes, the balance is sufficient.",
            "yes there is",
        ],
        [
            "no",
            "not true",
            "yes and no",
            "Yes or no",
            "maybe yes",
            "Yes, it isn't",
            "yes, no",
            "1",
            "No doubt, yes",
            "",
            "yesterday",
            "It isn't true",
            "No it isn't",
            "Yes it isn't",
        ],
    ),
    (
        {"kind": "bool"},
        False,
        "en",
        [
            "no",
            "No, it isn't.",
            "false",
            "否",
            "不是",
            "nein",
            "The answer is no.",
            "No: the balance is too low",
            "It is false.",
        ],
        ["No, that's true", "yes", "Not yes", "no problem"],
    ),
    (
        {"kind": "exact", "aliases": ["LPB airport"]},
        "LPB",
        "en",
        [
            "LPB",
            "It is LPB",
            "It's LPB.",
            "The answer is LPB",
            "The airport code is **LPB**.",
            "答案是LPB",
            "lpb",
            "ＬＰＢ",
            "L\u200bPB",
            "Airport: LPB",
            "LPB Airport",
            "C'est LPB",
            "Es ist LPB",
            "Code: `LPB`",
            "ANSWER: LPB\n",
            "I looked.\n\n**ANSWER:** LPB",
            "ANSWER: MEX\nANSWER: LPB",
            "答案：LPB",
            "**Answer: LPB**",
            "answer： LPB",
        ],
        [
            "It is CUZ, LPB or MEX",
            "It is not LPB",
            "not LPB",
            "LPB or MEX",
            "LPBX",
            "XLPB",
            "LPB MEX",
            "isn't LPB",
            "It isn't LPB",
            "anything but LPB",
            "The wrong code is LPB",
            "",
            "LP B",
            "Either LPB",
            "Not: LPB",
            "maybe LPB",
            "LPB?",
            "ANSWER: LPB\nANSWER: MEX",
            "LPB²",
        ],
    ),
    (
        {"kind": "regex", "pattern": "[A-Z]{2}-\\d{4}"},
        "RS-5152",
        "en",
        ["RS-5152", "**RS-5152**"],
        ["RS-51522", "xRS-5152", "RS-5152\nRS-5153"],
    ),
    (
        {"kind": "contains", "all_of": ["storm", "Friday"], "none_of": ["strike"]},
        "the storm delayed it to Friday",
        "en",
        ["Delayed to Friday because of the storm.", "Friday's storm"],
        ["storms on Friday", "storm, Friday, strike", "not the storm but Friday", "Friday"],
    ),
    ({"kind": "contains", "all_of": ["暴风"]}, "因为暴风", "zh", ["因为暴风延误"], []),
    (
        {"kind": "exact"},
        "PU-324",
        "en",
        [
            "Confirmation number PU-324",
            "The confirmation number is PU-324.",
            "Your confirmation number: PU-324",
            "Pickup confirmation: PU-324",
            "PU-324",
            "code PU-324",
            "The code is: PU-324",
        ],
        [
            "not the number PU-324",
            "the old code PU-325",
            "Confirmation number PU-324 or PU-325",
            "ticket PU-324",
        ],
    ),
    ({"kind": "exact"}, "IS 0", "en", ["The answer is IS 0"], []),
    (
        {"kind": "exact"},
        "LPB",
        "en",
        ['The code is: "LPB"', "The code that is needed is LPB"],
        ["Perhaps the code is LPB"],
    ),
    ({"kind": "exact"}, "LPB", "zh", ["确认码为：LPB。"], ["不是LPB"]),
    ({"kind": "exact"}, "PB", "en", [], ["It is LPB"]),
    ({"kind": "exact"}, "海", "zh", [], ["是上海"]),
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
