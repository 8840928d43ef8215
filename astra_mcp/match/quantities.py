"""Reading the numbers of an answer: value, sign, scale and unit of each.

The whole slot is accounted for: every digit in it belongs to a number that was understood, and no
word around one denies, doubts, shifts or re-units it. Several readings, an unknown unit behind a
number that should have one, a number inside a code ("CR-11") refuse the answer. A direction word
("1.4 °C below the limit") is refused too: whether it turns the sign depends on the question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Final

from astra_mcp.match import words
from astra_mcp.match.disguised import has_roman
from astra_mcp.match.locales import CURRENCIES
from astra_mcp.match.models import Number
from astra_mcp.match.numerals import (
    CHINESE,
    parse_chinese,
    parse_number,
    parse_words,
    run_of,
    scale_of,
    word_of,
    words_of,
)
from astra_mcp.match.slot import fold, lowered, plain, without_codes
from astra_mcp.match.units import CURRENCY, Units, units_of
from astra_mcp.match.verdict import Refused

MAX_CHARS: Final = 400
"""Longest slot that may hold a number; a longer one argues instead of answering."""

_SIGN: Final = re.compile(
    r"(?:(?<![\w)\]])(?P<sign>[-+])|(?<!\w)(?P<word>minus|negative|moins|menos|negativo)\s+|(?P<cjk>负))$",
    re.IGNORECASE,
)
_LOOSE_DASH: Final = re.compile(r"- $")
_EXPONENT: Final = re.compile(
    r"[eE](?P<e>[+-]?\d{1,3})(?![\w.,])|\s?[x×*·]\s?10\s?(?:\^|\*\*)\s?(?P<p>[+-]?\d{1,3})(?![\w.,])"
    r"|\s?[x×*·]\s?10(?P<s>[⁺⁻]?[⁰¹²³⁴-⁹]{1,3})",
    re.ASCII,
)
_SUPERSCRIPT: Final = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
_AFTER: Final = re.compile(r"\s?(?P<word>[^\W\d_]+\.?)")
_NAME_TAIL: Final = re.compile(
    r"\s?[(\[]?(?P<name>[^\s\d.,;:!()\[\]]+(?:\.(?=[^\W\d_]))?[^\s\d,;:!()\[\]]*"
    r"(?: [^\W\d_]+){0,3})"
)
_CODE_BEFORE: Final = re.compile(
    r"(?P<name>[^\W\d_]*[^\w\s\d.,;:!()\[\]\"'*#=/~<>+-]|[^\W\d_]+) ?$"
)
_FORBIDDEN_NEXT: Final = re.compile(r"\s?[/:^=*×÷~<>]\s?[\d.]|\s?-{1,2}\s?\d|[\"']|\s?±|\.\.")
_OPERATOR: Final = re.compile("[√∛∜∑∏∫∞≠≤≥≦≧≮≯±∓¬∝∂∆∇∩∪⊂⊃∈∉≪≫]")
_CALL: Final = re.compile(r"[^\W\d_]\($")
_CODE_GLOSS: Final = re.compile(r"\s\([^()\d]*\u25a1[^()\d]*\)")
_FUNCTION: Final = frozenset(
    (
        "in on at for is are was were will be as all total altogether overall left remaining "
        "remains remain and by to of from with including incl inclusive gross net exactly only "
        "the a an this that it its due each so which after before when once today now then "
        "approximately roughly about "
        "ist sind war wird insgesamt in im auf für am und mit bei inklusive inkl genau nur übrig "
        "est sont au en pour sur avec dans total restant reste tout compris exactement seulement "
        "es son en para con incluido exactamente solo restante restantes"
    ).split()
)
_NO_CODES: Final = frozenset({"try", "pen", "cop", "Try", "Pen"})
_ONE: Final = re.compile(r"(?:the|this|that|which|only|no|any|each|every|cheapest|best)\s$")
_HARMLESS_CHINESE: Final = re.compile("一共|一个|统一|唯一|一般|一起|千克|千米|千瓦|千卡|第一")


@dataclass(frozen=True)
class Quantity:
    """One number of an answer.

    Attributes:
        value: With sign and scale.
        units: What its unit can mean; empty without one.
        name: Its unit as written, "" without one.
        start, end: Where it stands, unit included.
    """

    value: Decimal
    units: Units
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Expected:
    """What a matcher says of units.

    Attributes:
        names: Its unit and the aliases of it, folded.
        units: What the unit means in the table; empty for a unit of its own.
    """

    names: tuple[str, ...]
    units: Units

    @classmethod
    def of(cls, matcher: Number) -> Expected:
        """That of a matcher."""
        if matcher.unit is None:
            return cls((), ())
        return _expected(matcher.unit, tuple(matcher.unit_aliases))

    def is_named(self, name: str) -> bool:
        """Whether a name is the expected unit's, without regard to case unless case decides."""
        folded = fold(name).strip(".")
        if folded in self.names:
            return True
        case_matters = len(folded) <= 3 and folded.upper() not in CURRENCIES and units_of(folded)
        if case_matters:
            return False
        wanted = {name.casefold() for name in self.names}
        caseless = folded.casefold()
        return not wanted.isdisjoint({caseless, f"{caseless}s", caseless.removesuffix("s")})


@lru_cache(maxsize=512)
def _expected(unit: str, aliases: tuple[str, ...]) -> Expected:
    return Expected(tuple(fold(name).strip(".") for name in (unit, *aliases)), units_of(unit))


@lru_cache(maxsize=512)
def reading(slot: str, expected: Expected, locale: str) -> list[Quantity] | str:
    """The quantities of a slot, or why it is refused; cached for answers with many members."""
    text = " ".join(fold(plain(slot).replace("—", ", ")).split())
    if text[:1] in "\"'" and text[:1] == text[-1:]:
        text = text[1:-1].strip()
    if len(text) > MAX_CHARS:
        return "the answer is too long for a number"
    text = without_codes(text)
    try:
        found = _read(text, expected, locale)
        _check_named_units(expected, found, text)
    except Refused as reason:
        return str(reason)
    return found or "the answer holds no number"


def _check_named_units(expected: Expected, found: list[Quantity], text: str) -> None:
    """Refuse a slot whose other words name another unit of the gold's dimension."""
    rest = list(text)
    for quantity in found:
        rest[quantity.start : quantity.end] = "\0" * (quantity.end - quantity.start)
    single = re.findall(r"[^\W\d_]+|[€£¥₹₩]|[^\W\d_]{0,2}\$", "".join(rest))
    pairs = [f"{a} {b}" for a, b in pairwise(single)]
    for token in [*pairs, *single]:
        spelled = len(token) > 3 or not token.isascii() or token.isupper() or "$" in token
        named = units_of(token) if spelled and len(token) > 1 - ("$" in token) else ()
        same = any(unit.same_as(target) for unit in named for target in expected.units)
        if _same_kind(named, expected.units) and not same and not expected.is_named(token):
            raise Refused("the answer names another unit")


def _read(text: str, expected: Expected, locale: str) -> list[Quantity]:
    """Every quantity of the text; refuses when a digit or a number word is not understood."""
    found: list[Quantity] = []
    at = 0
    for run in run_of(locale).finditer(text):
        if run.start() < at:
            continue
        quantity = _quantity(text, run, expected, locale)
        found.append(quantity)
        at = quantity.end
    found += _written(text, found, expected, locale)
    spans = [(quantity.start, quantity.end) for quantity in found]
    outside = "".join(
        char for i, char in enumerate(text) if not any(start <= i < end for start, end in spans)
    )
    if any(char.isdigit() or (char.isnumeric() and not CHINESE.match(char)) for char in outside):
        raise Refused("the answer holds a number that is not understood")
    if has_roman(outside):
        raise Refused("the answer holds a Roman numeral beside the number")
    if _OPERATOR.search(outside):
        raise Refused("the answer holds an expression")
    if words.has_hedge(outside, locale):
        raise Refused("the answer offers a choice or doubts itself")
    if words.has_negation(outside, locale):
        raise Refused("the answer denies something")
    for start, end in spans:
        near = f"{' '.join(text[:start].split()[-4:])} | {' '.join(text[end:].split()[:3])}"
        if words.has_shift(near):
            raise Refused("a word beside the number makes it another number")
    return found


def _quantity(text: str, run: re.Match[str], expected: Expected, locale: str) -> Quantity:
    value = parse_number(run.group(), locale)
    if value is None:
        raise Refused("a number is not written as this language writes numbers")
    start, before = _before(text, run.start())
    negative, start = _sign(text, start, run.start(), bool(before))
    if _CALL.search(text[:start]) and not _is_cjk(text[start - 2]):
        raise Refused("a function is applied to the number")
    if exponent := _EXPONENT.match(text, run.end()):
        digits = exponent["e"] or exponent["p"] or exponent["s"].translate(_SUPERSCRIPT)
        value = value.scaleb(int(digits))
        end = exponent.end()
    else:
        end = run.end()
    behind = end
    value, end = _scaled(text, value, end, expected, locale)
    thousands = text[behind:end].strip().casefold() == "k"
    units, name, end = _unit_after(text, end, expected)
    if thousands and name and not any(unit.dimension == CURRENCY for unit in units):
        raise Refused("the unit is not understood")
    if before and name and not any(a.same_as(b) for a in units_of(before) for b in units):
        raise Refused("the answer names two units")
    _check_next(text, end)
    if before and not name:
        units, name = units_of(before), before
    return Quantity(-value if negative else value, units, name, start, end)


def _before(text: str, start: int) -> tuple[int, str]:
    """Where a currency before the number starts, and its name ("" for none)."""
    left = text[:start]
    core = left.rstrip("-+ ") if left.endswith(("-", "+")) else left
    found = _CODE_BEFORE.search(core)
    if found:
        name = found["name"]
        for candidate in (name, name[-1:]):
            known = units_of(candidate) if candidate not in _NO_CODES else ()
            symbol = not candidate[-1:].isalnum()
            if any(unit.dimension == CURRENCY for unit in known) and (
                symbol or candidate.upper() in CURRENCIES or candidate in ("kr", "Kč", "zł")
            ):
                place = found.start() + len(name) - len(candidate)
                if place and core[place - 1].isalnum():
                    raise Refused("a number stands inside a word or code")
                return place, candidate
    if left and (left[-1].isalpha() or left[-1] == "_") and not _is_cjk(left[-1]):
        raise Refused("a number stands inside a word or code")
    return start, ""


def _is_cjk(char: str) -> bool:
    return "\u3040" <= char <= "\u9fff"


def _sign(text: str, start: int, digits: int, currency: bool) -> tuple[bool, int]:
    """Whether the number is negative, and where it starts with its sign."""
    between = text[start:digits]
    if currency and re.search(r"[-+]\s?$", between):
        return "-" in between, start
    left = text[:start]
    if _LOOSE_DASH.search(left):
        raise Refused("a dash before the number may be a sign or a bullet")
    if found := _SIGN.search(left):
        return found.group().strip() != "+", found.start()
    if left.endswith(("-", "+", ".", ",", "'", "/", ":", "#", "=", "^", "_", "<", ">")) and not (
        left.endswith((":", "=", "'"))
    ):
        raise Refused("a number stands inside a word or code")
    return False, start


def _scaled(
    text: str, value: Decimal, end: int, expected: Expected, locale: str
) -> tuple[Decimal, int]:
    """Multiply by a scale word behind the number, unless the word is the gold's unit."""
    while found := _AFTER.match(text, end):
        word = found["word"]
        power = scale_of(word, locale)
        if power is None and _is_cjk(word[0]):
            word = word[0]
            power = scale_of(word, locale)
        cjk_unit = _is_cjk(word[0]) and units_of(text[end:].lstrip()[:2])
        if power is None or cjk_unit or expected.is_named(word):
            break
        value = value.scaleb(power)
        end = found.start("word") + len(word)
    return value, end


def _unit_after(text: str, end: int, expected: Expected) -> tuple[Units, str, int]:
    """The unit behind the number, its name as written, and where it ends."""
    found = _NAME_TAIL.match(text, end)
    if not found or _CODE_GLOSS.match(text, end):
        return (), "", end
    start, tail = found.start("name"), found["name"]
    for length in _prefixes(tail):
        name = tail[:length].rstrip(".'\"")
        known = units_of(name)
        if name.casefold() in _FUNCTION and not _same_kind(known, expected.units):
            continue
        if known or (name and expected.is_named(name)):
            stop = start + len(name)
            if text[stop : stop + 1] == ")" and text[start - 1] == "(":
                stop += 1
            return known, name, stop
    first = re.split(r"[\s.'\"-]", tail, maxsplit=1)[0]
    if start == end and first[:1].isalpha() and not _is_cjk(first[0]):
        raise Refused("a number stands inside a word or code")
    if expected.names and first[:1].isalpha() and first.casefold() not in _FUNCTION:
        raise Refused("the unit is not understood")
    return (), "", end


def _same_kind(units: Units, others: Units) -> bool:
    return any(unit.dimension == other.dimension for unit in units for other in others)


def _prefixes(tail: str) -> list[int]:
    """Lengths of the leading parts of `tail` that end where a word ends, longest first."""
    ends = [
        i
        for i in range(1, len(tail) + 1)
        if i == len(tail)
        or not (tail[i].isalnum() and tail[i - 1].isalnum())
        or _is_cjk(tail[i])
        or _is_cjk(tail[i - 1])
    ]
    return [i for i in reversed(ends) if not (i < len(tail) and tail[i] in "²³")]


def _check_next(text: str, end: int) -> None:
    rest = text[end:]
    if _FORBIDDEN_NEXT.match(rest):
        raise Refused("the answer holds an expression, a range or a fraction")
    if rest[:1] in ("/", "^", "_", "-", "²", "³") or re.match(r"\s?(?:per|pro|par|por)\b", rest):
        raise Refused("the number is part of a rate, a range or a code")


def _written(text: str, found: list[Quantity], expected: Expected, locale: str) -> list[Quantity]:
    """Numbers written as words."""
    table = words_of(locale)
    folded = lowered(text)
    extra: list[Quantity] = []
    for hit in word_of(locale).finditer(folded):
        article = hit.group() in ("one", "un", "uno")
        if article and (found or _ONE.search(folded[: hit.start()])):
            continue
        spelled = parse_words(hit.group(), table)
        if spelled is None:
            raise Refused("a number in words is not understood")
        value, end = _scaled(text, spelled, hit.end(), expected, locale)
        units, name, end = _unit_after(text, end, expected)
        negative = re.search(r"(?:minus|negative|moins|menos)\s$", folded[: hit.start()])
        start = negative.start() if negative else hit.start()
        if (hit.start() and folded[hit.start() - 1] in "-/") or text[end : end + 1] in ("-", "/"):
            raise Refused("a number word stands inside another word")
        extra.append(Quantity(-value if negative else value, units, name, start, end))
    return extra + _written_chinese(text, bool(found), expected)


def _written_chinese(text: str, have_digits: bool, expected: Expected) -> list[Quantity]:
    masked = _HARMLESS_CHINESE.sub(lambda m: "□" * len(m.group()), text)
    extra: list[Quantity] = []
    for hit in CHINESE.finditer(masked):
        value = parse_chinese(hit.group())
        if value is None or (have_digits and not re.fullmatch("[万亿千]", hit.group())):
            raise Refused("the answer holds a number that is not understood")
        if have_digits:
            continue
        if text[hit.end() : hit.end() + 1] == "点":
            raise Refused("the answer holds a number that is not understood")
        units, name, end = _unit_after(text, hit.end(), expected)
        negative = text[: hit.start()].endswith("负")
        start = hit.start() - negative
        extra.append(Quantity(-value if negative else value, units, name, start, end))
    return extra
