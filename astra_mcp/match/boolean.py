"""Reading a yes or a no. A "yes" beside a denial, or a "no" beside a "true", is neither."""

from __future__ import annotations

import re
from typing import Final

from astra_mcp.match import words
from astra_mcp.match.slot import fold, plain
from astra_mcp.match.verdict import RIGHT, Verdict, wrong

MAX_CHARS: Final = 400

_YES: Final = frozenset(
    "yes y yep yeah true correct right affirmative ja wahr richtig stimmt oui vrai exact si sí "
    "verdadero cierto correcto 是 是的 对 对的 正确 真 有 可以 能".split()
)
_NO: Final = frozenset(
    "no n nope false incorrect untrue negative nein falsch unwahr non faux falso incorrecto "
    "否 不 不是 不对 错 错误 假 没有 不可以 不能".split()
)
_LEAD: Final = re.compile(
    r"(?:(?:so|thus|therefore),? )?(?:(?:the |my |final )*answer (?:to (?:the|your) question )?is|"
    r"it(?:'s| is)|that(?:'s| is)|this is|die antwort (?:ist|lautet)|es ist|das ist|"
    r"la réponse est|c'est|la respuesta es|es|答案是|答案为|结论是)[:,]? ?",
    re.IGNORECASE,
)
_HEAD: Final = re.compile(
    r"(?P<head>[^\W\d_]+)(?:\s*(?:[,;:.!，；：。！]|-)\s*|\s*\(|"
    r"\s+(?=(?:it|they|that|there|this|he|she|you|we|i)\b))(?P<rest>.*)",
    re.DOTALL,
)


def match_bool(gold: bool, slot: str, locale: str) -> Verdict:
    """Whether the slot says the expected yes or no, and nothing against it."""
    text = " ".join(fold(plain(slot)).casefold().split()).strip(" .!。！\"'")
    if len(text) > MAX_CHARS:
        return wrong("the answer is too long for a yes or no")
    said = _said(_LEAD.sub("", text, count=1) if _LEAD.match(text) else text, locale)
    if said is None:
        return wrong("the answer is no clear yes or no")
    return RIGHT if said is gold else wrong("the answer is the other one")


def _said(text: str, locale: str) -> bool | None:
    if text in _YES or text in _NO:
        return text in _YES
    found = _HEAD.fullmatch(text)
    if not found or found["head"] not in _YES | _NO or words.has_hedge(found["rest"], locale):
        return None
    yes = found["head"] in _YES
    tokens = set(re.findall(r"[^\W\d_]+", found["rest"]))
    denied = words.has_negation(found["rest"], locale)
    against = denied or tokens & _NO if yes else tokens & _YES and not denied
    return None if against else yes
