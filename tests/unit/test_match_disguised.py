"""Answers that hide a second value, take one back or name another, and natural ones that do not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from astra_mcp.match import Matcher, check_gold, match_text

MATCHER: TypeAdapter[Matcher] = TypeAdapter(Matcher)
NUMBER = {"kind": "number"}
DEGREES = {"kind": "number", "unit": "°C"}
EURO = {"kind": "number", "unit": "EUR"}
EXACT = {"kind": "exact"}
TITLES = {"kind": "list", "of": EXACT}
SET = {"kind": "set", "of": EXACT}
BILL = {"kind": "record", "fields": {"amount": NUMBER, "statement": EXACT, "year": NUMBER}}
GOLD_BILL = {"amount": 270.7, "statement": "ST-1", "year": 860.06}

CASES: list[tuple[dict[str, Any], Any, list[str], list[str]]] = [
    (
        {"kind": "time"},
        "16:20",
        [
            "20 past 4 pm",
            "twenty past 4 pm",
            "20 minutes past 4 p.m.",
            "40 to 5 pm",
            "16.20",
            "It closes at 16:20",
            "at 16.20",
            "the time is 16.20",
            "It closes at 16.20",
        ],
        [
            "five minutes to 16:20",
            "twenty minutes from 16:20",
            "16:20, XV:XLV",
            "16:20; xviii",
            "16:20 and six",
            "ten hours from 16:20",
            "half past 16:20",
            "20 past 4",
            "20 past 4 am",
            "20 to 4 pm",
            "16.20 EUR",
            "€16.20",
            "16.20 metres",
            "16.20%",
            "-16.20",
            "16.20.25",
            "~~16:20~~",
            "all but 16:20",
            "16.20 16.45",
            "minutes to 16:20",
            "an hour on from 16:20",
            "formerly 16:20",
            "cancelled: 16:20",
        ],
    ),
    ({"kind": "time"}, "15:45", ["quarter to 4 pm"], ["quarter past 4 pm", "16.45"]),
    ({"kind": "time"}, "16:30", ["half past 4 pm", "half past four pm"], ["half to 5 pm"]),
    ({"kind": "time"}, "04:20", ["20 past 4 am"], ["4.20"]),
    (
        {"kind": "date"},
        "2025-08-16",
        ["The inspection is due on 16 August 2025", "on 16 August 2025, a Saturday"],
        [
            "two days from 2025-08-16",
            "a day from 2025-08-16",
            "week of 16 August 2025",
            "the week beginning 16 August 2025",
            "w/c 16 August 2025",
            "a week on Saturday 16 August 2025",
            "a fortnight on Saturday 16 August 2025",
            "the week containing 16 August 2025",
            "rescheduled from 16 August 2025",
            "the end of 16 August 2025",
            "Woche vom 16. August 2025",
            "semana del 16 de agosto de 2025",
            "the eve of 16 August 2025",
            "16 August 2025; Christmas",
            "16 August 2025, New Year's Day",
            "16 August 2025 and the seventeenth",
            "16 August 2025 (XVII)",
            "16 August 2025, 圣诞节",
            "~~16 August 2025~~",
            "<del>16 August 2025</del>",
            "all but 16 August 2025",
        ],
    ),
    (
        NUMBER,
        272,
        [
            "two hundred and seventy-two",
            "two hundred seventy-two",
            "Two Hundred Seventy Two",
            "There are two hundred and seventy-two birds.",
            "272 (two hundred and seventy-two)",
            "~272",
            "= 272",
            "272 CDs",
        ],
        [
            "~~272~~",
            "~272~",
            "~~272~~ 275",
            "~~275~~ 272",
            "<s>272</s>",
            "<DEL>272</DEL>",
            "\\sout{272}",
            "\\cancel{272}",
            "2\u03367\u03362\u0336",
            "√272",
            "∛272",
            "≠272",
            "≥ 272",
            "±272",
            "log(272)",
            "log 272",
            "f(272)",
            "sqrt (272)",
            "the square root of 272",
            "all but 272",
            "other than 272",
            "the negative of 272",
            "formerly 272",
            "272 (retracted)",
            "272 and CCCXCVI",
            "272; cccxcvi",
            "272, X",
            "two hundred and seventy-three",
            "two hundred and seventy-second",
            "two seventy-two",
            "two hundred and seventy-two hundred",
            "two hundred, seventy-two",
            "two hundred and seventy-two and three",
            "seventy-two and two hundred",
            "two hundred and seventy-two thousand",
        ],
    ),
    (NUMBER, 100, ["one hundred", "a hundred"], ["hundred and one hundred"]),
    (NUMBER, 1200, ["twelve hundred", "one thousand two hundred"], ["one thousand twelve"]),
    (NUMBER, 1205, ["one thousand, two hundred and five"], []),
    (NUMBER, 200000, ["two hundred thousand"], ["two hundred"]),
    (
        NUMBER,
        999999,
        ["nine hundred and ninety-nine thousand, nine hundred and ninety-nine"],
        ["nine hundred and ninety-nine thousand nine hundred"],
    ),
    (NUMBER, 2000000, ["two million"], ["two million five hundred"]),
    (
        EURO,
        860.93,
        ["860.93 (account AC-2)", "€860.93 (account AC-2)", "860.93 EUR (account AC-2)"],
        ["860.93 (USD)", "860.93 (account 2)", "860.93 (not AC-2)", "860.93 (boxes)"],
    ),
    (DEGREES, 1.4, ["1.4 °C"], ["1.4 °C below the limit", "1.4 °C above the limit"]),
    (
        EXACT,
        "PU-324",
        [
            "PU-324 (Monday 16 June 2025)",
            "PU-324 (on Monday 16 June 2025 at 16:20)",
            "PU-324 (16:20)",
            "(PU-324)",
            "[PU-324]",
            "The confirmation number is PU-324 (Monday 16 June 2025)",
            "Your booking reference is PU-324",
            "the pickup code: PU-324",
            "确认码是PU-324",
        ],
        [
            "the cancelled number is PU-324",
            "The other one is PU-324",
            "The previous code is PU-324",
            "The expired confirmation number is PU-324",
            "Cancelled: PU-324",
            "Old code: PU-324",
            "anything except this code PU-324",
            "旧确认码是PU-324",
            "PU-324 (cancelled)",
            "PU-324 (PU-325)",
            "PU-324 (before Monday 16 June 2025)",
            "PU-324 (Tuesday 16 June 2025)",
            "PU-324 (16 June 2025, PU-325)",
            "PU-324 (or 16 June 2025)",
            "PU-324 (16:20 or 17:20)",
            "PU-324 (expired 16 June 2025)",
            "PU-324 PU-325",
            "(PU-324) (PU-325)",
            "[PU-324, PU-325]",
            "~~PU-324~~",
            "~PU-324~",
        ],
    ),
    (EXACT, "16 June 2025", [], ["16 June 2025 (17 June 2025)", "16 June 2025 (16:20)"]),
    (
        TITLES,
        ["A", "B", "C"],
        [
            "1. A, 2. B, 3. C",
            "1. A 2. B 3. C",
            "1) A; 2) B; and 3) C",
            "(1) A, (2) B, (3) C",
            "A, then B, then C",
            "A, then B, and then C",
            "A → B → C",
            "A -> B -> C",
            "A->B->C",
            "The order is A, B, C",
            "In order: A, B, C",
        ],
        [
            "in reverse: A, B, C",
            "Backwards: A, B, C",
            "From last to first: A, B, C",
            "in reverse:\nA\nB\nC",
            "The reverse is A, B, C",
            "3. A, 2. B, 1. C",
            "2. A, 3. B, 4. C",
            "1. A, 3. B, 2. C",
            "1. A, 2. B, 3. C, 4. D",
            "C → B → A",
            "C, then B, then A",
            "A > B > C",
            "A <- B <- C",
            "Except: A, B, C",
            "The rejected ones are A, B, C",
        ],
    ),
    (TITLES, ["A → B", "C"], ["A → B, C", "A → B; C"], ["A → C", "A → B → C → C"]),
    (
        {"kind": "list", "of": NUMBER},
        [5, 6],
        ["5 → 6", "1. 5, 2. 6", "five, then six"],
        ["6 → 5", "5 > 6", "5 - 6", "1. 6, 2. 5"],
    ),
    (
        SET,
        ["A", "B"],
        ["A, B", "Titles: A, B", '["A", "B"]'],
        [
            "A, ~~B~~",
            "A, <s>B</s>",
            '["A", "~~B~~"]',
            '["A", "\\u007e\\u007eB~~"]',
            "Rejected: A, B",
        ],
    ),
    ({"kind": "set", "of": NUMBER}, [1, 2], ["1, 2"], ["1, ~~2~~", "√1, 2", '["1", "~~2~~"]']),
    ({"kind": "bool"}, True, ["yes"], ["~~yes~~", "~~no~~ yes"]),
    ({"kind": "contains", "all_of": ["storm"]}, "storm", ["the storm"], ["the ~~storm~~"]),
    (
        BILL,
        GOLD_BILL,
        [
            "| amount | statement | year |\n|---|---|---|\n| 270.70 | ST-1 | 860.06 |",
            "| Year | Amount | Statement |\n|:--|:-:|--:|\n| 860.06 | 270.70 | ST-1 |",
        ],
        [
            "| amount | statement | year |\n|---|---|---|\n| 270.71 | ST-1 | 860.06 |",
            "|amount|statement|year|\n|---|---|---|\n|1|X|2|\n|270.70|ST-1|860.06|",
            "| amount | amount | year |\n|---|---|---|\n| 270.70 | 270.70 | 860.06 |",
            "| amount | statement |\n|---|---|\n| 270.70 | ST-1 |",
            "| amount | statement | year | x |\n|---|---|---|---|\n| 270.70 | ST-1 | 860.06 | 1 |",
            "| amount | statement | year |\n|---|---|---|\n| ~~270.70~~ | ST-1 | 860.06 |",
        ],
    ),
]

ACCEPTED = [(m, gold, text) for m, gold, accept, _ in CASES for text in accept]
REFUSED = [(m, gold, text) for m, gold, _, reject in CASES for text in reject]


def says(matcher: dict[str, Any], gold: Any, text: str) -> bool:
    model = MATCHER.validate_python(matcher)
    check_gold(model, gold)
    return match_text(model, gold, text).ok


@pytest.mark.parametrize(("matcher", "gold", "text"), ACCEPTED)
def test_it_is_read(matcher: dict[str, Any], gold: Any, text: str) -> None:
    assert says(matcher, gold, text)


@pytest.mark.parametrize(("matcher", "gold", "text"), REFUSED)
def test_it_is_refused(matcher: dict[str, Any], gold: Any, text: str) -> None:
    assert not says(matcher, gold, text)
