"""Properties of every matcher: many spellings of the gold pass, every other value fails, nothing
raises, nothing hangs, no list of candidates passes."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from babel.dates import format_date
from babel.numbers import format_decimal
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from astra_mcp.errors import BundleError
from astra_mcp.match import Matcher, check_gold, match_text, match_value
from astra_mcp.match.slot import MAX_SLOT

MATCHER: TypeAdapter[Matcher] = TypeAdapter(Matcher)
LOCALES = ["en", "de", "fr", "es", "zh", "zh-CN", "de-CH", "en-IN", "pt-BR", "it", "xx-unknown"]


def model_of(matcher: dict[str, Any]) -> Matcher:
    return MATCHER.validate_python(matcher)


NUMBER = model_of({"kind": "number"})
EURO = model_of({"kind": "number", "unit": "EUR", "unit_aliases": ["euros", "€"]})
EXACT = model_of({"kind": "exact"})
DATE = model_of({"kind": "date"})
TIME = model_of({"kind": "time"})
MOMENT = model_of({"kind": "datetime"})
BOOL = model_of({"kind": "bool"})
TEXTS = model_of({"kind": "set", "of": {"kind": "exact"}})
NUMBERS = model_of({"kind": "list", "of": {"kind": "number"}})
DAYS = model_of({"kind": "set", "of": {"kind": "date"}})

EVERY: list[tuple[Matcher, Any]] = [
    (NUMBER, 240),
    (EURO, 415.52),
    (model_of({"kind": "number", "unit": "pallets"}), 5),
    (EXACT, "LPB"),
    (DATE, "2025-08-16"),
    (TIME, "16:20"),
    (MOMENT, "2025-03-02T16:15:00Z"),
    (BOOL, True),
    (TEXTS, ["War and Peace", "Eats, Shoots & Leaves"]),
    (NUMBERS, [1, 2.5, 1000]),
    (DAYS, ["2025-08-16", "2025-08-17"]),
    (model_of({"kind": "regex", "pattern": "[A-Z]{3}-(\\d+)+"}), "ABC-12"),
    (model_of({"kind": "contains", "all_of": ["storm"], "none_of": ["strike"]}), "the storm"),
    (
        model_of({"kind": "record", "fields": {"a": {"kind": "exact"}, "n": {"kind": "number"}}}),
        {"a": "x", "n": 5},
    ),
]

FRAGMENTS = """
240 415.52 € EUR LPB AC-2 2025-08-16 16 August 2025 16:20 4 pm T Z + - – 1,000 ( ) [ ] { } " : ; ,
and or not War Peace yes no n't five 五 十 月 日 年 点 半 ½ ² e5 ×10 % k million Saturday ANSWER:
** ` \\boxed{ } a: n: １ ٣ / . ' ßİı"""
fragments = st.sampled_from([*FRAGMENTS.split(), "\n", "\u200b"])
noise = st.one_of(st.text(max_size=200), st.lists(fragments, max_size=25).map(" ".join))


@settings(max_examples=400)
@given(st.sampled_from(EVERY), noise, st.sampled_from(LOCALES))
@example((DATE, "2025-04-03"), "3 aprİl 2025", "en")
@example((DATE, "2025-04-04"), "frıday 4 April 2025", "en")
def test_no_text_makes_a_matcher_raise(case: tuple[Matcher, Any], text: str, locale: str) -> None:
    verdict = match_text(*case, text, locale)
    assert verdict.ok in (True, False)
    assert verdict.why


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case[0].kind)
@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "\n",
        "a",
        "1",
        "1,",
        "1, ",
        "a and ",
        "**a ",
        "`",
        "[",
        '["',
        "(",
        "-",
        "a: ",
        "'",
        "．",
        "五",
        "16:",
        "1 January ",
        "not ",
        "\u200b",
        "$",
        "\\boxed{",
        "ANSWER:",
        "a;b,",
        "/",
    ],
)
def test_a_very_long_answer_is_refused_without_hanging(
    case: tuple[Matcher, Any], unit: str
) -> None:
    for length in (MAX_SLOT - 10, 200_000):
        text = (unit * length)[:length]
        assert not match_text(*case, text)


HUGE = "9" * 400
deep: Any = []
for _ in range(3_000):
    deep = [deep]


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case[0].kind)
@pytest.mark.parametrize(
    "text",
    [
        HUGE,
        "1e999",
        "-1e-999 miles",
        "1" + " million" * 45,
        f"[{HUGE},2]",
        f"[{'9' * 3990}]",
        f'{{"a":"x","n":{HUGE}}}',
        f'{{"a":"x","n":[{HUGE}]}}',
        '{"a":"x","n":NaN}',
        "[NaN, Infinity, -Infinity]",
        "[1e400, 2.5, 1000]",
        "[" * 3_900,
        "[" * 900 + "]" * 900,
        "[" * 1_900 + "]" * 1_900,
        '{"a":' * 600 + "1" + "}" * 600,
        '["\\ud800"]',
        "\ud800",
        "0001-01-01T00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "9999-12-31 23:59 America/New_York",
    ],
)
def test_json_at_its_limits_is_refused_plainly(case: tuple[Matcher, Any], text: str) -> None:
    assert not match_text(*case, text)


def test_a_record_whose_field_stands_twice_is_refused() -> None:
    matcher, gold = EVERY[-1]
    assert match_text(matcher, gold, '{"a":"x","n":5}')
    assert not match_text(matcher, gold, '{"a":"x","a":"x","n":5}')
    assert not match_text(matcher, gold, '{"a":"y","a":"x","n":5}')


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case[0].kind)
@pytest.mark.parametrize(
    "value",
    [
        10**400,
        -(10**5000),
        float("nan"),
        float("inf"),
        [10**400, 2],
        {"a": "x", "n": 10**400},
        deep,
        {"a": deep, "n": 5},
        "\ud800",
        "0001-01-01T00:00+14:00",
        None,
        True,
    ],
    ids=list("abcdefghijkl"),
)
def test_a_value_at_its_limits_is_compared_without_raising(
    case: tuple[Matcher, Any], value: Any
) -> None:
    assert match_value(*case, value).ok == (case[0].kind == "bool" and value is True)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**420), 10**420)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | fragments,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "n", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(st.sampled_from(EVERY), json_values)
def test_no_json_makes_a_matcher_raise(case: tuple[Matcher, Any], value: Any) -> None:
    assert match_value(*case, value).why
    assert match_text(*case, json.dumps(value)).why
    assert match_text(*case, json.dumps(value, ensure_ascii=False)).why


@pytest.mark.parametrize("gold", [10**400, -(10**5000)], ids=["long", "longer"])
def test_an_expected_number_beyond_every_float_is_refused(gold: int) -> None:
    with pytest.raises(BundleError):
        check_gold(NUMBER, gold)


# ---- numbers -------------------------------------------------------------------------------

whole = st.integers(-(10**9), 10**9)
cents = st.decimals(-(10**7), 10**7, places=2, allow_nan=False).map(float)


@given(whole, st.sampled_from(["en", "de", "fr", "es", "zh", "it", "pt-BR"]))
def test_an_integer_is_read_as_each_language_writes_it(n: int, locale: str) -> None:
    written = format_decimal(n, locale=locale.replace("-", "_"))
    for text in (str(n), written, f"{written}.", f"**{written}**", f"ANSWER: {n}"):
        assert match_text(NUMBER, n, text, locale), (text, locale)


@given(cents, st.sampled_from(["en", "de", "fr", "es", "zh"]))
def test_an_amount_is_read_as_each_language_writes_it(x: float, locale: str) -> None:
    assume(x != 0)
    written = format_decimal(x, "#,##0.00", locale=locale)
    for text in (
        f"{x:.2f}",
        written,
        f"{written} EUR",
        f"EUR {written}",
        f"€{written}",
        f"{written} €",
        f"about {written} euros",
        f"It is {written} EUR.",
    ):
        assert match_text(EURO, x, text, locale), (text, locale)
        assert not match_text(EURO, x, text.replace("EUR", "USD").replace("€", "$") + " USD")


@given(whole, whole)
def test_another_integer_is_refused(gold: int, said: int) -> None:
    assume(gold != said)
    for text in (str(said), f"{said:,}", f"It is {said}.", f"{said} euros"):
        assert not match_text(EURO, gold, text)


@given(whole, whole)
def test_a_choice_of_numbers_is_refused(gold: int, other: int) -> None:
    assume(gold != other)
    for text in (
        f"{gold} or {other}",
        f"{other} or {gold}",
        f"{gold}, {other}",
        f"{gold} {other}",
        f"{gold}/{other}",
        f"{gold} - {other}",
        f"{gold}-{other}",
        f"{gold} to {other}",
        f"between {gold} and {other}",
        f"{gold} (maybe {other})",
        f"{gold}\n{other}",
        f"not {gold}",
        f"{gold}?",
        f"maybe {gold}",
        f"{gold} or so or {gold}",
    ):
        assert not match_text(NUMBER, gold, text), text


@given(st.integers(0, 999), st.text("0123456789", min_size=1, max_size=6), st.booleans())
def test_a_part_of_a_longer_number_is_refused(gold: int, more: str, before: bool) -> None:
    text = f"{more}{gold}" if before else f"{gold}{more}"
    assume(int(text) != gold)
    assert not match_text(NUMBER, gold, text)
    assert not match_text(NUMBER, gold, f"A{gold}")
    assert not match_text(NUMBER, gold, f"{gold}A7")
    assert not match_text(NUMBER, gold, f"CR-{gold}")


@given(st.integers(2, 40).map(lambda n: [str(i) for i in range(n)]), st.integers(0, 39))
def test_listing_many_numbers_is_refused(numbers: list[str], gold: int) -> None:
    for glue in (" ", ", ", "; ", "\n", " and ", " or "):
        assert not match_text(NUMBER, gold, glue.join(numbers))


@given(st.integers(0, 10**6), st.sampled_from([0xFF10, 0x0660, 0x0966, 0x1D7CE]))
def test_digits_of_other_scripts_are_digits(n: int, zero: int) -> None:
    text = "".join(chr(zero + int(digit)) for digit in str(n))
    assert match_text(NUMBER, n, text)
    assert not match_text(NUMBER, n + 1, text)


@given(st.decimals(1, 10**6, places=3, allow_nan=False), st.sampled_from(["m", "mi", "cm", "ft"]))
def test_a_length_converts(km: Decimal, unit: str) -> None:
    factor = {"m": "1000", "mi": "0.62137119223733", "cm": "100000", "ft": "3280.8398950131"}[unit]
    matcher = model_of({"kind": "number", "unit": "km", "rel_tol": 1e-9})
    assert match_text(matcher, float(km), f"{km * Decimal(factor)} {unit}")
    assert not match_text(matcher, float(km), f"{km} {unit}")
    assert not match_text(matcher, float(km), f"{km} kg")


# ---- days and times ------------------------------------------------------------------------

days = st.dates(date(1900, 1, 1), date(2199, 12, 31))


@given(days, st.sampled_from(["en", "de", "fr", "es", "zh"]))
def test_a_day_is_read_as_each_language_writes_it(day: date, locale: str) -> None:
    gold = day.isoformat()
    for style in ("long", "full"):
        text = format_date(day, style, locale=locale)
        assert match_text(DATE, gold, text, locale), (text, locale)
        if locale != "zh":
            assert match_text(DATE, gold, text, "en"), text
    for text in (
        gold,
        f"{day:%Y/%m/%d}",
        f"{day:%d %B %Y}",
        f"{day:%B %d, %Y}",
        f"{day:%a, %d %b %Y}",
    ):
        assert match_text(DATE, gold, text, locale), text


@given(days, st.integers(-400, 400))
def test_another_day_or_a_choice_is_refused(day: date, shift: int) -> None:
    assume(shift)
    other = day + timedelta(days=shift)
    assert not match_text(DATE, day.isoformat(), f"{other:%d %B %Y}")
    assert not match_text(DATE, day.isoformat(), f"{day:%d %B %Y} or {other:%d %B %Y}")
    assert not match_text(DATE, day.isoformat(), f"{day.isoformat()}, {other.isoformat()}")
    assert not match_text(DATE, day.isoformat(), f"not {day.isoformat()}")
    if other.weekday() != day.weekday():
        assert not match_text(DATE, day.isoformat(), f"{other:%A} {day:%d %B %Y}")


@given(days)
def test_a_numeric_day_is_read_only_when_it_has_one_reading(day: date) -> None:
    clear = day.day > 12 or day.day == day.month
    for form in ("%d/%m/%Y", "%m/%d/%Y"):
        assert match_text(DATE, day.isoformat(), day.strftime(form)).ok == clear


clocks = st.times().map(lambda t: t.replace(second=0, microsecond=0))


@given(clocks)
def test_a_time_is_read_on_both_clocks(clock: time) -> None:
    gold = f"{clock:%H:%M}"
    for text in (
        gold,
        f"{gold}:00",
        f"{clock:%I:%M %p}",
        f"{clock:%I.%M %p}".lower(),
        f"at {gold}",
        f"{gold} Uhr",
        f"{clock:%H}h{clock:%M}",
        f"{clock:%H}点{clock:%M}分",
    ):
        assert match_text(TIME, gold, text), text


@given(clocks, clocks)
def test_another_time_or_a_choice_is_refused(gold: time, said: time) -> None:
    assume(gold != said)
    a, b = f"{gold:%H:%M}", f"{said:%H:%M}"
    for text in (
        b,
        f"{said:%I:%M %p}",
        f"{a} or {b}",
        f"{a}-{b}",
        f"{a} {b}",
        f"not {a}",
        f"{a}:30",
    ):
        assert not match_text(TIME, a, text), text


@given(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)), st.integers(-12, 14))
def test_a_moment_is_the_same_in_every_zone(moment: datetime, hours: int) -> None:
    moment = moment.replace(microsecond=0)
    there = moment + timedelta(hours=hours)
    gold = f"{moment.isoformat()}Z"
    assert match_text(MOMENT, gold, f"{there.isoformat()}{hours:+03d}:00")
    assert match_text(MOMENT, gold, f"{there:%d %B %Y %H:%M:%S} (UTC{hours:+d})")
    if hours:
        assert not match_text(MOMENT, gold, f"{moment.isoformat()}{hours:+03d}:00")


# ---- texts ---------------------------------------------------------------------------------

names = st.text(
    st.characters(categories=["Lu", "Ll", "Nd"], max_codepoint=0x24F) | st.sampled_from(" -&"),
    min_size=1,
    max_size=20,
).filter(lambda text: any(map(str.isalnum, text)) and text.upper().casefold() == text.casefold())


@given(names)
def test_a_text_is_accepted_alone_and_in_a_polite_sentence(gold: str) -> None:
    for text in (
        gold,
        gold.upper(),
        f"**{gold}**",
        f" {gold}. ",
        f'"{gold}"',
        f"It is {gold}.",
        f"The answer is {gold}",
        f"ANSWER: {gold}",
        f"答案：{gold}",
    ):
        assert match_text(EXACT, gold, text), text


@given(names, names)
def test_another_text_or_a_choice_is_refused(gold: str, other: str) -> None:
    shared = set(gold.casefold().split()) & set(other.casefold().split())
    assume(gold.split() and other.split() and not shared)
    assume(" ".join(other.casefold().split()).strip() not in gold.casefold())
    for text in (
        other,
        f"{gold} or {other}",
        f"{other} or {gold}",
        f"{gold}, {other}",
        f"It is {gold} or {other}",
        f"It is not {gold}",
        f"not {gold}",
        f"maybe {gold}",
        f"{gold}x",
        f"x{gold}",
        f"either {gold}",
    ):
        assert not match_text(EXACT, gold, text), text


# ---- sets and lists ------------------------------------------------------------------------

members = st.lists(
    st.text("abcdefghij", min_size=2, max_size=8).filter(lambda text: text != "and"),
    min_size=2,
    max_size=8,
    unique=True,
)


@given(members, st.randoms())
def test_a_set_is_accepted_in_every_layout_and_order(gold: list[str], random: Any) -> None:
    said = list(gold)
    random.shuffle(said)
    for text in (
        ", ".join(said),
        "; ".join(said),
        "\n".join(said),
        " and ".join(said),
        "、".join(said),
        "\n".join(f"- {name}" for name in said),
        json.dumps(said),
        "\n".join(f"{i}. {name}" for i, name in enumerate(said, 1)),
        f"{', '.join(said[:-1])} and {said[-1]}.",
        f"They are: {', '.join(said)}",
        ", ".join([*said, said[0]]),
    ):
        assert match_text(TEXTS, gold, text), text


@given(members, st.integers(0, 7))
def test_a_set_with_one_missing_more_or_other_is_refused(gold: list[str], at: int) -> None:
    at %= len(gold)
    less = gold[:at] + gold[at + 1 :]
    for said in (less, [*gold, "zz"], [*less, "zz"]):
        for glue in (", ", "; ", "\n", " and "):
            assert not match_text(TEXTS, gold, glue.join(said))
        assert not match_text(TEXTS, gold, json.dumps(said))
    assert not match_text(TEXTS, gold, " or ".join(gold))


@given(members)
def test_a_list_is_accepted_in_its_order_only(gold: list[str]) -> None:
    matcher = model_of({"kind": "list", "of": {"kind": "exact"}})
    assert match_text(matcher, gold, ", ".join(gold))
    assert not match_text(matcher, gold, ", ".join(reversed(gold)))
    assert not match_text(matcher, gold, ", ".join([*gold, gold[0]]))


parts = st.sampled_from(["War", "Peace", "Eats", "Shoots", "Leaves", "Ink"])
titles = st.lists(parts, min_size=1, max_size=3).flatmap(
    lambda words: st.sampled_from([", ", " and ", " & "]).map(lambda glue: glue.join(words))
)


@given(st.lists(titles, min_size=1, max_size=4, unique=True), st.randoms())
def test_members_that_hold_separators_are_found_whole(gold: list[str], random: Any) -> None:
    said = list(gold)
    random.shuffle(said)
    for glue in (", ", "; ", " and ", "\n"):
        assert match_text(TEXTS, gold, glue.join(said)), glue.join(said)


@settings(max_examples=60)
@given(st.lists(st.integers(-9999, 9999), min_size=1, max_size=30))
def test_a_list_of_numbers_is_accepted(gold: list[int]) -> None:
    assert match_text(NUMBERS, gold, "; ".join(map(str, gold)))
    assert match_text(NUMBERS, gold, ", ".join(f"{n:,}" for n in gold))
    assert match_text(NUMBERS, gold, json.dumps(gold))
    assert not match_text(NUMBERS, gold, "; ".join(map(str, [*gold, 5])))


def test_the_largest_sets_are_compared_quickly_enough_to_serve() -> None:
    texts = [f"member {i}" for i in range(100)]
    numbers = [i + 0.5 for i in range(100)]
    of_numbers = model_of({"kind": "set", "of": {"kind": "number", "abs_tol": 0.3}})
    for matcher, gold in ((TEXTS, texts), (of_numbers, numbers)):
        check_gold(matcher, gold)
        assert match_text(matcher, gold, "; ".join(map(str, reversed(gold))))
        assert not match_text(matcher, gold, "; ".join(map(str, gold[1:])))


# ---- yes and no ----------------------------------------------------------------------------


@given(
    st.booleans(), st.sampled_from([("yes", "no"), ("true", "false"), ("ja", "nein"), ("是", "否")])
)
def test_yes_and_no_are_told_apart(gold: bool, words: tuple[str, str]) -> None:
    right, other = words if gold else words[::-1]
    for text in (right, right.upper(), f"{right}.", f"The answer is {right}", f"**{right}**"):
        assert match_text(BOOL, gold, text), text
    for text in (
        other,
        f"{right} or {other}",
        f"{right} and {other}",
        f"{right}, {other}",
        f"maybe {right}",
        f"not {right}",
        f"{right}{other}",
    ):
        assert not match_text(BOOL, gold, text), text
