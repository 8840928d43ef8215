"""Writing a value down as an answer: the phrasing that a matcher of its kind accepts.

Pure. The value that is written is the one given, never the sealed one; `accept` phrasings of a task
serve only as wording, and only where the matcher says that they mean this very value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from astra_mcp.match import match_text
from astra_mcp.match.models import Bool, ListOf, Matcher, Number, Record, SetOf
from astra_mcp.task import Expect

Json = Any


def phrase(expect: Expect, value: Json, language: str) -> str:
    """The first wording of `value` that the matcher accepts, else the plain one."""
    candidates = [*_wordings(expect.match, value), *expect.accept]
    for text in candidates:
        if match_text(expect.match, value, text, locale=language):
            return text
    return candidates[0]


def plain(value: Json) -> str:
    """A value in the plainest words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    return orjson.dumps(value).decode()


def _wordings(matcher: Matcher, value: Json) -> list[str]:
    """Ways to write a value, the most natural first."""
    match matcher:
        case Number(unit=unit) if unit:
            return [f"{plain(value)} {unit}", plain(value)]
        case Bool():
            return [plain(value), orjson.dumps(value).decode()]
        case SetOf(of=of) | ListOf(of=of) if isinstance(value, list):
            members = [_wordings(of, member)[0] for member in value]
            bullets = "\n".join(f"- {member}" for member in members)
            return ["; ".join(members), ", ".join(members), bullets, orjson.dumps(value).decode()]
        case Record(fields=fields) if isinstance(value, Mapping):
            lines = [f"{k}: {_wordings(fields[k], value[k])[0]}" for k in fields if k in value]
            return ["\n".join(lines), orjson.dumps(value).decode()]
    return [plain(value)]
