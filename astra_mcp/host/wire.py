"""JSON bytes of what goes out: orjson, and the standard library for what orjson does not take.

Pure. It does not check what services answer for: NaN and infinity become null.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

Json = Any


def encode(value: Json) -> bytes:
    """UTF-8 JSON without spaces; integers of any width.

    Raises:
        TypeError, ValueError: `value` is no JSON, or holds half a surrogate pair, which strict
            parsers refuse.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode()
