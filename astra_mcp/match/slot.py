"""From an agent's message to its answer slot, and one form for texts that look the same.

`answer_slot` finds what is graded; `fold` removes differences that nobody sees (Unicode forms,
invisible characters, kinds of quotes and dashes) but keeps those that change a value: superscripts,
subscripts and fractions are not folded, so that ten squared never becomes 102.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_SLOT: Final = 4_000
"""Longest answer slot in characters; a longer one is refused."""
MAX_LAYERS: Final = 12
"""Layers of markup that are taken off; nobody writes more."""

_MARKER: Final = re.compile(
    r"(?:(?<![^\W_])(?:final\s+)?answer|(?:最终|最后)?答案)[*_`\s]{0,6}[:：][*_`]{0,3}",
    re.IGNORECASE,
)
_INVISIBLE: Final = re.compile(r"[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_KEPT: Final = re.compile(
    r"([\u00b2\u00b3\u00b9\u00bc-\u00be\u2044\u2070-\u209f\u2150-\u215f\u2189\u2460-\u24ff"
    r"\u2776-\u2793\U0001f100-\U0001f10c]+)"
)
_QUOTES: Final = str.maketrans("‘’‚‛′´`“”„‟″«»「」『』", "'" * 7 + '"' * 11)
_DASHES: Final = str.maketrans("‐‑‒–—―−﹣", "-" * 8)
_FENCE: Final = re.compile(r"```[a-zA-Z]*\n?(.*?)\n?```", re.DOTALL)
_BOXED: Final = re.compile(r"\$*\\boxed\{([^{}]*)\}\$*")
_BULLET: Final = re.compile(r"(?:[*•·‣▪◦][ \t]+|[-–—][ \t]+(?!\d))")
_PAIRS: Final = ("***", "**", "__", "*", "_", "``", "`")
_OPENED: Final = re.compile(r"[*_`]{1,3}\Z")
_INLINE: Final = re.compile(r"(\*\*|__|`)(?=\S)(.+?)(?<=\S)\1")
_CODE: Final = re.compile(
    r"(?<![\w.,/-])(?!(?:UTC|GMT)-)[A-Z]{2,6}-\d{1,8}(?![\w/-]|[.,:]\d)", re.ASCII
)
_RETRACTED: Final = re.compile(
    r"~~|(?<![\w~])~(?=[^\s~])[^~\n]*[^\s~]~(?![\w~])|</?(?:s|del|strike)\b[^<>]*>|"
    r"\\(?:sout|st|cancel|bcancel|xcancel)\b|[\u0335-\u0338]",
    re.IGNORECASE,
)
_SPACES: Final = re.compile(r"[^\S\n]+")


def answer_slot(text: str) -> str:
    """The part of a message that is graded.

    What follows the last `ANSWER:` (any case, bold or not, full-width colon, also 答案：), else the
    whole text; without the emphasis, code ticks, bullet and full stop around it.
    """
    found = list(_MARKER.finditer(text))
    if not found:
        return _strip(text)
    last = found[-1]
    slot = text[last.end() :].strip()
    opened = _OPENED.search(text, 0, last.start())
    if opened and not last.group().endswith(("*", "_", "`")):
        slot = slot.removesuffix(opened.group())
    return _strip(slot)


def _strip(slot: str) -> str:
    """Remove layers of markup until none is left."""
    slot = slot[: MAX_SLOT * 4]
    for _ in range(MAX_LAYERS):
        before = slot
        slot = _INVISIBLE.sub("", slot).strip()
        if whole := _FENCE.fullmatch(slot) or _BOXED.fullmatch(slot):
            slot = whole.group(1)
        for mark in _PAIRS:
            inner = slot[len(mark) : -len(mark)]
            if slot == f"{mark}{inner}{mark}" and inner.strip() and mark not in inner:
                slot = inner
        slot = slot.rstrip("。．")
        if slot.endswith(".") and not slot.endswith(".."):
            slot = slot[:-1]
        if "\n" not in slot:
            slot = _BULLET.sub("", slot, count=1) if _BULLET.match(slot) else slot
        if slot == before:
            break
    return slot


def plain(slot: str) -> str:
    """The slot without bold and code marks inside it."""
    return _INLINE.sub(r"\2", slot)


def is_retracted(slot: str) -> bool:
    """Whether something in the slot is struck through: Markdown, HTML, LaTeX, combining strokes."""
    return bool(_RETRACTED.search(slot))


def fold(text: str) -> str:
    """One form for texts that look the same; case, line breaks and values are kept."""
    text = _INVISIBLE.sub("", text)
    parts = _KEPT.split(text)
    text = "".join(
        part if index % 2 else unicodedata.normalize("NFKC", part)
        for index, part in enumerate(parts)
    )
    text = text.translate(_QUOTES).translate(_DASHES)
    text = "".join(_ascii_digit(char) for char in text)
    return _SPACES.sub(" ", text).strip()


def without_codes(folded: str) -> str:
    """Blank out codes such as `AC-2`: words with digits in them, neither numbers nor days."""
    return _CODE.sub(lambda code: "\u25a1" * len(code.group()), folded)


def lowered(text: str) -> str:
    """Lower case without moving any character, so that places in it are places in `text`."""
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _ascii_digit(char: str) -> str:
    if char.isascii() or not char.isdecimal():
        return char
    return str(unicodedata.decimal(char))
