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

import orjson
from babel import Locale, UnknownLocaleError

from astra_mcp.attempt import Call, Golden
from astra_mcp.bundle import Manifest
from astra_mcp.grade.equality import same
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
        self._texts: list[str] = [server.instructions for server in manifest.servers]
        self._months = _months(manifest.language)
        reasoned = {step.id: step.reasoned for step in task.plan}
        self._worked_out = [
            step.args[name] for step in golden.steps for name in reasoned.get(step.id, [])
        ]

    def learn(self, call: Call) -> None:
        """Add what the call told the agent."""
        if call.ok:
            self._texts.append(orjson.dumps(call.result).decode())
        elif call.failure is not None:
            self._texts.append(call.failure.message)

    def has(self, call: Call) -> bool:
        """Whether every argument of the call has a source."""
        values = [value for value in _leaves(call.args) if not self._harmless(value)]
        if not values:
            return True
        text = _Text(" \n".join([*self._told(call), *self._texts]))
        return all(self._known(value, text) for value in values)

    def _told(self, call: Call) -> list[str]:
        turns = [turn.id for turn in self._task.turns]
        last = turns.index(call.turn) if call.turn in turns else len(turns) - 1
        told = [turn.say for turn in self._task.turns[: last + 1]]
        spec = self._manifest.by_name.get(call.tool)
        if spec is not None:
            told += [spec.description, orjson.dumps(spec.input_schema).decode()]
        return told

    def _harmless(self, value: Json) -> bool:
        if isinstance(value, str):
            return len(value.strip()) <= 2
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value).is_integer() and abs(value) <= SMALL
        return True

    def _known(self, value: Json, text: _Text) -> bool:
        if any(same(value, worked_out) for worked_out in self._worked_out):
            return True
        if not isinstance(value, str):
            return abs(float(value)) in text.numbers
        if " ".join(value.casefold().split()) in text.folded:
            return True
        if (match := _DATE.fullmatch(value.strip())) is not None:
            return self._day(match[1], text) and (match[2] is None or _clock(match[2], text))
        if (match := _TIME.fullmatch(value.strip())) is not None:
            return _clock(match[1], text)
        words = {word for word in _WORD.findall(value.casefold()) if len(word) > 2}
        return bool(words) and words <= text.words

    def _day(self, iso: str, text: _Text) -> bool:
        try:
            day = date.fromisoformat(iso)
        except ValueError:
            return False
        if iso in text.folded or abs(day - self._manifest.now.date()) <= NEAR:
            return True
        names = self._months[day.month - 1]
        named = any(name in text.folded for name in names) or day.month in text.digits
        return named and day.day in text.digits


class _Text:
    """A text and the words and numbers in it."""

    def __init__(self, text: str) -> None:
        self.folded = " ".join(text.casefold().split())
        self.words = set(_WORD.findall(self.folded))
        self.digits = {int(digits) for digits in _DIGITS.findall(self.folded) if len(digits) < 16}
        self.numbers = {n for found in _NUMBER.findall(self.folded) for n in _readings(found)}


def _readings(found: str) -> Iterator[float]:
    """Both readings of separators: 1,500.25 and 1.500,25."""
    found = found.rstrip(".,")
    for text in (found.replace(",", ""), found.replace(".", "").replace(",", ".")):
        try:
            yield float(text)
        except ValueError:
            continue


def _clock(text: str, known: _Text) -> bool:
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return False
    hours = {clock.hour, (clock.hour - 1) % 12 + 1}
    return bool(hours & known.digits) and (clock.minute == 0 or clock.minute in known.digits)


def _leaves(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


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
