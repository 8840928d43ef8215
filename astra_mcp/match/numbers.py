"""Reading the one number of an answer, with sign, scale and unit, and comparing it.

The whole slot is accounted for: every digit in it belongs to a number that was understood, every
number in it is the expected one, and no word around denies, doubts, shifts or re-units it. Several
readings, an unknown unit, a number inside a code ("CR-11") refuse the answer.

Units: the gold's own name and its aliases, else units.py. A number without a unit counts as in the
gold's unit. When the gold names no unit, an answer may name any but a percent sign, which would
make another number of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from astra_mcp.match import words
from astra_mcp.match.locales import CURRENCIES
from astra_mcp.match.models import Number
from astra_mcp.match.numerals import (
    CHINESE,
    parse_chinese,
    parse_number,
    run_of,
    scale_of,
    words_of,
)
from astra_mcp.match.slot import fold, plain
from astra_mcp.match.units import CURRENCY, RATIO, Unit, Units, units_of
from astra_mcp.match.values import within
from astra_mcp.match.verdict import RIGHT, Verdict, wrong

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
    r"\s?[(\[]?(?P<name>[^\s\d.,;:!()\[\]]+(?:\.(?=[^\W\d_]))?[^\s\d,;:!()\[\]]*(?: [^\W\d_]+){0,3})"
)
_CODE_BEFORE: Final = re.compile(
    r"(?P<name>[^\W\d_]*[^\w\s\d.,;:!()\[\]\"'*#=/~<>+-]|[^\W\d_]+) ?$"
)
_FORBIDDEN_NEXT: Final = re.compile(r"\s?[/:^=*×÷~<>]\s?[\d.]|\s?-{1,2}\s?\d|[\"']|\s?±|\.\.")
_UNDERSTOOD_KEPT: Final = re.compile(r"[²³]")
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


class Refused(Exception):
    """The answer cannot be read; the argument says why (never leaves this module)."""


def match_number(matcher: Number, gold: float, slot: str, locale: str) -> Verdict:
    """Whether the slot states the expected number, and nothing else.

    Args:
        matcher: Tolerance and unit; its locale, when set, replaces `locale`.
        gold: The expected number, in `matcher.unit`.
        slot: The answer slot.
        locale: Of number marks and number words.
    """
    locale = matcher.locale or locale
    text = " ".join(fold(plain(slot)).split())
    if len(text) > MAX_CHARS:
        return wrong("the answer is too long for a number")
    try:
        found = _read(text, matcher, locale)
        return _compare(matcher, gold, found, text)
    except Refused as reason:
        return wrong(str(reason))


def _compare(matcher: Number, gold: float, found: list[Quantity], text: str) -> Verdict:
    if not found:
        return wrong("the answer holds no number")
    gold_units = units_of(matcher.unit) if matcher.unit else ()
    _check_named_units(matcher, gold_units, found, text)
    for quantity in found:
        if not _fits(matcher, gold, gold_units, quantity):
            return wrong("the number differs" if len(found) == 1 else "the numbers differ")
    return RIGHT


def _fits(matcher: Number, gold: float, gold_units: Units, quantity: Quantity) -> bool:
    if not quantity.name or _is_gold_unit(matcher, quantity.name):
        return within(matcher, gold, quantity.value)
    if matcher.unit is None:
        if any(unit.dimension == RATIO for unit in quantity.units):
            raise Refused("the answer is a percentage where none is expected")
        return within(matcher, gold, quantity.value)
    for unit in quantity.units:
        for target in gold_units:
            if unit.same_as(target):
                return within(matcher, gold, quantity.value)
            converted = unit.convert(quantity.value, target)
            if converted is not None:
                return within(matcher, gold, converted, slack=Decimal("1e-9"))
    raise Refused("the unit is another one")


def _is_gold_unit(matcher: Number, name: str) -> bool:
    names = [*matcher.unit_aliases, *([matcher.unit] if matcher.unit else [])]
    folded = fold(name).strip(".")
    if folded in (fold(known).strip(".") for known in names):
        return True
    case_matters = (
        len(folded) <= 3 and len(units_of(folded)) == 1 and folded.upper() not in CURRENCIES
    )
    return not case_matters and folded.casefold() in (
        fold(known).casefold().strip(".") for known in names
    )


def _check_named_units(
    matcher: Number, gold_units: Units, found: list[Quantity], text: str
) -> None:
    """Refuse a slot whose other words name another unit of the gold's dimension."""
    if not gold_units:
        return
    rest = list(text)
    for quantity in found:
        rest[quantity.start : quantity.end] = "\0" * (quantity.end - quantity.start)
    for token in re.findall(r"[^\W\d_]{3,}|[€£¥₹₩$]|[^\W\d_]?\$", "".join(rest)):
        named = units_of(token) if token.isupper() or not token.isascii() or len(token) > 3 else ()
        same = any(unit.same_as(target) for unit in named for target in gold_units)
        rival = any(unit.dimension == target.dimension for unit in named for target in gold_units)
        if rival and not same and not _is_gold_unit(matcher, token):
            raise Refused("the answer names another unit")


def _read(text: str, matcher: Number, locale: str) -> list[Quantity]:
    """Every quantity of the text; refuses when a digit or a number word is not understood."""
    found: list[Quantity] = []
    at = 0
    for run in run_of(locale).finditer(text):
        if run.start() < at:
            continue
        quantity = _quantity(text, run, matcher, locale)
        found.append(quantity)
        at = quantity.end
    found += _written(text, found, matcher, locale)
    spans = [(quantity.start, quantity.end) for quantity in found]
    outside = "".join(
        char for i, char in enumerate(text) if not any(start <= i < end for start, end in spans)
    )
    if any(char.isdigit() or char.isnumeric() and not CHINESE.match(char) for char in outside):
        raise Refused("the answer holds a number that is not understood")
    if words.has_hedge(outside, locale):
        raise Refused("the answer offers a choice or doubts itself")
    if words.has_negation(outside, locale):
        raise Refused("the answer denies something")
    for start, end in spans:
        near = f"{' '.join(text[:start].split()[-4:])} | {' '.join(text[end:].split()[:3])}"
        if words.has_shift(near):
            raise Refused("a word beside the number makes it another number")
    return found


def _quantity(text: str, run: re.Match[str], matcher: Number, locale: str) -> Quantity:
    value = parse_number(run.group(), locale)
    if value is None:
        raise Refused("a number is not written as this language writes numbers")
    start, before = _before(text, run.start())
    negative, start = _sign(text, start, run.start(), bool(before))
    if exponent := _EXPONENT.match(text, run.end()):
        digits = exponent["e"] or exponent["p"] or exponent["s"].translate(_SUPERSCRIPT)
        value = value.scaleb(int(digits))
        end = exponent.end()
    else:
        end = run.end()
    behind = end
    value, end = _scaled(text, value, end, matcher, locale)
    thousands = text[behind:end].strip().casefold() == "k"
    units, name, end = _unit_after(text, end, matcher)
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
            known = units_of(candidate)
            symbol = not candidate[-1:].isalnum()
            if any(unit.dimension == CURRENCY for unit in known) and (
                symbol or candidate.isupper() or candidate in ("kr", "Kč", "zł")
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
    text: str, value: Decimal, end: int, matcher: Number, locale: str
) -> tuple[Decimal, int]:
    """Multiply by a scale word behind the number, unless the word is the gold's unit."""
    while found := _AFTER.match(text, end):
        word = found["word"]
        power = scale_of(word, locale)
        if power is None and _is_cjk(word[0]):
            word = word[0]
            power = scale_of(word, locale)
        cjk_unit = _is_cjk(word[0]) and units_of(text[end:].lstrip()[:2])
        if power is None or cjk_unit or _is_gold_unit(matcher, word):
            break
        value = value.scaleb(power)
        end = found.start("word") + len(word)
    return value, end


def _unit_after(text: str, end: int, matcher: Number) -> tuple[Units, str, int]:
    """The unit behind the number, its name as written, and where it ends."""
    found = _NAME_TAIL.match(text, end)
    if not found:
        return (), "", end
    start, tail = found.start("name"), found["name"]
    for length in _prefixes(tail):
        name = tail[:length].rstrip(".'\"")
        known = units_of(name)
        if known or (name and _is_gold_unit(matcher, name)):
            stop = start + len(name)
            if text[stop : stop + 1] == ")" and text[start - 1] == "(":
                stop += 1
            return known, name, stop
    first = tail.split()[0].rstrip(".'\"")
    if start == end and first[:1].isalpha() and not _is_cjk(first[0]):
        raise Refused("a number stands inside a word or code")
    if matcher.unit and first[:1].isalpha() and first.casefold() not in _FUNCTION:
        raise Refused("the unit is not understood")
    return (), "", end


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


def _written(text: str, found: list[Quantity], matcher: Number, locale: str) -> list[Quantity]:
    """Numbers written as words."""
    table = words_of(locale)
    folded = text.casefold()
    body = "|".join(re.escape(word) for word in sorted(table, key=len, reverse=True))
    extra: list[Quantity] = []
    for hit in re.finditer(rf"(?<![^\W_])(?:{body})(?![^\W_])", folded):
        article = hit.group() in ("one", "un", "uno")
        if article and (found or _ONE.search(folded[: hit.start()])):
            continue
        value, end = _scaled(text, table[hit.group()], hit.end(), matcher, locale)
        units, name, end = _unit_after(text, end, matcher)
        negative = re.search(r"(?:minus|negative|moins|menos)\s$", folded[: hit.start()])
        start = negative.start() if negative else hit.start()
        if hit.start() and folded[hit.start() - 1] in "-/" or text[end : end + 1] in ("-", "/"):
            raise Refused("a number word stands inside another word")
        extra.append(Quantity(-value if negative else value, units, name, start, end))
    return extra + _written_chinese(text, bool(found), matcher)


def _written_chinese(text: str, have_digits: bool, matcher: Number) -> list[Quantity]:
    masked = _HARMLESS_CHINESE.sub(lambda m: "□" * len(m.group()), text)
    extra: list[Quantity] = []
    for hit in CHINESE.finditer(masked):
        value = parse_chinese(hit.group())
        if value is None or have_digits and not re.fullmatch("[万亿千]", hit.group()):
            raise Refused("the answer holds a number that is not understood")
        if have_digits:
            continue
        if text[hit.end() : hit.end() + 1] == "点":
            raise Refused("the answer holds a number that is not understood")
        units, name, end = _unit_after(text, hit.end(), matcher)
        negative = text[: hit.start()].endswith("负")
        start = hit.start() - negative
        extra.append(Quantity(-value if negative else value, units, name, start, end))
    return extra
