"""Comparing texts: exact, contains, regex. Pure; every comparison is on whole words or whole slots.

Patterns come from bundles that nobody has trusted yet, so they run on the linear-time engine of
jsonschema-rs (no look-around, no back-references): no pattern and no answer can make one hang.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from astra_mcp.match import times, words
from astra_mcp.match.labels import harmless
from astra_mcp.match.models import Contains, Exact
from astra_mcp.match.slot import fold, plain
from astra_mcp.match.verdict import RIGHT, Verdict, wrong

Json = Any
_ENDS: Final = " \t\n\"'.,;:!。，；：！、"
_CJK: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_VERB: Final = re.compile(
    r"(?:(?:so|thus|therefore|hence) )?(?:it|this|that|they)(?:'s| (?:is|are|was|were|will be))|"
    r"(?:(?:so|thus|therefore|hence) )?(?:it|this|that) would be|es (?:ist|sind|war)|c'est|"
    r"ce sont|es|son|.*(?: |^)(?:is|are|was|were|will be|ist|sind|lautet|lauten|war|est|sont|était|"
    r"es|son|era)|[\u3400-\u9fff]{0,12}(?:是|为)|"
    r"(?:.* )?(?:code|number|id|reference)"
)
"""Words, in normal form, that may stand before an answer when labels.py lists each of them."""
_LABEL: Final = re.compile(r"[^\W\d_][^:]{0,80}:")
_GLOSS: Final = re.compile(r"(?P<value>[^()]+?) ?\((?P<gloss>[^()]+)\)")
_BRACKETED: Final = re.compile(r"\(([^()]+)\)|\[([^\[\]]+)\]")


@lru_cache(maxsize=1024)
def normal(text: str) -> str:
    """The form in which texts are compared: folded, caseless, without punctuation at its ends."""
    return " ".join(fold(plain(text)).casefold().split()).strip(_ENDS)


def label(name: str) -> str:
    """The form in which field names are compared."""
    return " ".join(re.sub(r"[\W_]+", " ", fold(name).casefold()).split())


def json_key(value: Json) -> str:
    """One text per JSON value, for finding equal ones."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def equals(matcher: Exact, gold: str, text: str) -> bool:
    """Whether a text, as a whole, is the expected one or an alias."""
    answer = normal(text)
    return answer == normal(gold) or any(answer == normal(alias) for alias in matcher.aliases)


def match_exact(matcher: Exact, gold: str, slot: str, locale: str) -> Verdict:
    """The whole slot is the expected text or an alias, alone or after words such as "It is".

    Only listed words (labels.py) may stand before it. It may stand in brackets. A day or a time of
    day may follow in parentheses when the expected text is neither: every other gloss could be a
    second candidate or take the value back ("(cancelled)") and is refused.
    """
    bare = slot.strip()
    if found := _BRACKETED.fullmatch(bare):
        bare = found[1] or found[2]
    if equals(matcher, gold, slot) or equals(matcher, gold, bare):
        return RIGHT
    forms = [slot]
    if (found := _GLOSS.fullmatch(fold(plain(bare)))) and _is_when(found["gloss"], locale):
        forms.append(found["value"])
    for form in forms:
        answer = normal(form)
        for text in (gold, *matcher.aliases):
            if form is not slot and not _names_no_day(text, locale):
                continue
            before = answer.removesuffix(normal(text))
            if before != answer and (not before or _carries(before, locale)):
                return RIGHT
    return wrong("the text differs")


def _is_when(gloss: str, locale: str) -> bool:
    """Whether a gloss is one day, one time of day, or both, and no word that is not listed."""
    rest = times.without_moment(gloss, locale)
    return rest is not None and harmless(rest)


def _names_no_day(gold: str, locale: str) -> bool:
    return any(map(str.isalpha, gold)) and times.without_moment(fold(gold), locale) is None


def _carries(before: str, locale: str) -> bool:
    """Whether words before a value introduce it without denying, doubting or replacing it."""
    if before[-1:].isalnum() and not _CJK.match(before[-1:]):
        return False
    said = before.rstrip(" \"'")
    if not (_LABEL.fullmatch(said) or _VERB.fullmatch(said.rstrip(":,"))) or not harmless(said):
        return False
    return not (words.has_negation(said, locale) or words.has_hedge(said, locale))


def has_words(folded: str, phrase: str) -> bool:
    """Whether the words of `phrase` stand, whole and in a row, in a text in normal form."""
    return _find_words(folded, phrase) is not None


def _find_words(folded: str, phrase: str) -> re.Match[str] | None:
    return _words_pattern(phrase).search(folded)


@lru_cache(maxsize=1024)
def _words_pattern(phrase: str) -> re.Pattern[str]:
    wanted = normal(phrase)
    before = "" if _CJK.match(wanted) else r"(?<!\w)"
    after = "" if _CJK.match(wanted[-1:]) else r"(?!\w)"
    return re.compile(before + re.escape(wanted) + after)


def match_contains(matcher: Contains, slot: str, locale: str) -> Verdict:
    """Every `all_of` as whole words, none of `none_of`, and no denial right before a wanted one."""
    folded = normal(slot)
    if any(has_words(folded, phrase) for phrase in matcher.none_of):
        return wrong("a word is there that must not be")
    for phrase in matcher.all_of:
        found = _find_words(folded, phrase)
        if found is None:
            return wrong("a word is missing")
        near = " ".join(folded[: found.start()].split()[-3:])
        if words.has_negation(near, locale) or words.has_hedge(near, locale):
            return wrong("the answer denies or doubts a wanted word")
    return RIGHT


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> jsonschema_rs.Draft202012Validator | str:
    """A validator that accepts exactly the full matches, or why there is none."""
    if len(pattern) > 512:
        return "has more than 512 characters"
    try:
        for body in (pattern, f"^(?:{pattern})$"):
            compiled = jsonschema_rs.Draft202012Validator(
                {"type": "string", "pattern": body}, pattern_options=jsonschema_rs.RegexOptions()
            )
    except (ValueError, TypeError):
        return "does not compile"
    return compiled


def pattern_problem(pattern: str) -> str | None:
    """Why a pattern cannot be used; None when it can."""
    compiled = _compiled(pattern)
    return compiled if isinstance(compiled, str) else None


def full_match(pattern: str, text: str) -> bool:
    """Whether the whole text matches; False for a pattern that cannot be used."""
    compiled = _compiled(pattern)
    if isinstance(compiled, str):
        return False
    try:
        return compiled.is_valid(text)
    except ValueError:
        return False


def match_regex(pattern: str, slot: str) -> Verdict:
    """A full match of the slot."""
    return RIGHT if full_match(pattern, slot) else wrong("the pattern does not match")
