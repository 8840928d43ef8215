"""Closed lists of words that make an answer no answer: hedges, negations, words that shift a value.

Five languages (English, Chinese, German, French, Spanish) are always looked at; words of one or two
letters that mean something else elsewhere only when the bundle's language is theirs. The lists
refuse; they never accept.
"""

from __future__ import annotations

import re
from typing import Final

_HEDGE: Final = [
    *("or", "either", "perhaps", "maybe", "possibly", "probably", "presumably", "might"),
    *("alternatively", "unsure", "uncertain", "guess", "guessing", "versus", "vs", "oder"),
    *("entweder", "vielleicht", "möglicherweise", "eventuell", "vermutlich", "wahrscheinlich"),
    *("beziehungsweise", "bzw", "ou", "soit", "peut-être", "peut", "possiblement"),
    *("probablement", "quizá", "quizás", "quizas", "acaso", "posiblemente", "probablemente"),
]
_HEDGE_PHRASES: Final = (
    "may be",
    "could be",
    "can be",
    "not sure",
    "i think",
    "i believe",
    "tal vez",
    "puede ser",
    "podría ser",
    "könnte sein",
    "and/or",
    "between",
    "zwischen",
    "entre",
)
_NEGATION: Final = [
    *("not", "no", "none", "never", "neither", "nor", "nothing", "cannot", "without", "except"),
    *(
        "excluding",
        "wrong",
        "excluded",
        "rejected",
        "unlike",
        "instead",
        "incorrect",
        "false",
        "untrue",
        "unknown",
        "nicht",
        "kein",
    ),
    *("keine", "keiner", "keinen", "keinem", "nie", "niemals", "weder", "ohne", "außer"),
    *("ausser", "falsch", "unbekannt", "ne", "pas", "non", "aucun", "aucune", "jamais", "sans"),
    *("sauf", "faux", "inconnu", "nunca", "ningún", "ninguno", "ninguna", "sin", "excepto"),
    *("salvo", "tampoco", "falso", "desconocido"),
]
_SHIFT: Final = [
    *("formerly", "previously", "retracted", "obsolete", "outdated", "superseded", "no longer"),
    *("struck out", "crossed out", "rescheduled from", "moved from", "postponed from"),
    *("(cancelled)", "(canceled)", "(deleted)", "(withdrawn)", "(void)", "[deleted]"),
    *("cancelled:", "canceled:", "deleted:", "withdrawn:", "negative of", "inverse", "lim"),
    "next to",
    *("all but", "any but", "anything but", "everything but", "other than", "apart from"),
    *("aside from", "save for", "rather than", "far from", "barring", "opposite of", "short by"),
    *("log", "ln", "lg", "logarithm", "sqrt", "cbrt", "exp", "sin", "cos", "tan", "abs"),
    "factorial",
    *("root", "root of", "square of", "cube of", "reciprocal", "inverse of", "modulo", "mod"),
    *("percent of", "percentage of", "fraction of", "multiple of", "wurzel", "racine", "raíz"),
    # beside a number
    *("half", "double", "twice", "thrice", "triple", "quarter", "dozen", "dozens", "minus", "plus"),
    *("times", "per", "less", "more than", "fewer", "greater", "under", "over", "above", "below"),
    *("exceeding", "exceeds", "at least", "at most", "upwards", "downwards", "nearly", "almost"),
    *("squared", "cubed", "short of", "halb", "halbe", "halben", "doppelt", "dutzend", "weniger"),
    *("mehr als", "unter", "über", "mindestens", "höchstens", "pro", "knapp", "demi", "demie"),
    *("moitié", "double", "douzaine", "moins", "plus de", "presque", "mitad", "doble", "docena"),
    *("menos", "más de", "casi", "al menos", "au moins"),
]
_SHIFT_OF_TIME: Final = [
    *("ahead of", "preceding", "succeeding", "eve", "anniversary", "ago", "hence", "beyond"),
    *("on from", "shortly to", "day from", "next day", "day on"),
    *("a week on", "a month on", "a year on", "vorabend", "veille", "víspera"),
    *("before", "after", "earlier", "later", "since", "past", "prior", "following", "previous"),
    *("vor", "nach", "seit", "avant", "après", "depuis", "antes", "después", "desde"),
]
_CHINESE_HEDGE: Final = ("或", "可能", "也许", "还是", "要么", "不确定", "之间", "大于", "小于")
_CHINESE_NEGATION: Final = ("不", "非", "没", "無", "无", "未", "别的", "除了", "错误")
_CHINESE_SHIFT: Final = (
    *("一半", "两倍", "多于", "少于", "超过", "以上", "以下", "至少", "至多", "每"),
    *("之前", "之后", "以前", "以后", "前一", "后一"),
)
_LOCAL_HEDGE: Final = {"es": ("o", "u"), "it": ("o",), "pt": ("ou",), "nl": ("of",)}
_LOCAL_NEGATION: Final = {"it": ("non",), "pt": ("não",), "nl": ("niet", "geen")}


def words_pattern(words: list[str] | tuple[str, ...]) -> re.Pattern[str]:
    """Finds any of the words, whole and without regard to case."""
    body = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{body})(?![^\W_])", re.IGNORECASE)


_HEDGE_RE: Final = words_pattern([*_HEDGE, *_HEDGE_PHRASES])
_NEGATION_RE: Final = words_pattern(_NEGATION)
_CONTRACTED: Final = re.compile(r"n't(?![^\W_])|(?<![^\W_])n'(?=[aeiouyéêh])", re.IGNORECASE)
_SHIFT_RE: Final = words_pattern(_SHIFT)
_SHIFT_OF_TIME_RE: Final = words_pattern(_SHIFT_OF_TIME)
_LOCAL_HEDGE_RE: Final = {lang: words_pattern(words) for lang, words in _LOCAL_HEDGE.items()}
_LOCAL_NEGATION_RE: Final = {lang: words_pattern(words) for lang, words in _LOCAL_NEGATION.items()}


def language(locale: str) -> str:
    """The language of a locale name, lower case: `de` of `de-CH`."""
    return re.split(r"[-_]", locale, maxsplit=1)[0].lower()


def has_hedge(text: str, locale: str) -> bool:
    """Whether a folded text offers a choice or doubts itself."""
    local = _LOCAL_HEDGE_RE.get(language(locale))
    return bool(
        _HEDGE_RE.search(text)
        or (local and local.search(text))
        or any(word in text for word in _CHINESE_HEDGE)
        or "?" in text
    )


def has_negation(text: str, locale: str) -> bool:
    """Whether a folded text denies something."""
    local = _LOCAL_NEGATION_RE.get(language(locale))
    return bool(
        _NEGATION_RE.search(text)
        or _CONTRACTED.search(text)
        or (local and local.search(text))
        or any(word in text for word in _CHINESE_NEGATION)
    )


def has_shift(text: str) -> bool:
    """Whether a word of a folded text makes the value beside it another one ("half of", "over")."""
    return bool(_SHIFT_RE.search(text)) or any(word in text for word in _CHINESE_SHIFT)


def problem(text: str, locale: str) -> str | None:
    """Why the words around a day or time forbid accepting it; None when they do not."""
    if has_hedge(text, locale):
        return "the answer offers a choice or doubts itself"
    if has_negation(text, locale):
        return "the answer denies something"
    if has_shift(text) or _SHIFT_OF_TIME_RE.search(text):
        return "a word beside the value makes it another value"
    return None
