"""Numbers as people write them -> exact decimals, by the locale's marks; nothing is guessed.

`1.379` is 1.379 in English and 1379 in German. `1.379,50` is no English number. The one leniency:
the JSON form (`415.52`) is read in every locale when the locale itself gives it no reading, because
tools show numbers so and models copy them. Number words: English to 999,999, German, French and
Spanish to 20, Chinese numerals.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

from astra_mcp.match.locales import marks
from astra_mcp.match.words import language

MAX_DIGITS: Final = 60
_JSON: Final = re.compile(r"\d+\.\d+", re.ASCII)

_EN: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_DE: Final = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig"
)
_FR: Final = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize "
    "dix-sept dix-huit dix-neuf vingt"
)
_ES: Final = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince "
    "dieciséis diecisiete dieciocho diecinueve veinte"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS: Final = {
    lang: {word: Decimal(n) for n, word in enumerate(text.split())}
    for lang, text in (("en", _EN), ("de", _DE), ("fr", _FR), ("es", _ES))
}
_SCALES: Final[dict[str, dict[str, int]]] = {
    "": {"万": 4, "萬": 4, "亿": 8, "億": 8},
    "en": {
        "hundred": 2,
        "thousand": 3,
        "k": 3,
        "million": 6,
        "millions": 6,
        "mn": 6,
        "billion": 9,
        "billions": 9,
        "bn": 9,
        "trillion": 12,
    },
    "de": {
        "hundert": 2,
        "tausend": 3,
        "tsd": 3,
        "million": 6,
        "millionen": 6,
        "mio": 6,
        "milliarde": 9,
        "milliarden": 9,
        "mrd": 9,
    },
    "fr": {"cent": 2, "mille": 3, "million": 6, "millions": 6, "milliard": 9, "milliards": 9},
    "es": {"mil": 3, "millón": 6, "millones": 6},
}
_CHINESE_DIGITS: Final = {c: n for n, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_CHINESE_TENS: Final = {"十": 10, "百": 100, "千": 1000}
CHINESE: Final = re.compile("[零〇一二两三四五六七八九十百千万亿]+")


def parse_number(text: str, locale: str) -> Decimal | None:
    """The unsigned number that `text` (digits and marks only) is in that locale; None for none."""
    if sum(map(str.isdigit, text)) > MAX_DIGITS:
        return None
    mark = marks(locale)
    found = _form(locale).fullmatch(text)
    if found is None:
        return Decimal(text) if _JSON.fullmatch(text) else None
    whole = re.sub(r"\D", "", found["whole"] or "") or "0"
    part = (found["part"] or found["lone"] or "").lstrip(mark.decimal)
    return Decimal(f"{whole}.{part}" if part else whole)


@lru_cache(maxsize=64)
def _form(locale: str) -> re.Pattern[str]:
    mark = marks(locale)
    groups = "|".join(map(re.escape, sorted(mark.groups)))
    grouped = rf"[1-9]\d{{0,2}}(?P<g>{groups})\d{{3}}(?:(?P=g)\d{{3}})*"
    if mark.indian:
        grouped += r"|[1-9]\d?(?:,\d\d)*,\d{3}"
    dot = re.escape(mark.decimal)
    return re.compile(rf"(?P<whole>{grouped}|\d+)(?P<part>{dot}\d+)?|(?P<lone>{dot}\d+)", re.ASCII)


@lru_cache(maxsize=64)
def run_of(locale: str) -> re.Pattern[str]:
    """Where a number may stand: digits with whatever marks are between them."""
    spaced = r"\d{1,3}(?: \d{3})+(?!\d)(?:[.,']?\d)*|" if " " in marks(locale).groups else ""
    return re.compile(rf"{spaced}[.,]?\d(?:[.,']*\d)*", re.ASCII)


def scale_of(word: str, locale: str) -> int | None:
    """Power of ten of a word such as `million`, `k`, `万`; None when it is none."""
    key = word.casefold().rstrip(".")
    for lang in ("", "en", language(locale)):
        if key in _SCALES.get(lang, {}):
            return _SCALES[lang][key]
    return None


@lru_cache(maxsize=64)
def words_of(locale: str) -> dict[str, Decimal]:
    """Number words of English and of the locale's language."""
    table = dict(_WORDS["en"])
    for n, ten in enumerate(_TENS.split(), 2):
        table[ten] = Decimal(10 * n)
        for unit, one in list(_WORDS["en"].items())[1:10]:
            table[f"{ten}-{unit}"] = table[f"{ten} {unit}"] = 10 * n + one
    return table | _WORDS.get(language(locale), {})


@lru_cache(maxsize=64)
def word_of(locale: str) -> re.Pattern[str]:
    """Finds number words in lower-case text: the longest run of English ones, else a single one."""
    body = "|".join(re.escape(word) for word in sorted(words_of(locale), key=len, reverse=True))
    english = "|".join([*_WORDS["en"], *_TENS.split(), "hundred", "thousand"])
    start = rf"(?:an? )?(?:hundred|thousand)|{english}"
    run = rf"(?:{start})(?:(?:[ -]|,? and |(?<=thousand), ?)(?:{english})(?![^\W_]))+"
    return re.compile(rf"(?<![^\W_])(?:{run}|{body}|an? (?:hundred|thousand))(?![^\W_])")


_ONES: Final = "|".join(_EN.split()[1:10])
_TEENS: Final = "|".join(_EN.split()[10:20])
_BELOW_100: Final = rf"(?:{'|'.join(_TENS.split())})(?:[ -](?:{_ONES}))?|{_TEENS}|{_ONES}"
_BELOW_1000: Final = (
    rf"(?:an?|{_ONES}|{_TEENS})[ -]hundred(?:[ -](?:and )?(?:{_BELOW_100}))?|{_BELOW_100}"
)
_SPELLED: Final = re.compile(
    rf"(?:(?P<k>a|{_BELOW_1000})[ -]thousand(?:,? (?:and )?|$))?(?P<n>{_BELOW_1000})?"
)


def parse_words(text: str, table: dict[str, Decimal]) -> Decimal | None:
    """The number that a find of `word_of` says; None for an ill-formed one ("two three").

    Args:
        text: Lower-case number words.
        table: `words_of` the locale.
    """
    if text in table:
        return table[text]
    found = _SPELLED.fullmatch(text)
    if not found:
        return None
    return 1000 * _below_1000(found["k"]) + _below_1000(found["n"])


def _below_1000(text: str | None) -> Decimal:
    english = words_of("en")
    total = Decimal(0)
    for word in re.split(r"[ -]", text or ""):
        if word == "hundred":
            total *= 100
        elif word in ("a", "an"):
            total += 1
        else:
            total += english.get(word, 0)
    return total


def parse_chinese(text: str) -> Decimal | None:
    """A Chinese numeral below 10**12; None when it is ill-formed."""
    total = section = digit = 0
    seen_digit = False
    for char in text:
        if char in _CHINESE_DIGITS:
            if seen_digit and digit:
                return None
            digit, seen_digit = _CHINESE_DIGITS[char], True
        elif char in _CHINESE_TENS:
            section += (digit if seen_digit else 1) * _CHINESE_TENS[char]
            digit, seen_digit = 0, False
        else:
            total = (total + section + digit) * (10_000 if char == "万" else 100_000_000)
            section = digit = 0
            seen_digit = False
    return Decimal(total + section + digit)
