"""Reading the one time of day, or moment, of an answer, and comparing it.

As with days the whole slot is accounted for. A time without am or pm is a 24-hour time; a zone
counts only for moments, and only when both sides name one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from astra_mcp.match.dates import (
    check_rest,
    check_weekdays,
    cut,
    days_in,
    prepared,
    without_weekdays,
)
from astra_mcp.match.labels import harmless
from astra_mcp.match.numerals import words_of
from astra_mcp.match.verdict import RIGHT, Refused, Verdict, wrong

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
_SPELLED: Final = {word: int(n) for word, n in words_of("en").items() if 0 < n < 60}
_AWAY: Final = "|".join(sorted(_SPELLED, key=len, reverse=True))
_HOUR_WORDS: Final = "|".join(word for word, n in _SPELLED.items() if n <= 12)
_SPOKEN: Final = re.compile(
    rf"(?<![\w:.,/-])(?P<n>[1-5]?\d|quarter|half|{_AWAY})(?: min(?:ute)?s?)? "
    rf"(?P<to>past|after|to|before|till) (?P<spoken>1[0-2]|[1-9]|{_HOUR_WORDS}) ?"
    r"(?P<half>[ap])\.? ?m\b\.?",
    re.IGNORECASE | re.ASCII,
)
_DOTTED: Final = re.compile(
    r"(?<![\w:.,/-])(?P<h>1[3-9]|2[0-3])\.(?P<m>[0-5]\d)(?![\w%:/-]|[.,]\d)"
)
_HAPPENS: Final = re.compile(
    r"\b(?:clos|open|start|end|leav|depart|arriv|begin|shut)(?:e?s|ing|ure)?\b", re.IGNORECASE
)
_GLUED: Final = re.compile(r":|(?!Z)[^\W_\u3040-\u9fff]")
_NOON: Final = frozenset({"noon", "midday", "mittag", "midi", "mediodía", "正午"})
_OFFSET: Final = re.compile(
    r"\s?[(\[]?(?:(?:(?i:UTC|GMT))\s?)?(?P<sign>[+-])(?P<h>\d{1,2})(?::?(?P<m>\d{2}))?(?![\d:])[)\]]?|"
    r"(?P<z>Z)(?![^\W_])|\s?[(\[]?(?P<name>(?i:UTC|GMT)|[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+|[A-Z]{2,4}T|MSK)\b[)\]]?",
    re.ASCII,
)
_ZONES: Final = {
    "UTC": 0, "GMT": 0, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "WET": 0, "WEST": 1, "EST": -5,
    "EDT": -4, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "JST": 9, "KST": 9, "MSK": 3,
}  # fmt: skip
_LATE: Final = re.compile(
    r"\b(?:afternoon|evening|tonight|nachmittags?|abends?|après-midi|soir|tarde)\b", re.IGNORECASE
)
_EARLY: Final = re.compile(r"\b(?:morning|morgens|vormittags?|matin|mañana)\b", re.IGNORECASE)
_NIGHT: Final = re.compile(r"\b(?:night|nachts?|nuit|noche)\b", re.IGNORECASE)
_FOREIGN_ZONE: Final = re.compile(
    r"\s(?:[^\W\d_]+\s){1,2}(?:time|zeit)\b|\sheure (?:de|locale)|\shora (?:de|local)",
    re.IGNORECASE,
)
_BARE_MINUS: Final = re.compile(r"\s?-")
_ISO: Final = re.compile(r"(?<=\d)[Tt](?=\d\d:)")
_MORNING: Final = frozenset({"凌晨", "早上", "上午"})


@dataclass(frozen=True)
class Clock:
    """A time of day that a text names.

    Attributes:
        at: The time.
        fixed: Whether am, pm or its name say which half of the day it is in.
        zone: Its zone, if named.
        start, end: Where it stands, zone included.
    """

    at: time
    fixed: bool
    zone: timezone | ZoneInfo | None
    start: int
    end: int


def _clocks(text: str, *, iso: bool = False) -> list[Clock]:
    """Every time of day that the text names; bare numbers are none.

    Args:
        text: Folded text.
        iso: It is an ISO date-time, in which a minus starts a zone and never a range.
    """
    found = [_clock(text, m, iso=iso) for m in _NAMED_TIME.finditer(text)]
    found += [_spoken(m) for m in _SPOKEN.finditer(text)]
    for m in _TIME.finditer(text):
        if any(clock.start < m.end() and m.start() < clock.end for clock in found):
            continue
        if m["m"] or m["half"] or m["tail"]:
            found.append(_clock(text, m, iso=iso))
    return sorted((_in_its_half(clock, text) for clock in found), key=lambda clock: clock.start)


def _spoken(m: re.Match[str]) -> Clock:
    """A time such as `20 past 4 pm`; without am or pm none is read."""
    away = _count(m["n"])
    back = m["to"].casefold() in ("to", "before", "till")
    if back and m["n"].casefold() == "half":
        raise Refused("the time is not understood")
    hour = _count(m["spoken"]) % 12 + (12 if m["half"].casefold() == "p" else 0)
    minutes = (hour * 60 + (-away if back else away)) % (24 * 60)
    return Clock(time(*divmod(minutes, 60)), True, None, m.start(), m.end())


def _count(text: str) -> int:
    known = {"quarter": 15, "half": 30, **_SPELLED}
    return int(text) if text.isdigit() else known[text.casefold()]


def _dotted(text: str) -> list[Clock]:
    """`16.20` as a time: an hour from 13 on, alone or among words that only introduce it."""
    found = list(_DOTTED.finditer(text))
    if len(found) != 1:
        return []
    m = found[0]
    around = f"{text[: m.start()]} {text[m.end() :]}"
    if not harmless(_HAPPENS.sub("", around)) or re.search(r"[^\w\s.,:;()'\"]", around):
        return []
    return [Clock(time(int(m["h"]), int(m["m"])), False, None, m.start(), m.end())]


def _in_its_half(clock: Clock, text: str) -> Clock:
    """Apply words such as "in the afternoon" to a time that says neither am nor pm."""
    late, early = _LATE.search(text), _EARLY.search(text)
    if clock.fixed and ((late and clock.at.hour < 12) or (early and clock.at.hour >= 12)):
        raise Refused("am or pm and the part of the day do not agree")
    if clock.fixed or not (late or early or _NIGHT.search(text)):
        return clock
    if (late and early) or (clock.at.hour >= 12 and early) or (clock.at.hour < 12 and not late):
        if early and not late and clock.at.hour < 12:
            return clock
        raise Refused("the part of the day is not clear")
    return replace(clock, at=clock.at.replace(hour=clock.at.hour % 12 + 12))


def _clock(text: str, m: re.Match[str], *, iso: bool) -> Clock:
    end = m.end()
    if "h" in m.groupdict():
        hour = _hour(m)
        fixed = bool(m["cjk"]) or (m["tail"] or "").strip()[:1].casefold() in ("a", "p")
        micro = int((m["f"] or "0").ljust(6, "0"))
        minute = 30 if m["half"] else int(m["m"] or 0)
        if hour > 23:
            raise Refused("there is no such hour")
        if _GLUED.match(text, end):
            raise Refused("the time is not understood")
        at = time(hour, minute, int(m["s"] or 0), micro)
    else:
        at, fixed = time(12 if (m["name"] or m["cjk"]).casefold() in _NOON else 0), True
    zone, end = _zone(text, end)
    if isinstance(zone, timezone) and _BARE_MINUS.match(text, m.end()) and not iso:
        raise Refused("a range, or a time with its zone: the answer can be read as both")
    return Clock(at, fixed, zone, m.start(), end)


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
        return UTC, found.end()
    if name := found["name"]:
        if name.upper() in _ZONES:
            return timezone(timedelta(hours=_ZONES[name.upper()])), found.end()
        if "/" not in name:
            raise Refused("the time zone is not understood")
        try:
            return ZoneInfo(name), found.end()
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise Refused("the time zone is not known") from error
    minutes = int(found["h"]) * 60 + int(found["m"] or 0)
    if minutes > 14 * 60:
        raise Refused("there is no such time zone")
    sign = -1 if found["sign"] == "-" else 1
    return timezone(timedelta(minutes=sign * minutes)), found.end()


def without_moment(text: str, locale: str) -> str | None:
    """The words around the one day, time of day or both of a text; None when it names none.

    Also None when the words make it another one, or the day or time cannot be read.
    """
    try:
        text = prepared(text)
        days = days_in(text, locale)
        spans = [(day.start, day.end) for day in days]
        masked = list(text)
        for start, end in spans:
            masked[start:end] = " " * (end - start)
        clocks = _clocks("".join(masked))
        spans += [(clock.start, clock.end) for clock in clocks]
        if not spans or len(days) > 1 or len(clocks) > 1:
            return None
        rest = cut(text, spans)
        check_rest(rest, locale)
        for day in days:
            check_weekdays(text, day, locale)
    except Refused:
        return None
    return without_weekdays(rest, locale)


def match_time(gold: str, slot: str, locale: str) -> Verdict:
    """Whether the slot names the expected time of day (HH:MM or HH:MM:SS) and no other."""
    wanted = time.fromisoformat(gold)
    clocks = _time_reading(slot, locale)
    if isinstance(clocks, str):
        return wrong(clocks)
    return RIGHT if all(clock.at == wanted for clock in clocks) else wrong("the time differs")


@lru_cache(maxsize=512)
def _time_reading(slot: str, locale: str) -> list[Clock] | str:
    """The times that a slot names, or why it is refused."""
    try:
        text = prepared(slot)
        clocks = _dotted(text) or _clocks(text)
        if not clocks:
            return "the answer names no time of day"
        check_rest(cut(text, [(c.start, c.end) for c in clocks]), locale)
    except Refused as reason:
        return str(reason)
    return clocks


def match_datetime(gold: str, slot: str, locale: str) -> Verdict:
    """Whether the slot names the expected moment: one day, one time of day, nothing else.

    Zones count when both sides name one; else the wall clocks are compared.
    """
    wanted = datetime.fromisoformat(gold)
    said = _moment_reading(slot, locale)
    if isinstance(said, str):
        return wrong(said)
    if wanted.tzinfo and not said.tzinfo and _FOREIGN_ZONE.search(slot):
        return wrong("the time zone is not understood")
    if wanted.tzinfo is None or said.tzinfo is None:
        wanted, said = wanted.replace(tzinfo=None), said.replace(tzinfo=None)
    return RIGHT if wanted == said else wrong("the moment differs")


@lru_cache(maxsize=512)
def _moment_reading(slot: str, locale: str) -> datetime | str:
    """The moment that a slot names, or why it is refused."""
    try:
        given = prepared(slot)
        text = _ISO.sub(" ", given)
        days = days_in(text, locale)
        masked = list(text)
        for day in days:
            masked[day.start : day.end] = " " * (day.end - day.start)
        clocks = _clocks("".join(masked), iso=text != given)
        if len(days) != 1 or len(clocks) != 1:
            return "the answer does not name one day and one time of day"
        day, clock = days[0], clocks[0]
        check_rest(cut(text, [(day.start, day.end), (clock.start, clock.end)]), locale)
        check_weekdays(text, day, locale)
    except Refused as reason:
        return str(reason)
    return datetime.combine(day.day, clock.at, tzinfo=clock.zone)
