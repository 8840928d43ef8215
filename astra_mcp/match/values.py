"""Comparing a structured JSON value (a tool's result) with an expected value. Pure and strict.

Types have to be the gold's: a text is no number, 1 is not true. Numbers compare within tolerance,
dates and times as such, sets without order, records field by field with no field more. No JSON
value makes it raise: a number too large for a float or a value nested too deep is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from astra_mcp.match import texts
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
from astra_mcp.match.verdict import RIGHT, Verdict, wrong

Json = Any
MAX_DEPTH: Final = 64
"""Deepest value that is compared; golds have at most 5 levels."""
MAX_BITS: Final = 1_023
"""Longest integer in bits; every one of that length is a finite float."""


def is_comparable(value: Json) -> bool:
    """Whether a JSON value is neither nested too deep nor holds an integer beyond every float."""
    layer = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Json] = []
        for item in layer:
            if isinstance(item, int) and item.bit_length() > MAX_BITS:
                return False
            if isinstance(item, list | dict):
                inner += item.values() if isinstance(item, dict) else item
        if not inner:
            return True
        layer = inner
    return False


def match_value(matcher: Matcher, value: Json, candidate: Json) -> Verdict:
    """Compare a JSON value with an expected one.

    Args:
        matcher: How to compare.
        value: The expected value, one that `check_gold` accepts.
        candidate: Any JSON value.
    """
    if not is_comparable(candidate):
        return wrong("the value is nested too deep or holds a number too large")
    return _match(matcher, value, candidate)


def _match(matcher: Matcher, value: Json, candidate: Json) -> Verdict:
    match matcher:
        case Number():
            return _number(matcher, value, candidate)
        case SetOf():
            return _set(matcher, value, candidate)
        case ListOf():
            return _list(matcher, value, candidate)
        case Record():
            return _record(matcher, value, candidate)
        case Bool():
            return _verdict(candidate is value if isinstance(candidate, bool) else False)
    if not isinstance(candidate, str):
        return wrong("the value is no text")
    match matcher:
        case Exact():
            return _verdict(texts.equals(matcher, value, candidate))
        case Date():
            return _iso(date.fromisoformat, value, candidate)
        case Time():
            return _iso(time.fromisoformat, value, candidate)
        case DateTime():
            return same_moment(value, candidate)
        case Regex():
            return texts.match_regex(matcher.pattern, candidate)
        case Contains():
            return texts.match_contains(matcher, candidate, "en")


def _verdict(ok: bool) -> Verdict:
    return RIGHT if ok else wrong("the value differs")


def within(matcher: Number, gold: float, candidate: Decimal, slack: Decimal = Decimal(0)) -> bool:
    """Whether `candidate` is within the matcher's tolerance of `gold`, or `slack` relative to it.

    A gold that is no integer may carry binary noise, so it always has a relative tolerance of
    1e-12; an integer gold without tolerance means that very integer.
    """
    exact = Decimal(repr(gold))
    size = abs(exact)
    tolerance = max(Decimal(repr(matcher.abs_tol)), Decimal(repr(matcher.rel_tol)) * size)
    if isinstance(gold, float):
        slack = max(slack, Decimal("1e-12"))
    tolerance = max(tolerance, size * slack)
    return abs(candidate - exact) <= tolerance


def _number(matcher: Number, gold: float, candidate: Json) -> Verdict:
    if isinstance(candidate, bool) or not isinstance(candidate, int | float):
        return wrong("the value is no number")
    if not isfinite(candidate):
        return wrong("the number is not finite")
    return _verdict(within(matcher, gold, Decimal(repr(candidate))))


def _iso(parse: Callable[[str], object], gold: str, candidate: str) -> Verdict:
    try:
        return _verdict(parse(candidate) == parse(gold))
    except ValueError:
        return wrong("the value is not in ISO form")


def same_moment(gold: str, candidate: str) -> Verdict:
    """Compare two ISO date-times: as instants when both name a zone, else as wall clocks."""
    try:
        a, b = datetime.fromisoformat(gold), datetime.fromisoformat(candidate)
    except ValueError:
        return wrong("the value is not in ISO form")
    if a.tzinfo is None or b.tzinfo is None:
        a, b = a.replace(tzinfo=None), b.replace(tzinfo=None)
    return _verdict(a == b)


def _set(matcher: SetOf, gold: Sequence[Json], candidate: Json) -> Verdict:
    if not isinstance(candidate, list):
        return wrong("the value is no list")
    members = list({texts.json_key(item): item for item in candidate}.values())
    if len(members) != len(gold):
        return wrong("members are missing or more than expected")
    fits = [
        {k for k, want in enumerate(gold) if _match(matcher.of, want, member)} for member in members
    ]
    return RIGHT if one_to_one(fits) else wrong("the members differ")


def one_to_one(fits: Sequence[Set[int]]) -> bool:
    """Whether every member can be given an expected value of its own (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(member: int, seen: set[int]) -> bool:
        for k in fits[member] - seen:
            seen.add(k)
            if k not in owner or place(owner[k], seen):
                owner[k] = member
                return True
        return False

    return all(place(member, set()) for member in range(len(fits)))


def _list(matcher: ListOf, gold: Sequence[Json], candidate: Json) -> Verdict:
    if not isinstance(candidate, list) or len(candidate) != len(gold):
        return wrong("members are missing or more than expected")
    pairs = zip(gold, candidate, strict=True)
    return _verdict(all(_match(matcher.of, want, have) for want, have in pairs))


def _record(matcher: Record, gold: Json, candidate: Json) -> Verdict:
    if not isinstance(candidate, dict) or set(candidate) != set(matcher.fields):
        return wrong("fields are missing or more than expected")
    for name, inner in matcher.fields.items():
        if not _match(inner, gold[name], candidate[name]):
            return wrong("a field differs")
    return RIGHT
