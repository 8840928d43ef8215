"""What a locale writes differently: number marks, names of months, weekdays and currencies.

Everything comes from CLDR through babel, is read once per locale, and is pure afterwards. An
unknown locale falls back to English. Month and weekday names of English, German, French and Spanish
(and of the bundle's own language) are always understood; a name that means two months is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from babel import Locale, UnknownLocaleError
from babel.numbers import (
    get_currency_name,
    get_currency_symbol,
    get_decimal_symbol,
    get_group_symbol,
)

LANGUAGES: Final = ("en", "de", "fr", "es")
CURRENCIES: Final = tuple(
    (
        "AED ARS AUD BGN BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HKD HUF IDR ILS INR ISK JPY "
        "KES KRW MXN MYR NGN NOK NZD PEN PHP PLN RON RUB SAR SEK SGD THB TRY TWD UAH USD VND ZAR"
    ).split()
)
_DOLLARS: Final = frozenset({"USD", "CAD", "AUD", "NZD", "HKD", "SGD", "TWD"})
_SYMBOLS: Final[dict[str, frozenset[str]]] = {
    "$": _DOLLARS | {"MXN", "ARS", "CLP", "COP"},
    "¥": frozenset({"JPY", "CNY"}),
    "£": frozenset({"GBP", "EGP"}),
    "kr": frozenset({"SEK", "NOK", "DKK", "ISK"}),
    "元": frozenset({"CNY", "TWD", "HKD"}),
    "dollar": _DOLLARS,
    "dollars": _DOLLARS,
    "pound": frozenset({"GBP", "EGP"}),
    "pounds": frozenset({"GBP", "EGP"}),
    "franc": frozenset({"CHF"}),
    "francs": frozenset({"CHF"}),
    "franken": frozenset({"CHF"}),
    "peso": frozenset({"MXN", "ARS", "CLP", "COP", "PHP"}),
    "pesos": frozenset({"MXN", "ARS", "CLP", "COP", "PHP"}),
    "rupee": frozenset({"INR"}),
    "rupees": frozenset({"INR"}),
    "yuan": frozenset({"CNY"}),
    "rmb": frozenset({"CNY"}),
    "renminbi": frozenset({"CNY"}),
    "krona": frozenset({"SEK", "ISK"}),
    "kronor": frozenset({"SEK"}),
    "krone": frozenset({"NOK", "DKK"}),
    "kroner": frozenset({"NOK", "DKK"}),
    "kronen": frozenset({"SEK", "NOK", "DKK", "CZK"}),
    "livres": frozenset({"GBP"}),
    "libras": frozenset({"GBP"}),
    "dólares": _DOLLARS,
    "dólar": _DOLLARS,
    "zloty": frozenset({"PLN"}),
    "美金": frozenset({"USD"}),
    "人民币": frozenset({"CNY"}),
    "日元": frozenset({"JPY"}),
    "港币": frozenset({"HKD"}),
}


@lru_cache(maxsize=64)
def locale_of(name: str) -> Locale:
    """The babel locale of a BCP 47 name such as `de`, `zh-CN`; English when it is unknown."""
    for candidate in (name.replace("-", "_"), re.split(r"[-_]", name, maxsplit=1)[0]):
        try:
            return Locale.parse(candidate)
        except (UnknownLocaleError, ValueError, TypeError):
            continue
    return Locale("en")


@dataclass(frozen=True)
class Marks:
    """How a locale writes numbers.

    Attributes:
        decimal: The decimal mark.
        groups: Thousands marks.
        indian: Groups of two above the first three digits (1,00,000).
    """

    decimal: str
    groups: frozenset[str]
    indian: bool


@lru_cache(maxsize=64)
def marks(name: str) -> Marks:
    """Number marks of a locale, in folded form (every space is a plain one)."""
    locale = locale_of(name)
    decimal = get_decimal_symbol(locale)
    group = get_group_symbol(locale)
    group = {"\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'", "٬": ","}.get(group, group)
    decimal = {"٫": "."}.get(decimal, decimal)
    if decimal not in ".,":
        decimal = "."
    groups = {group, "'"} - {decimal}
    return Marks(decimal, frozenset(groups), locale.language == "hi" or locale.territory == "IN")


def _named(kind: str, widths: tuple[str, ...], locale: Locale) -> Iterator[tuple[str, int]]:
    table = locale.months if kind == "month" else locale.days
    for context in ("format", "stand-alone"):
        for width in widths:
            for key, name in table[context][width].items():
                yield str(name).casefold().rstrip("."), int(key)


def _names(kind: str, widths: tuple[str, ...], language: str) -> dict[str, int]:
    """Unambiguous names in the known languages; the readings of `language` win."""
    found: dict[str, set[int]] = {}
    own: dict[str, int] = {}
    for lang in (*LANGUAGES, "zh", language):
        for name, number in _named(kind, widths, locale_of(lang)):
            if not any(char.isdigit() for char in name) and len(name) > 1:
                found.setdefault(name, set()).add(number)
                if lang == language:
                    own[name] = number
    return {name: min(n) for name, n in found.items() if len(n) == 1} | own


@lru_cache(maxsize=64)
def months(language: str) -> dict[str, int]:
    """Full and short month names, lower case without full stop -> 1 to 12."""
    return _names("month", ("wide", "abbreviated"), language) | {"sept": 9}


@lru_cache(maxsize=64)
def full_months(language: str) -> frozenset[str]:
    """Full month names, lower case."""
    return frozenset(_names("month", ("wide",), language))


@lru_cache(maxsize=64)
def weekdays(language: str) -> dict[str, int]:
    """Full weekday names, lower case -> Monday 0 to Sunday 6."""
    return _names("weekday", ("wide",), language) | {"星期天": 6, "sonnabend": 5}


@lru_cache(maxsize=64)
def short_weekdays(language: str) -> dict[str, int]:
    """Short weekday names of English and `language`: words of their own elsewhere ("so", "mar")."""
    pairs = [
        pair
        for lang in ("en", language)
        for pair in _named("weekday", ("abbreviated",), locale_of(lang))
    ]
    return dict(pairs) | {"tues": 1, "thur": 3, "thurs": 3}


@lru_cache(maxsize=1)
def currencies() -> dict[str, frozenset[str]]:
    """Every known sign, code and name (lower case) of a currency -> the codes it can mean."""
    found: dict[str, set[str]] = {}
    for code in CURRENCIES:
        found.setdefault(code, set()).add(code)
        for language in (*LANGUAGES, "zh"):
            for count in (None, 1, 2):
                name = get_currency_name(code, count=count, locale=language)
                found.setdefault(name.casefold(), set()).add(code)
            symbol = get_currency_symbol(code, locale=language)
            if symbol not in _SYMBOLS:
                found.setdefault(symbol, set()).add(code)
    table = {name: frozenset(codes) for name, codes in found.items()}
    return table | {name: table.get(name, frozenset()) | codes for name, codes in _SYMBOLS.items()}
