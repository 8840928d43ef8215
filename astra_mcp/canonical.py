"""Canonical JSON (RFC 8785) and sha256 digests over it.

Pure. Digests that leave the machine (world, tasks, bundle) are over RFC 8785 bytes; `state_hash` is
a journal's internal check and uses orjson's sorted form, which is equally deterministic for one
Python value and fifty times faster.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import rfc8785

from astra_mcp.errors import BundleError

Json = Any


def canonical_bytes(value: Json) -> bytes:
    """RFC 8785 bytes of a JSON value.

    Raises:
        BundleError: `value` is no JSON, holds NaN or infinity, or an integer beyond 2**53.
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, TypeError, RecursionError) as error:
        raise BundleError(
            f"A value has no canonical JSON form: {error}.",
            "Use JSON values with finite numbers and integers within plus or minus 2**53.",
        ) from error


def deeper_than(value: Json, levels: int) -> bool:
    """Whether a JSON value has more than so many levels of lists and objects."""
    level = [value]
    for _ in range(levels + 1):
        inner: list[Json] = []
        for part in level:
            if type(part) is dict:
                inner += part.values()
            elif type(part) is list:
                inner += part
        if not inner:
            return False
        level = inner
    return True


def digest(*parts: bytes) -> str:
    """`sha256:<hex>` over length-prefixed parts, so that no two lists of parts collide."""
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "big"))
        h.update(part)
    return f"sha256:{h.hexdigest()}"


def state_hash(state: Json) -> str:
    """sha256 hex of a world's state, the same for equal states whatever their key order."""
    return hashlib.sha256(orjson.dumps(state, option=orjson.OPT_SORT_KEYS)).hexdigest()
