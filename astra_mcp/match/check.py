"""Is an expected value fit to grade with? Empty or ill-typed gold is refused before it is used.

An empty gold would be contained in everything, a tolerance that reaches zero would accept an agent
that says nothing of use, and a pattern that refuses its own value accepts nobody. Raises
`BundleError`; says nothing about whether the value is true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from astra_mcp.errors import BundleError
from astra_mcp.match import texts
from astra_mcp.match.compare import match_text
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
from astra_mcp.match.values import is_comparable

Json = Any
MAX_REL_TOL: Final = 0.2
MAX_TEXT: Final = 1_000
MAX_MEMBERS: Final = 100
MAX_DEPTH: Final = 4

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME: Final = re.compile(r"\d{2}:\d{2}(:\d{2})?", re.ASCII)
_DATETIME: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2})?", re.ASCII
)


def check_gold(matcher: Matcher, value: Json) -> None:
    """Refuse an expected value that is empty, of the wrong kind, or makes its matcher meaningless.

    Raises:
        BundleError: says what is wrong with it.
    """
    _check(matcher, value, 0)
    if isinstance(matcher, Number) and matcher.locale is not None:
        return
    if not match_text(matcher, value, _stated(value)):
        raise _bad(
            matcher,
            "is refused by its own matcher when an answer states it",
            "Use a shorter or plainer value, or another kind of matcher.",
        )


def _stated(value: Json) -> str:
    """The value as a plain answer would state it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _check(matcher: Matcher, value: Json, depth: int) -> None:
    if value is None or (isinstance(value, str | list | dict) and not value):
        raise _bad(matcher, "is empty", "Give the value that a right answer states.")
    if isinstance(value, str) and not value.strip():
        raise _bad(matcher, "is white space", "Give the value that a right answer states.")
    if depth > MAX_DEPTH:
        raise _bad(matcher, "is nested too deep", f"Use at most {MAX_DEPTH} levels.")
    match matcher:
        case Exact():
            _check_exact(matcher, value)
        case Number():
            _check_number(matcher, value)
        case Date():
            _check_iso(matcher, value, _DATE, date.fromisoformat, "YYYY-MM-DD")
        case Time():
            _check_iso(matcher, value, _TIME, time.fromisoformat, "HH:MM or HH:MM:SS")
        case DateTime():
            _check_iso(
                matcher, value, _DATETIME, datetime.fromisoformat, "YYYY-MM-DDTHH:MM[:SS][zone]"
            )
        case SetOf() | ListOf():
            _check_members(matcher, value, depth)
        case Regex():
            _check_regex(matcher, value)
        case Contains():
            _check_contains(matcher, value)
        case Bool():
            if not isinstance(value, bool):
                raise _bad(matcher, "is no boolean", "Use true or false.")
        case Record():
            _check_record(matcher, value, depth)


def _bad(matcher: Matcher, what: str, remedy: str) -> BundleError:
    return BundleError(f"The expected value of a {matcher.kind} matcher {what}.", remedy)


def _is_text(value: Json) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and bool(texts.normal(value))


def _check_exact(matcher: Exact, value: Json) -> None:
    if not _is_text(value):
        raise _bad(
            matcher,
            "is no text, or only punctuation",
            f"Use a text of at most {MAX_TEXT} characters, or another kind of matcher.",
        )
    if not all(map(_is_text, matcher.aliases)):
        raise _bad(matcher, "has an alias that is only punctuation", "Remove the alias.")


def _check_number(matcher: Number, value: Json) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not is_comparable(value) or not isfinite(value):
        raise _bad(matcher, "is no finite number", "Use a JSON number, not a text.")
    tolerances = (matcher.abs_tol, matcher.rel_tol)
    if not all(isfinite(tol) and tol >= 0 for tol in tolerances) or matcher.rel_tol > MAX_REL_TOL:
        raise _bad(
            matcher,
            "has a tolerance that is negative, not finite or above rel_tol 0.2",
            "Use the rounding that the question allows.",
        )
    gold = abs(Decimal(repr(value)))
    if gold and Decimal(repr(matcher.abs_tol)) >= gold:
        raise _bad(matcher, "has a tolerance that reaches zero", "Use a smaller abs_tol.")
    if not gold and matcher.abs_tol >= 1:
        raise _bad(matcher, "is zero with a tolerance of 1 or more", "Use a smaller abs_tol.")
    names = [*matcher.unit_aliases, *([matcher.unit] if matcher.unit is not None else [])]
    if any(not name.strip() or any(char.isdigit() for char in name.strip()[:1]) for name in names):
        raise _bad(matcher, "has an empty unit or one that starts with a digit", "Name the unit.")
    if matcher.unit_aliases and matcher.unit is None:
        raise _bad(matcher, "has unit aliases but no unit", "Set unit.")


def _check_iso(
    matcher: Matcher, value: Json, form: re.Pattern[str], parse: Callable[[str], object], name: str
) -> None:
    if isinstance(value, str) and form.fullmatch(value):
        try:
            parse(value)
            return
        except ValueError:
            pass
    raise _bad(matcher, f"is not of the form {name}", "Write it in ISO form.")


def _check_members(matcher: SetOf | ListOf, value: Json, depth: int) -> None:
    if not isinstance(value, list) or len(value) > MAX_MEMBERS:
        raise _bad(matcher, f"is no list of 1 to {MAX_MEMBERS} members", "Use a JSON array.")
    for member in value:
        _check(matcher.of, member, depth + 1)
    if isinstance(matcher.of, Exact) and matcher.of.aliases and len(value) > 1:
        raise _bad(matcher, "has aliases that fit every member", "Give aliases to one value only.")
    keys = [texts.json_key(member) for member in value]
    if isinstance(matcher, SetOf) and len(set(keys)) != len(keys):
        raise _bad(matcher, "holds a member twice", "List every member once.")


def _check_regex(matcher: Regex, value: Json) -> None:
    if not isinstance(value, str):
        raise _bad(matcher, "is no text", "Use a text that the pattern matches.")
    problem = texts.pattern_problem(matcher.pattern)
    if problem is not None:
        raise _bad(matcher, f"has a pattern that {problem}", "Use a pattern without look-around.")
    if not texts.full_match(matcher.pattern, value):
        raise _bad(matcher, "is not matched by its own pattern", "Mend the pattern or the value.")
    if texts.full_match(matcher.pattern, "") or texts.full_match(matcher.pattern, "\u2603 x 17"):
        raise _bad(matcher, "has a pattern that matches anything", "Say what an answer looks like.")


def _check_contains(matcher: Contains, value: Json) -> None:
    if not isinstance(value, str):
        raise _bad(matcher, "is no text", "Use a text with every word of all_of.")
    if not all(map(_is_text, [*matcher.all_of, *matcher.none_of])):
        raise _bad(matcher, "has an empty word in all_of or none_of", "Remove the word.")
    folded = texts.normal(value)
    if not all(texts.has_words(folded, words) for words in matcher.all_of):
        raise _bad(matcher, "lacks a word of all_of", "Mend the value or the list.")
    if any(texts.has_words(folded, words) for words in matcher.none_of):
        raise _bad(matcher, "holds a word of none_of", "Mend the value or the list.")


def _check_record(matcher: Record, value: Json, depth: int) -> None:
    if not matcher.fields:
        raise _bad(matcher, "has no fields to compare", "Name the fields.")
    if not isinstance(value, dict) or set(value) != set(matcher.fields):
        raise _bad(matcher, "does not have exactly the matcher's fields", "Name the same fields.")
    labels = [texts.label(name) for name in matcher.fields]
    if len(set(labels)) != len(labels) or not all(labels):
        raise _bad(matcher, "has fields whose names look the same", "Rename a field.")
    for name, inner in matcher.fields.items():
        _check(inner, value[name], depth + 1)
