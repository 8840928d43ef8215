"""Second values without a digit: number words, Roman numerals, holidays, spans such as "week of".

What stands around a day, a time or a number must hold none of them: "16:20, XV:XLV" is a choice,
"week of 16 August 2025" another answer. The lists refuse; they never accept.
"""

from __future__ import annotations

import re
from typing import Final

from astra_mcp.match.numerals import word_of
from astra_mcp.match.slot import lowered
from astra_mcp.match.words import words_pattern

_PERIOD: Final = re.compile(
    r"(?<![^\W_])(?:(?:min(?:ute)?s?|hours?|hrs?|days|nights?|weeks?|weekends?|fortnights?|months?|"
    r"quarters?|years?)\s(?:of|to|from|till|until|past|before|after|beginning|starting|"
    r"commencing|containing|ending)|fortnight|mid-week|"
    r"(?:start|beginning|middle|end|mid)\s(?:of|to)|w/[ce]|woche (?:vom|ab|um)|"
    r"semaine du|semana del?)(?![^\W_])|那[周天]|当周|星期内",
    re.IGNORECASE,
)
_HOLIDAY: Final = words_pattern(
    [
        *("christmas", "xmas", "easter", "halloween", "thanksgiving", "new year", "new year's"),
        *("new years", "boxing day", "good friday", "pentecost", "epiphany", "ramadan", "eid"),
        *("diwali", "hanukkah", "passover", "independence day", "labor day", "labour day"),
        *("may day", "valentine", "valentine's", "weihnachten", "ostern", "silvester", "neujahr"),
        *("pfingsten", "noël", "pâques", "nouvel an", "navidad", "pascua", "año nuevo"),
        *("fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
        *("thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth"),
        *("nineteenth", "twentieth", "thirtieth"),
    ]
)
_CHINESE_HOLIDAY: Final = ("圣诞", "春节", "元旦", "中秋", "国庆", "除夕")
_ROMAN: Final = re.compile(
    r"(?<![^\W_])(?=[MDCLXVI]{2})M{0,4}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?![^\W_])",
    re.IGNORECASE,
)
_LONE_ROMAN: Final = re.compile(r"(?:[,;/&(]|(?<![^\W_])and)\s*[VXLCDM]\s*(?:$|[,;/)])")
_NO_ROMAN: Final = frozenset(
    "CD DC CC CV MD DM MC CM MM DI LI MI CI DL CL ML DX MX MV CX CL MIX DIV".split()
)


def has_roman(text: str) -> bool:
    """Whether a text holds a Roman numeral; abbreviations such as CD and CV are none.

    Short ones count in capitals only; a single letter only where it stands as a candidate.
    """
    return bool(_LONE_ROMAN.search(text)) or any(
        (len(found) >= 4 or found.isupper()) and found not in _NO_ROMAN
        for found in _ROMAN.findall(text)
    )


def has_number_word(text: str, locale: str) -> bool:
    """Whether a text without its value holds a number in words ("five") or a Roman numeral."""
    spelled = word_of(locale).finditer(lowered(text))
    articles = ("one", "un", "uno")
    return has_roman(text) or any(hit.group() not in articles for hit in spelled)


def period_problem(text: str) -> str | None:
    """Why words around a day or time make another one of it, or name another day."""
    if _PERIOD.search(text):
        return "a word beside the value makes it another value"
    if _HOLIDAY.search(text) or any(word in text for word in _CHINESE_HOLIDAY):
        return "the answer names another day"
    return None
