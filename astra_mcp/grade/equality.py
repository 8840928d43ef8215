"""When two JSON values are the same.

`json_key` is JSON's own equality (1 is 1.0, true is no number, key order does not matter); `same`
is that with texts compared after trimming and case folding, for values that an agent typed. Agents
choose what they send, so both look `MAX_DEPTH` levels deep and no deeper.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from unicodedata import normalize

Json = Any

MAX_DEPTH: Final = 64
"""Levels of nesting that are looked at; what lies deeper is taken as equal."""


def json_key(value: Json) -> str:
    """A text that two JSON values share exactly when they are equal."""
    return json.dumps(_plain(value, 0, fold=False), sort_keys=True)


def same(a: Json, b: Json) -> bool:
    """Whether two JSON values are equal up to case and outer white space of texts."""
    return _folded(a) == _folded(b)


def scalars(value: Json, keys: bool = False) -> Iterator[Json]:
    """Every text, number, boolean and null in a value, in no particular order; keys if asked."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
            if keys:
                yield from item
        elif isinstance(item, list):
            stack.extend(item)
        else:
            yield item


def _folded(value: Json) -> str:
    return json.dumps(_plain(value, 0, fold=True), sort_keys=True)


def _plain(value: Json, depth: int, *, fold: bool) -> Json:
    if isinstance(value, str):
        return normalize("NFC", value).strip().casefold() if fold else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if depth > MAX_DEPTH and isinstance(value, dict | list | tuple):
        return "..."
    if isinstance(value, dict):
        return {key: _plain(item, depth + 1, fold=fold) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1, fold=fold) for item in value]
    return value
