"""Schema-valid arguments drawn from what an agent without understanding could know.

Values come from literals in the question, enums, values seen in results and, where nothing else
fits, the schema's own bounds. Seeded and pure but for the pool, which grows by results. No value is
ever taken from sealed data.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from astra_mcp.schema import Validator

Json = Any

_QUOTED = re.compile(r"[\"“«„'‘]([^\"”»“'’]{1,80})[\"”»“'’]")
_CODE_LIKE = re.compile(r"\b[A-Z]{1,6}-?\d+[A-Z0-9-]*\b")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}:\d{2}\b")
_NAME = re.compile(r"\b[A-Z][\w'’-]+(?:\s+[A-Z][\w'’-]+)*")
_WORD = re.compile(r"[^\W\d_][\w-]{2,}")
_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:[.,]\d+)?(?![\w-])")
_MAX_SEEN: Final = 512
_TRIES: Final = 24


class ValuePool:
    """Literals of a question and values of results, in the order they were met.

    Args:
        question: The user's words.
    """

    def __init__(self, question: str) -> None:
        self.literals = list(dict.fromkeys(_literals(question)))
        self.seen: list[Json] = []

    def see(self, result: Json) -> None:
        """Add every leaf of a result; the oldest go when there are too many."""
        known = {(type(value), value) for value in self.seen}
        fresh = [leaf for leaf in _leaves(result) if (type(leaf), leaf) not in known]
        self.seen = (self.seen + fresh)[-_MAX_SEEN:]

    def everything(self) -> list[Json]:
        """All values: seen ones first."""
        return [*self.seen, *self.literals]


def draw_arguments(
    rng: random.Random, schema: Mapping[str, Json], pool: ValuePool
) -> dict[str, Json] | None:
    """Random arguments that the schema accepts; None when none were found.

    Args:
        rng: Seeded by the caller.
        schema: An object schema of the closed profile.
        pool: What values may be drawn from.
    """
    validator = Validator(dict(schema))
    required = set(schema.get("required", []))
    for _ in range(_TRIES):
        args = {
            name: draw_value(rng, part, pool)
            for name, part in schema.get("properties", {}).items()
            if name in required or rng.random() < 0.3
        }
        if validator.check(args) is None:
            return args
    return None


def draw_value(rng: random.Random, schema: Mapping[str, Json], pool: ValuePool) -> Json:
    """One random value that probably fits `schema`."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    validator = Validator(dict(schema))
    fitting = [value for value in pool.everything() if validator.check(value) is None]
    if fitting:
        return rng.choice(fitting)
    return _made_up(rng, schema, pool)


def _made_up(rng: random.Random, schema: Mapping[str, Json], pool: ValuePool) -> Json:
    if "anyOf" in schema:
        return draw_value(rng, rng.choice(schema["anyOf"]), pool)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    match kind:
        case "boolean":
            return rng.random() < 0.5
        case "integer":
            low, high = _bounds(schema)
            return rng.randint(math.ceil(low), max(math.ceil(low), math.floor(high)))
        case "number":
            low, high = _bounds(schema)
            return round(rng.uniform(low, high), 2)
        case "array":
            size = rng.randint(schema.get("minItems", 1), max(1, schema.get("minItems", 1)))
            return [draw_value(rng, schema.get("items", {}), pool) for _ in range(size)]
        case "object":
            parts = schema.get("properties", {})
            return {name: draw_value(rng, part, pool) for name, part in parts.items()}
    words = pool.literals or ["a"]
    return str(rng.choice(words))[: schema.get("maxLength", 80)]


def _bounds(schema: Mapping[str, Json]) -> tuple[float, float]:
    low = float(schema.get("minimum", schema.get("exclusiveMinimum", 0)))
    high = float(schema.get("maximum", schema.get("exclusiveMaximum", low + 100)))
    return low, max(low, high)


def _literals(question: str) -> Iterator[Json]:
    for pattern in (_CODE_LIKE, _DATE, _QUOTED, _NAME):
        for found in pattern.finditer(question):
            yield found[1] if pattern.groups else found[0]
    for found in _NUMBER.finditer(question):
        number = float(found[0].replace(",", "."))
        yield int(number) if number.is_integer() else number
    yield from (found[0] for found in _WORD.finditer(question))


def _leaves(value: Json) -> Iterator[Json]:
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)
    elif value is not None:
        yield value
