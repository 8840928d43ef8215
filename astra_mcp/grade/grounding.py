"""Whether an agent could know the arguments of a call, or made them up.

A heuristic for the label `ungrounded`, lenient on purpose: an argument is grounded when it stands
in the user's turns so far, in an earlier result or error, or in the tool's own schema; when the
plan says that it has to be worked out; or when it is a date or time that those texts (or the
world's date) make plain. Small integers, booleans and very short texts are never suspect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, time, timedelta
from functools import lru_cache
from typing import Any, Final

from babel import Locale, UnknownLocaleError

from astra_mcp.attempt import Call, Golden
from astra_mcp.bundle import Manifest
from astra_mcp.grade.equality import same, scalars
from astra_mcp.task import Task

Json = Any

SMALL: Final = 100
"""Integers up to this size are counts and limits, which need no source."""
NEAR: Final = timedelta(days=31)
"""Dates this close to the world's own are reached by words such as "tomorrow"."""

_NUMBER: Final = re.compile(r"\d[\d.,]*")
_DIGITS: Final = re.compile(r"\d+")
_WORD: Final = re.compile(r"\w+")
_DATE: Final = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}).*)?")
_TIME: Final = re.compile(r"(\d{2}:\d{2})(?::\d{2})?")


class Grounds:
    """What the agent could know, growing call by call."""

    def __init__(self, task: Task, golden: Golden, manifest: Manifest) -> None:
        self._task, self._manifest = task, manifest
        self._months = _months(manifest.language)
        self._told = _Texts()
        self._turns_told = 0
        self._tools: dict[str, _Texts] = {}
        reasoned = {step.id: step.reasoned for step in task.plan}
        self._worked_out = [
            step.args[name] for step in golden.steps for name in reasoned.get(step.id, [])
        ]
        for server in manifest.servers:
            self._told.add(server.instructions)

    def learn(self, call: Call) -> None:
        """Add what the call told the agent."""
        if call.ok:
            self._told.add(_as_text(call.result))
        elif call.failure is not None:
            self._told.add(call.failure.message)

    def has(self, call: Call) -> bool:
        """Whether every argument of the call has a source."""
        self._listen(call.turn)
        texts = (self._told, self._schema(call.tool))
        return all(_harmless(value) or self._known(value, texts) for value in scalars(call.args))

    def _listen(self, turn: str) -> None:
        """Add the user's turns up to this one."""
        turns = [one.id for one in self._task.turns]
        until = turns.index(turn) + 1 if turn in turns else len(turns)
        for one in self._task.turns[self._turns_told : until]:
            self._told.add(one.say)
        self._turns_told = max(self._turns_told, until)

    def _schema(self, tool: str) -> _Texts:
        if tool not in self._tools:
            texts = self._tools[tool] = _Texts()
            if (spec := self._manifest.by_name.get(tool)) is not None:
                texts.add(spec.description)
                texts.add(_as_text(spec.input_schema))
        return self._tools[tool]

    def _known(self, value: Json, texts: tuple[_Texts, ...]) -> bool:
        if any(same(value, worked_out) for worked_out in self._worked_out):
            return True
        if not isinstance(value, str):
            return any(abs(value) in text.numbers for text in texts)
        if any(text.holds(value) for text in texts):
            return True
        digits = set().union(*(text.digits for text in texts))
        if (match := _DATE.fullmatch(value.strip())) is not None:
            on_day = self._day(match[1], digits, texts)
            return on_day and (match[2] is None or _clock(match[2], digits))
        if (match := _TIME.fullmatch(value.strip())) is not None:
            return _clock(match[1], digits)
        words = {word for word in _WORD.findall(value.casefold()) if len(word) > 2}
        return bool(words) and words <= set().union(*(text.words for text in texts))

    def _day(self, iso: str, digits: set[int], texts: tuple[_Texts, ...]) -> bool:
        try:
            day = date.fromisoformat(iso)
        except ValueError:
            return False
        if abs(day - self._manifest.now.date()) <= NEAR:
            return True
        names = self._months[day.month - 1]
        named = any(text.holds(name) for name in names for text in texts)
        return (named or day.month in digits) and day.day in digits


class _Texts:
    """Texts, and the words and numbers in them."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.words: set[str] = set()
        self.digits: set[int] = set()
        self.numbers: set[float] = set()

    def add(self, text: str) -> None:
        """Add one text."""
        folded = " ".join(text.casefold().split())
        self.pieces.append(folded)
        self.words.update(_WORD.findall(folded))
        self.digits.update(int(found) for found in _DIGITS.findall(folded) if len(found) < 16)
        self.numbers.update(n for found in _NUMBER.findall(folded) for n in _readings(found))

    def holds(self, text: str) -> bool:
        """Whether `text` stands in one of them, whatever its case and spacing."""
        folded = " ".join(text.casefold().split())
        return any(folded in piece for piece in self.pieces)


def _harmless(value: Json) -> bool:
    if isinstance(value, str):
        return len(value.strip()) <= 2
    if isinstance(value, bool) or value is None:
        return True
    return abs(value) <= SMALL and float(value).is_integer()


def _readings(found: str) -> Iterator[float]:
    """Both readings of separators: 1,500.25 and 1.500,25."""
    found = found.rstrip(".,")
    for text in (found.replace(",", ""), found.replace(".", "").replace(",", ".")):
        try:
            yield float(text)
        except ValueError:
            continue


def _clock(text: str, digits: set[int]) -> bool:
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return False
    hours = {clock.hour, (clock.hour - 1) % 12 + 1}
    return bool(hours & digits) and (clock.minute == 0 or clock.minute in digits)


def _as_text(value: Json) -> str:
    return "\n".join(str(scalar) for scalar in scalars(value, keys=True))


@lru_cache(maxsize=32)
def _months(language: str) -> tuple[frozenset[str], ...]:
    """Names of the twelve months, wide and short, in English and in `language`."""
    locales = [Locale("en")]
    try:
        locales.append(Locale.parse(language.replace("-", "_")))
    except (UnknownLocaleError, ValueError):
        pass
    return tuple(
        frozenset(
            locale.months[form][width][month].casefold().rstrip(".")
            for locale in locales
            for form in ("format", "stand-alone")
            for width in ("wide", "abbreviated")
        )
        for month in range(1, 13)
    )
