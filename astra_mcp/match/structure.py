"""Sets, lists and records in free text.

The slot is cut at every place where a member may end (comma, semicolon, line, "and"), and the
pieces are put together again so that each member is one that is expected: so a title that holds a
comma or an "and" is found whole, and nothing may be left over. JSON arrays and objects are read as
such. In a set the same member twice is one member; a list is compared in order. Only words listed
in labels.py may stand before the members: "in reverse:" would make another list of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from astra_mcp.match import words
from astra_mcp.match.labels import harmless
from astra_mcp.match.models import Bool, Exact, ListOf, Matcher, Number, Record, SetOf
from astra_mcp.match.numerals import parse_number, run_of
from astra_mcp.match.slot import answer_slot, fold
from astra_mcp.match.texts import json_key, label, normal
from astra_mcp.match.values import is_comparable, one_to_one
from astra_mcp.match.verdict import RIGHT, Verdict, wrong

Json = Any
Compare = Callable[[Matcher, Json, Json], bool]
"""Whether a member (text of the answer, or a JSON value of it) is the expected one."""

MAX_PIECES: Final = 600
MAX_TRIES: Final = 20_000

_BULLET: Final = re.compile(r"\s*(?:[-*•·‣▪◦–—+]\s+|[-•·‣▪◦](?=[^\W\d]))")
_NUMBERED: Final = re.compile(r"\s*\(?(?P<n>\d{1,3})[.)、]\s*(?=\S)")
_SEPARATOR: Final = re.compile(
    r"\s*[,;，；、/|]\s*(?:(?:and|und|et|y|e|&|和|以及)\s+)?|\s*\n\s*(?:(?:and|und|et|y|e|&)\s+)?|"
    r"\s+(?:and|und|et|y|e|&|as well as|sowie)\s+|\s*(?:和|与|及|以及|跟)\s*",
    re.IGNORECASE,
)
_ORDERED: Final = re.compile(
    r"\s*[,;]\s*(?:and )?then\s+|\s*\n\s*then\s+|\s*(?:→|⟶|➜|⇒|->|-->|=>)\s*", re.IGNORECASE
)
"""Signs of a sequence: separators in a list, not in a set."""
_COUNT: Final = re.compile(r"(?:^|(?<=[\s,;]))\(?(?P<n>\d{1,3})[.)] +(?=\S)")
_LABEL: Final = re.compile(r"[^,;:\n\d]{1,80}: ?(?=\S)")
_LEAD: Final = re.compile(
    r"(?:(?:the|there|these|those|they|it|all|both|die|der|das|les|los|las|ce|son|es)\b[^,;:\n\d]{0,80}?"
    r"\b(?:are|is|were|was|sind|ist|sont|est|son|es|lauten)\b:?|"
    r"both|beide)\s+(?=\S)|[\u3400-\u9fff]{0,12}(?:是|为|有)[:：]?\s*(?=\S)",
    re.IGNORECASE,
)
_HEADER: Final = re.compile(r"[^\n]{1,120}[:：]\s*$")


def match_collection(
    matcher: SetOf | ListOf, gold: Sequence[Json], slot: str, locale: str, compare: Compare
) -> Verdict:
    """Whether the slot lists the expected members, all of them and no other.

    Args:
        matcher: A set or a list.
        gold: The expected members.
        slot: The answer slot.
        locale: Of the members.
        compare: How one member is compared.
    """
    ordered = isinstance(matcher, ListOf)
    given = _json(slot)
    if isinstance(given, list):
        return _compare_members(matcher.of, gold, given, ordered, compare)
    if isinstance(matcher.of, SetOf | ListOf | Record):
        return wrong("members that are structures have to be a JSON array")
    bodies = _bodies(fold(slot), locale)
    if ordered:
        bodies += [cut for body in bodies if (cut := _ORDERED.sub("; ", body)) != body]
    for body in bodies:
        pieces, between = _counted(body) or _cut(body, locale)
        if len(pieces) > MAX_PIECES:
            return wrong("the answer lists too much")
        if _Cover(matcher.of, gold, pieces, between, compare).covers(ordered):
            return RIGHT
    return wrong("the members are not exactly the expected ones")


def _json(slot: str) -> Json:
    """The JSON array or object that the slot is; None when it is none."""
    if not slot.startswith(("[", "{")):
        return None
    try:
        given = json.loads(slot, object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return given if is_comparable(given) else None


def _no_twins(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name stands twice")
    return members


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is no JSON")


def _compare_members(
    of: Matcher, gold: Sequence[Json], given: list[Json], ordered: bool, compare: Compare
) -> Verdict:
    if not ordered:
        given = list({_member_key(item): item for item in given}.values())
    if len(given) != len(gold):
        return wrong("members are missing or more than expected")
    if ordered:
        right = all(compare(of, want, have) for want, have in zip(gold, given, strict=True))
    else:
        which = _which(of, gold, compare)
        right = one_to_one([which(have) for have in given])
    return RIGHT if right else wrong("the members differ")


def _which(of: Matcher, gold: Sequence[Json], compare: Compare) -> Callable[[Json], frozenset[int]]:
    """Which expected members a value is: by looking texts up, else by comparing with each."""
    if not isinstance(of, Exact):
        return lambda have: frozenset(k for k, want in enumerate(gold) if compare(of, want, have))
    index: dict[str, set[int]] = {}
    for k, want in enumerate(gold):
        for text in (want, *of.aliases):
            index.setdefault(normal(text), set()).add(k)

    def look_up(have: Json) -> frozenset[int]:
        return frozenset(index.get(normal(answer_slot(have)), ()) if isinstance(have, str) else ())

    return look_up


def _member_key(item: Json) -> str:
    return normal(item) if isinstance(item, str) else json_key(item)


def _bodies(slot: str, locale: str) -> list[str]:
    """The slot as a list of lines or pieces: as it is, and without words that introduce it."""
    lines = [line for line in slot.split("\n") if line.strip()]
    if len(lines) > 1 and _HEADER.fullmatch(lines[0]) and _harmless(lines[0], locale):
        lines = lines[1:]
    body = "\n".join(_without_bullets(lines))
    bodies = [body]
    if re.fullmatch(r"[\[({].*[\])}]", body, re.DOTALL):
        bodies.append(body[1:-1])
    for lead in (_LABEL.match(body), _LEAD.match(body)):
        if lead and _harmless(lead.group(), locale):
            bodies.append(body[lead.end() :])
    return bodies


def _harmless(text: str, locale: str) -> bool:
    doubted = words.has_hedge(text, locale) or words.has_negation(text, locale)
    return harmless(text) and not doubted


def _counted(body: str) -> tuple[list[str], list[str]] | None:
    """The pieces of `1. A, 2. B, 3. C` on one line; None when it is not counted so from 1 on."""
    found = list(_COUNT.finditer(body)) if "\n" not in body else []
    if (
        len(found) < 2
        or found[0].start()
        or [int(m["n"]) for m in found] != [*range(1, len(found) + 1)]
    ):
        return None
    ends = [*(m.start() for m in found[1:]), len(body)]
    cut = [body[m.end() : end].strip() for m, end in zip(found, ends, strict=True)]
    pieces = [re.sub(r"\s*(?:[,;]\s*(?:and|und|et|y)?|\s(?:and|und|et|y))$", "", it) for it in cut]
    return pieces, ["; "] * (len(pieces) - 1)


def _without_bullets(lines: list[str]) -> list[str]:
    numbered = [_NUMBERED.match(line) for line in lines]
    counted = [int(found["n"]) for found in numbered if found]
    if len(lines) > 1 and counted == list(range(1, len(lines) + 1)):
        return [line[found.end() :] for line, found in zip(lines, numbered, strict=True) if found]
    return [_BULLET.sub("", line, count=1) if _BULLET.match(line) else line for line in lines]


def _cut(body: str, locale: str) -> tuple[list[str], list[str]]:
    """Pieces and what stood between them; a comma inside one number is no place to cut."""
    whole = [
        run.span()
        for run in run_of(locale).finditer(body)
        if parse_number(run.group(), locale) is not None
    ]
    pieces, between, at = [], [], 0
    for found in _SEPARATOR.finditer(body):
        inside = any(start < found.start() and found.end() < end for start, end in whole)
        if inside or not body[at : found.start()].strip():
            continue
        pieces.append(body[at : found.start()])
        between.append(found.group())
        at = found.end()
    if body[at:].strip():
        pieces.append(body[at:])
    return pieces, between


class _Cover:
    """Puts pieces together to expected members."""

    def __init__(
        self,
        of: Matcher,
        gold: Sequence[Json],
        pieces: list[str],
        between: list[str],
        compare: Compare,
    ) -> None:
        self._gold = gold
        self._pieces, self._between = pieces, between
        self._longest = _longest_member(of, gold)
        self._which = _which(of, gold, compare)
        self._fits = lru_cache(maxsize=None)(self._fits_of)

    def covers(self, ordered: bool) -> bool:
        """Whether the pieces are the expected members, in order if `ordered`."""
        if not self._pieces:
            return False
        return self._in_order() if ordered else self._any_order()

    def _member(self, start: int, stop: int) -> str:
        text = self._pieces[start]
        for i in range(start + 1, stop):
            text += self._between[i - 1] + self._pieces[i]
        return text

    def _fits_of(self, start: int, stop: int) -> frozenset[int]:
        return self._which(self._member(start, stop))

    def _stops(self, start: int) -> range:
        """Longest first: a member that holds a separator wins over its parts."""
        return range(min(len(self._pieces), start + self._longest), start, -1)

    def _in_order(self) -> bool:
        """After each expected member: where the pieces used so far can end."""
        ends = {0}
        for k in range(len(self._gold)):
            ends = {
                stop
                for start in ends
                for stop in self._stops(start)
                if k in self._fits(start, stop)
            }
        return len(self._pieces) in ends

    def _any_order(self) -> bool:
        """Depth first over (next piece, members found, texts seen), within `MAX_TRIES`."""
        nothing: frozenset[Any] = frozenset()
        stack = [(0, nothing, nothing)]
        for _ in range(MAX_TRIES):
            if not stack:
                return False
            start, used, said = stack.pop()
            if start == len(self._pieces):
                if len(used) == len(self._gold):
                    return True
                continue
            for stop in reversed(self._stops(start)):
                fits = self._fits(start, stop)
                key = normal(self._member(start, stop))
                if fits and key in said:
                    stack.append((stop, used, said))
                elif fits:
                    stack.extend((stop, used | {k}, said | {key}) for k in fits - used)
        return False


def _longest_member(of: Matcher, gold: Sequence[Json]) -> int:
    """How many pieces one expected member may be cut into."""
    if isinstance(of, Exact):
        texts = [*(text for text in gold if isinstance(text, str)), *of.aliases]
        return 1 + max(len(_SEPARATOR.findall(text)) for text in texts)
    return 1 if isinstance(of, Bool | Number) else 4


def match_record(matcher: Record, gold: Mapping[str, Json], slot: str, compare: Compare) -> Verdict:
    """Whether the slot gives every field its expected value, and no other field."""
    given = _json(slot)
    if not isinstance(given, dict):
        given = _table(slot) or _fields(matcher, slot)
    names = {label(name): name for name in matcher.fields}
    said: dict[str, Json] = {}
    for name, value in given.items():
        known = names.get(label(name))
        if known is None or known in said:
            return wrong("a field is there twice, or is not asked for")
        said[known] = value
    if len(said) != len(names):
        return wrong("a field is missing")
    for name, inner in matcher.fields.items():
        if not compare(inner, gold[name], said[name]):
            return wrong("a field differs")
    return RIGHT


def _table(slot: str) -> dict[str, str]:
    """The one row of a Markdown table below its header; empty when the slot is no such table."""
    rows = [line.strip() for line in slot.strip().split("\n")]
    if len(rows) != 3 or not all(len(row) > 1 and row[0] == row[-1] == "|" for row in rows):
        return {}
    head, rule, cells = (
        [cell.strip() for cell in re.split(r"(?<!\\)\|", row[1:-1])] for row in rows
    )
    names = {label(name) for name in head}
    ruled = all(re.fullmatch(r":?-+:?", cell) for cell in rule)
    if not ruled or not len(head) == len(rule) == len(cells) == len(names):
        return {}
    return dict(zip(head, cells, strict=True))


def _fields(matcher: Record, slot: str) -> dict[str, str]:
    """`name: value` pairs, one a line or separated by commas or semicolons."""
    names = "|".join(
        re.escape(label(name)).replace(r"\ ", r"[\s_-]+")
        for name in sorted(matcher.fields, key=len, reverse=True)
    )
    mark = re.compile(
        rf"(?:^|[\n,;，；])[\s*_`'\"•·-]*(?P<name>{names})[\s*_`'\"]*[:：=][\s*_`]*", re.IGNORECASE
    )
    found = list(mark.finditer(slot))
    fields: dict[str, str] = {}
    if not found or slot[: found[0].start()].strip():
        return {}
    for here, after in zip(found, [*found[1:], None], strict=True):
        name = here["name"]
        if label(name) in map(label, fields):
            return {}
        value = slot[here.end() : after.start() if after else len(slot)]
        fields[name] = value.strip(" \t\n,;，；*`")
    return fields
