"""When two JSON values are the same.

`json_key` is JSON's own equality (1 is 1.0, true is no number, key order does not matter); `same`
is that with texts compared after trimming and case folding, for values that an agent typed.
"""

from __future__ import annotations

import json
from typing import Any

Json = Any


def json_key(value: Json) -> str:
    """A text that two JSON values share exactly when they are equal."""
    return json.dumps(_plain(value, fold=False), sort_keys=True)


def same(a: Json, b: Json) -> bool:
    """Whether two JSON values are equal up to case and outer white space of texts."""
    return _folded(a) == _folded(b)


def _folded(value: Json) -> str:
    return json.dumps(_plain(value, fold=True), sort_keys=True)


def _plain(value: Json, *, fold: bool) -> Json:
    if isinstance(value, str):
        return value.strip().casefold() if fold else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item, fold=fold) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, fold=fold) for item in value]
    return value
