"""Comparing the one number of an answer with an expected one.

Every number in the slot has to be the expected one. Units: the gold's own name and its aliases,
else units.py. A number without a unit counts as in the gold's unit. When the gold names no unit, an
answer may name any but a percent sign, which would make another number of it.
"""

from __future__ import annotations

from decimal import Decimal

from astra_mcp.match.models import Number
from astra_mcp.match.quantities import Expected, Quantity, reading
from astra_mcp.match.units import RATIO
from astra_mcp.match.values import within
from astra_mcp.match.verdict import RIGHT, Refused, Verdict, wrong


def match_number(matcher: Number, gold: float, slot: str, locale: str) -> Verdict:
    """Whether the slot states the expected number, and nothing else.

    Args:
        matcher: Tolerance and unit; its locale, when set, replaces `locale`.
        gold: The expected number, in `matcher.unit`.
        slot: The answer slot.
        locale: Of number marks and number words.
    """
    locale = matcher.locale or locale
    found = reading(slot, Expected.of(matcher), locale)
    if isinstance(found, str):
        return wrong(found)
    for quantity in found:
        try:
            right = _fits(matcher, gold, quantity)
        except Refused as reason:
            return wrong(str(reason))
        if not right:
            return wrong("the number differs" if len(found) == 1 else "the numbers differ")
    return RIGHT


def _fits(matcher: Number, gold: float, quantity: Quantity) -> bool:
    expected = Expected.of(matcher)
    if not quantity.name or expected.is_named(quantity.name):
        return within(matcher, gold, quantity.value)
    if matcher.unit is None:
        if any(unit.dimension == RATIO for unit in quantity.units):
            raise Refused("the answer is a percentage where none is expected")
        return within(matcher, gold, quantity.value)
    for unit in quantity.units:
        for target in expected.units:
            if unit.same_as(target):
                return within(matcher, gold, quantity.value)
            converted = unit.convert(quantity.value, target)
            if converted is not None:
                return within(matcher, gold, converted, slack=Decimal("1e-9"))
    raise Refused("the unit is another one")
