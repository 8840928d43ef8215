"""Reading the one day of an answer, and comparing it.

As with numbers the whole slot is accounted for: no digit may be left over, every day in it is the
expected one, a weekday that is named must be that day's. `03/04/2025` has two readings and is
refused; `16/08/2025` has one. A year is never supplied.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Final

from astra_mcp.match import disguised, locales, words
from astra_mcp.match.slot import fold, lowered, plain, without_codes
from astra_mcp.match.verdict import RIGHT, Refused, Verdict, wrong

MAX_CHARS: Final = 300

_YMD: Final = re.compile(
    r"(?<![\w./-])(?P<y>\d{4})(?P<sep>[-/.])(?P<m>\d{1,2})(?P=sep)(?P<d>\d{1,2})(?![\d/-]|\.\d)",
    re.ASCII,
)
_NUMERIC: Final = re.compile(
    r"(?<![\w./-])(?P<a>\d{1,2})(?P<sep>[-/.])\s?(?P<b>\d{1,2})(?P=sep)\s?(?P<y>\d{4})(?![\d/-]|\.\d)",
    re.ASCII,
)
_CHINESE: Final = re.compile(
    r"(?<!\d)(?P<y>\d{4})\s?年\s?(?P<m>\d{1,2})\s?月\s?(?P<d>\d{1,2})\s?[日号]", re.ASCII
)
_SOFT_MONTHS: Final = frozenset({"may", "march", "mars", "mai"})


@dataclass(frozen=True)
class Day:
    """A day that a text names, and where it does."""

    day: date
    start: int
    end: int


@lru_cache(maxsize=64)
def _worded(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Day-month-year and month-day-year with the month as a word."""
    names = "|".join(sorted(map(re.escape, locales.months(language)), key=len, reverse=True))
    month = rf"(?P<mon>{names})(?![^\W_])\.?"
    day = r"(?P<d>\d{1,2})(?:st|nd|rd|th|er|º|ª|o|\.)?"
    year = r"(?P<y>\d{4})(?![\d/-]|\.\d)"
    return (
        re.compile(
            rf"(?<![\w./,-]){day}[\s-]?\s?(?:(?:day\s)?(?:of|de|des|del)\s)?{month},?"
            rf"(?:\s?(?:de|del|of)\s|[\s-]?\s?){year}",
            re.IGNORECASE,
        ),
        re.compile(rf"(?<![^\W_]){month}\s(?:the\s)?{day},?\s{year}", re.IGNORECASE),
    )


def _make(year: str, month: int | str | None, day: str) -> date:
    try:
        return date(int(year), int(month or 0), int(day))
    except ValueError as error:
        raise Refused("the answer names a day that does not exist") from error


def _numeric(found: re.Match[str], locale: str) -> date:
    """d/m/y or m/d/y: only when a single day can be meant."""
    a, b, year = found["a"], found["b"], found["y"]
    if found["sep"] == "." and words.language(locale) in ("de", "fr", "es", "it", "pl", "cs", "ru"):
        return _make(year, b, a)
    readings = set()
    for month, day in ((b, a), (a, b)):
        try:
            readings.add(date(int(year), int(month), int(day)))
        except ValueError:
            continue
    if len(readings) != 1:
        raise Refused("day and month cannot be told apart" if readings else "no such day")
    return readings.pop()


def days_in(text: str, locale: str) -> list[Day]:
    """Every day that the text names, with its place."""
    lang = words.language(locale)
    months = locales.months(lang)
    readers: list[tuple[re.Pattern[str], Callable[[re.Match[str]], date]]] = [
        (_YMD, lambda m: _make(m["y"], m["m"], m["d"])),
        (_CHINESE, lambda m: _make(m["y"], m["m"], m["d"])),
        (_NUMERIC, lambda m: _numeric(m, locale)),
        *(
            (form, lambda m: _make(m["y"], months.get(m["mon"].casefold()), m["d"]))
            for form in _worded(lang)
        ),
    ]
    found = [
        Day(read(m), m.start(), m.end()) for form, read in readers for m in form.finditer(text)
    ]
    found.sort(key=lambda day: day.start)
    if any(a.end > b.start for a, b in pairwise(found)):
        raise Refused("the day can be read in several ways")
    return found


def check_weekdays(text: str, day: Day, locale: str) -> None:
    """Refuse a text that names a weekday which is not that day's."""
    lang = words.language(locale)
    folded = lowered(text)
    table = locales.weekdays(lang)
    named = [
        table.get(name, table.get(name.removesuffix("s")))
        for name in _weekday_names(lang).findall(folded)
    ]
    for name, number in locales.short_weekdays(lang).items():
        beside = rf"(?<![^\W_]){re.escape(name)}\.?,?\s?$"
        if re.search(beside, folded[: day.start]):
            named.append(number)
    if any(number != day.day.weekday() for number in named):
        raise Refused("the weekday is not that day's")


@lru_cache(maxsize=64)
def _weekday_names(language: str) -> re.Pattern[str]:
    names = sorted(locales.weekdays(language))
    chinese = [name for name in names if "\u3400" <= name[0] <= "\u9fff"]
    worded = "|".join(re.escape(name) for name in names if name not in chinese)
    spaced = rf"(?<![^\W_])(?:{worded})s?(?![^\W_])"
    return re.compile("|".join([*chinese, spaced]), re.IGNORECASE)


def without_weekdays(text: str, locale: str) -> str:
    """The text without the full names of weekdays."""
    return _weekday_names(words.language(locale)).sub("", text)


def check_rest(rest: str, locale: str) -> None:
    """What stands around the value holds no other value and no word against it."""
    rest = without_weekdays(rest, locale)
    if any(char.isdigit() or (char.isnumeric() and char != "一") for char in rest):
        raise Refused("the answer holds another number")
    for token in re.findall(r"[^\W\d_]+", rest):
        if token.casefold() in locales.full_months(words.language(locale)) and not (
            token.casefold() in _SOFT_MONTHS and token.islower()
        ):
            raise Refused("the answer names another month")
    if disguised.has_number_word(rest, locale):
        raise Refused("the answer holds another number, in words or Roman numerals")
    if reason := disguised.period_problem(rest) or words.problem(rest, locale):
        raise Refused(reason)


def prepared(slot: str) -> str:
    """The slot in the form that is searched; refused when it is too long."""
    text = without_codes(" ".join(fold(plain(slot)).split()))
    if len(text) > MAX_CHARS:
        raise Refused("the answer is too long for a date or time")
    return text


def cut(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with the spans taken out and a mark in place of each."""
    parts, at = [], 0
    for start, end in sorted(spans):
        parts.append(text[at:start])
        at = end
    return " \u00b6 ".join([*parts, text[at:]])


def match_date(gold: str, slot: str, locale: str) -> Verdict:
    """Whether the slot names the expected day (ISO) and no other."""
    wanted = date.fromisoformat(gold)
    days = _date_reading(slot, locale)
    if isinstance(days, str):
        return wrong(days)
    return RIGHT if all(day == wanted for day in days) else wrong("the day differs")


@lru_cache(maxsize=512)
def _date_reading(slot: str, locale: str) -> list[date] | str:
    """The days that a slot names, or why it is refused; cached for answers with many members."""
    try:
        text = prepared(slot)
        days = days_in(text, locale)
        if not days:
            return "the answer names no complete date"
        check_rest(cut(text, [(d.start, d.end) for d in days]), locale)
        for day in days:
            check_weekdays(text, day, locale)
    except Refused as reason:
        return str(reason)
    return [day.day for day in days]
