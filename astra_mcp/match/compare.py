"""Which part compares which matcher, for text and for the JSON values inside texts."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from astra_mcp.match import dates, numbers, structure, texts, times
from astra_mcp.match.boolean import match_bool
from astra_mcp.match.models import (
    Bool,
    Contains,
    Date,
    DateTime,
    Exact,
    ListOf,
    Matcher,
    Number,
    Record,
    Regex,
    SetOf,
    Time,
)
from astra_mcp.match.slot import MAX_SLOT, answer_slot, is_retracted
from astra_mcp.match.values import match_value
from astra_mcp.match.verdict import Verdict, wrong

Json = Any
__all__ = ["match_text", "match_value"]


def match_text(matcher: Matcher, value: Json, text: str, locale: str = "en") -> Verdict:
    """Compare an agent's text with an expected value.

    Args:
        matcher: How to compare.
        value: The expected value, one that `check_gold` accepts.
        text: The whole message; its answer slot is compared.
        locale: The bundle's language, for number marks, month names and number words.

    Returns:
        The verdict; its reason holds no expected value.
    """
    slot = answer_slot(text)
    if not slot:
        return wrong("the answer is empty")
    if len(slot) > MAX_SLOT:
        return wrong(f"the answer has more than {MAX_SLOT} characters")
    if is_retracted(slot):
        return wrong("something in the answer is struck through")
    return _compare(matcher, value, slot, locale)


def _compare(matcher: Matcher, value: Json, slot: str, locale: str) -> Verdict:
    match matcher:
        case Exact():
            return texts.match_exact(matcher, value, slot, locale)
        case Number():
            return numbers.match_number(matcher, value, slot, locale)
        case Date():
            return dates.match_date(value, slot, locale)
        case Time():
            return times.match_time(value, slot, locale)
        case DateTime():
            return times.match_datetime(value, slot, locale)
        case Bool():
            return match_bool(value, slot, locale)
        case Regex():
            return texts.match_regex(matcher.pattern, slot)
        case Contains():
            return texts.match_contains(matcher, slot, locale)
    inner = _Inner(locale)
    match matcher:
        case SetOf() | ListOf():
            return structure.match_collection(matcher, value, slot, locale, inner)
        case Record():
            return structure.match_record(matcher, value, slot, inner)


_member_slot = lru_cache(maxsize=2048)(answer_slot)


class _Inner:
    """Compares what stands inside a structure: text as text, other JSON as JSON."""

    def __init__(self, locale: str) -> None:
        self._locale = locale

    def __call__(self, matcher: Matcher, value: Json, candidate: Json) -> bool:
        if isinstance(candidate, str):
            if isinstance(matcher, Exact):
                return not is_retracted(candidate) and texts.equals(
                    matcher, value, answer_slot(candidate)
                )
            slot = _member_slot(candidate)
            if not slot or is_retracted(slot):
                return False
            return _compare(matcher, value, slot, self._locale).ok
        if isinstance(matcher, SetOf | ListOf | Record) or not isinstance(candidate, dict | list):
            return match_value(matcher, value, candidate).ok
        return False
