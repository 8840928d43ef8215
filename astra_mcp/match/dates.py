"""Reading the one day, time of day, or moment of an answer, and comparing it.

As with numbers the whole slot is accounted for: no digit may be left over, every day in it is the
expected one, a weekday that is named must be that day's. `03/04/2025` has two readings and is
refused; `16/08/2025` has one. A year is never supplied. A time without am or pm is a 24-hour time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from astra_mcp.match import locales, words
from astra_mcp.match.slot import fold, plain
from astra_mcp.match.verdict import RIGHT, Verdict, wrong

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
_TIME: Final = re.compile(
    r"(?<![\w:.,/-])(?P<cjk>凌晨|早上|上午|中午|下午|晚上|傍晚)?\s?(?P<h>\d{1,2})"
    r"(?:(?P<sep>[:.h]|\s?[时点]\s?|\s(?:Uhr|h)\s)(?P<m>[0-5]\d)(?:\s?分)?(?:(?:(?<=\d):|(?<=分)\s?)"
    r"(?P<s>[0-5]\d)(?:\.(?P<f>\d{1,6}))?\s?秒?)?|(?P<half>\s?点半))?"
    r"(?P<tail>\s?(?:[ap]\.?\s?m\b\.?|o'clock|uhr\b|hrs?\b|hours\b|heures?\b|horas?\b|h\b|[点时]整?|整))?",
    re.IGNORECASE | re.ASCII,
)
_NAMED_TIME: Final = re.compile(
    r"(?<![^\W_])(?:12\s)?(?P<name>noon|midday|midnight|mittag|mitternacht|midi|minuit|mediodía|"
    r"medianoche)(?![^\W_])|(?P<cjk>正午|午夜)",
    re.IGNORECASE,
)
_NOON: Final = frozenset({"noon", "midday", "mittag", "midi", "mediodía", "正午"})
_OFFSET: Final = re.compile(
    r"\s?[(\[]?(?:(?:UTC|GMT)\s?)?(?P<sign>[+-])(?P<h>\d{1,2})(?::?(?P<m>\d{2}))?(?![\d:])[)\]]?|"
    r"(?P<z>Z)(?![^\W_])|\s?[(\[]?(?P<name>UTC|GMT|[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+|[A-Z]{2,4}T|MSK)\b[)\]]?",
    re.ASCII,
)
_ZONES: Final = {
    "UTC": 0, "GMT": 0, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "WET": 0, "WEST": 1, "EST": -5,
    "EDT": -4, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "JST": 9, "KST": 9, "MSK": 3,
}  # fmt: skip
_SOFT_MONTHS: Final = frozenset({"may", "march", "mars", "mai"})
_MORNING: Final = frozenset({"凌晨", "早上", "上午"})


class Refused(Exception):
    """The answer cannot be read; the argument says why (never leaves this module)."""


@dataclass(frozen=True)
class _Day:
    day: date
    start: int
    end: int


@dataclass(frozen=True)
class Clock:
    """A time of day of an answer: the time, whether seconds were said, its zone."""

    at: time
    seconds: bool
    zone: timezone | ZoneInfo | None
    start: int
    end: int


# ---- days ----------------------------------------------------------------------------------


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


def _make(year: str, month: int | str, day: str) -> date:
    try:
        return date(int(year), int(month), int(day))
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


def _days(text: str, locale: str) -> list[_Day]:
    """Every day that the text names, with its place."""
    lang = words.language(locale)
    months = locales.months(lang)
    readers: list[tuple[re.Pattern[str], Callable[[re.Match[str]], date]]] = [
        (_YMD, lambda m: _make(m["y"], m["m"], m["d"])),
        (_CHINESE, lambda m: _make(m["y"], m["m"], m["d"])),
        (_NUMERIC, lambda m: _numeric(m, locale)),
        *(
            (form, lambda m: _make(m["y"], months[m["mon"].casefold()], m["d"]))
            for form in _worded(lang)
        ),
    ]
    found = [
        _Day(read(m), m.start(), m.end()) for form, read in readers for m in form.finditer(text)
    ]
    found.sort(key=lambda day: day.start)
    if any(a.end > b.start for a, b in zip(found, found[1:], strict=False)):
        raise Refused("the day can be read in several ways")
    return found


def _check_weekdays(text: str, day: date, place: _Day, locale: str) -> None:
    lang = words.language(locale)
    folded = text.casefold()
    table = locales.weekdays(lang)
    named = [
        table[name if name in table else name.removesuffix("s")]
        for name in _weekday_names(lang).findall(folded)
    ]
    for name, number in locales.short_weekdays(lang).items():
        beside = rf"(?<![^\W_]){re.escape(name)}\.?,?\s?$"
        if re.search(beside, folded[: place.start]):
            named.append(number)
    if any(number != day.weekday() for number in named):
        raise Refused("the weekday is not that day's")


@lru_cache(maxsize=64)
def _weekday_names(language: str) -> re.Pattern[str]:
    ascii_, cjk = [], []
    for name in locales.weekdays(language):
        (cjk if "\u3400" <= name[0] <= "\u9fff" else ascii_).append(re.escape(name))
    words_ = rf"(?<![^\W_])(?:{'|'.join(ascii_)})s?(?![^\W_])"
    return re.compile("|".join([*cjk, words_]), re.IGNORECASE)


def _check_rest(rest: str, locale: str) -> None:
    """What stands around the value holds no other value and no word against it."""
    rest = _weekday_names(words.language(locale)).sub("", rest)
    if any(char.isdigit() or (char.isnumeric() and char != "一") for char in rest):
        raise Refused("the answer holds another number")
    for token in re.findall(r"[^\W\d_]+", rest):
        if token.casefold() in locales.full_months(words.language(locale)) and not (
            token.casefold() in _SOFT_MONTHS and token.islower()
        ):
            raise Refused("the answer names another month")
    if reason := words.problem(rest, locale):
        raise Refused(reason)


def _prepared(slot: str) -> str:
    text = " ".join(fold(plain(slot)).split())
    if len(text) > MAX_CHARS:
        raise Refused("the answer is too long for a date or time")
    return text


def _cut(text: str, spans: list[tuple[int, int]]) -> str:
    parts, at = [], 0
    for start, end in sorted(spans):
        parts.append(text[at:start])
        at = end
    return " \u00b6 ".join([*parts, text[at:]])


def match_date(gold: str, slot: str, locale: str) -> Verdict:
    """Whether the slot names the expected day (ISO) and no other."""
    wanted = date.fromisoformat(gold)
    try:
        text = _prepared(slot)
        days = _days(text, locale)
        if not days:
            return wrong("the answer names no complete date")
        _check_rest(_cut(text, [(d.start, d.end) for d in days]), locale)
        for day in days:
            _check_weekdays(text, day.day, day, locale)
    except Refused as reason:
        return wrong(str(reason))
    return RIGHT if all(day.day == wanted for day in days) else wrong("the day differs")


# ---- times ---------------------------------------------------------------------------------


def _clocks(text: str) -> list[Clock]:
    """Every time of day that the text names; bare numbers are none."""
    found = [_clock(text, m) for m in _NAMED_TIME.finditer(text)]
    for m in _TIME.finditer(text):
        if any(clock.start < m.end() and m.start() < clock.end for clock in found):
            continue
        if m["m"] or m["half"] or m["tail"]:
            found.append(_clock(text, m))
    return sorted(found, key=lambda clock: clock.start)


def _clock(text: str, m: re.Match[str]) -> Clock:
    end = m.end()
    if "h" in m.groupdict():
        hour, seconds = _hour(m), m["s"] is not None
        micro = int((m["f"] or "0").ljust(6, "0"))
        minute = 30 if m["half"] else int(m["m"] or 0)
        if hour > 23:
            raise Refused("there is no such hour")
        if text[end : end + 1] == ":" or (text[end : end + 1].isalnum() and text[end] != "Z"):
            if not "\u3040" <= text[end] <= "\u9fff":
                raise Refused("the time is not understood")
        at = time(hour, minute, int(m["s"] or 0), micro)
    else:
        at, seconds = time(12 if (m["name"] or m["cjk"]).casefold() in _NOON else 0), False
    zone, end = _zone(text, end)
    return Clock(at, seconds, zone, m.start(), end)


def _hour(m: re.Match[str]) -> int:
    """The hour on the 24-hour clock."""
    hour = int(m["h"])
    tail = re.sub(r"[.\s]", "", (m["tail"] or "").casefold())
    dotted = m["sep"] == "." and tail not in ("am", "pm", "uhr", "hrs", "h")
    if dotted:
        raise Refused("a number with a point is no time of day")
    if (
        tail in ("am", "pm")
        and (m["cjk"] or not 0 < hour <= 12)
        and not (tail == "pm" and 12 < hour < 24)
    ):
        raise Refused("there is no such hour")
    if tail == "am":
        return hour % 12
    if tail == "pm" and hour <= 12:
        return hour % 12 + 12
    if m["cjk"] in ("下午", "晚上", "傍晚") and hour <= 12:
        return hour % 12 + 12
    if m["cjk"] == "中午" and hour < 11:
        return hour + 12
    if m["cjk"] in _MORNING:
        if hour > 12:
            raise Refused("there is no such hour")
        return hour % 12 if m["cjk"] == "凌晨" else hour
    return hour


def _zone(text: str, end: int) -> tuple[timezone | ZoneInfo | None, int]:
    found = _OFFSET.match(text, end)
    if not found:
        return None, end
    if found["z"]:
        return timezone.utc, found.end()
    if name := found["name"]:
        if name in _ZONES:
            return timezone(timedelta(hours=_ZONES[name])), found.end()
        if "/" not in name:
            raise Refused("the time zone is not understood")
        try:
            return ZoneInfo(name), found.end()
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise Refused("the time zone is not known") from error
    minutes = int(found["h"]) * 60 + int(found["m"] or 0)
    if minutes > 14 * 60:
        raise Refused("there is no such time zone")
    sign = -1 if found["sign"] == "-" else 1
    return timezone(timedelta(minutes=sign * minutes)), found.end()


def match_time(gold: str, slot: str, locale: str) -> Verdict:
    """Whether the slot names the expected time of day (HH:MM or HH:MM:SS) and no other."""
    wanted = time.fromisoformat(gold)
    try:
        text = _prepared(slot)
        clocks = _clocks(text)
        if not clocks:
            return wrong("the answer names no time of day")
        _check_rest(_cut(text, [(c.start, c.end) for c in clocks]), locale)
    except Refused as reason:
        return wrong(str(reason))
    return RIGHT if all(c.at == wanted for c in clocks) else wrong("the time differs")


def match_datetime(gold: str, slot: str, locale: str) -> Verdict:
    """Whether the slot names the expected moment: one day, one time of day, nothing else.

    Zones count when both sides name one; else the wall clocks are compared.
    """
    wanted = datetime.fromisoformat(gold)
    try:
        text = re.sub(r"(?<=\d)[Tt](?=\d\d:)", " ", _prepared(slot))
        days = _days(text, locale)
        masked = list(text)
        for day in days:
            masked[day.start : day.end] = " " * (day.end - day.start)
        clocks = _clocks("".join(masked))
        if len(days) != 1 or len(clocks) != 1:
            return wrong("the answer does not name one day and one time of day")
        day, clock = days[0], clocks[0]
        _check_rest(_cut(text, [(day.start, day.end), (clock.start, clock.end)]), locale)
        _check_weekdays(text, day.day, day, locale)
    except Refused as reason:
        return wrong(str(reason))
    said = datetime.combine(day.day, clock.at, tzinfo=clock.zone)
    if wanted.tzinfo is None or said.tzinfo is None:
        wanted, said = wanted.replace(tzinfo=None), said.replace(tzinfo=None)
    return RIGHT if wanted == said else wrong("the moment differs")
