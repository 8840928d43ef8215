"""The closed profile of JSON Schema that tools may use, and validators over it.

`check_schema` is the gate: what passes it is self-contained (no `$ref`, nothing remote), says of
every value which type it has, carries no keyword that would silently do nothing, and can be turned
into a value generator. A `Validator` compiles any local schema and answers in under a microsecond
for valid values. Patterns run on an engine without backtracking, so no input makes one hang.

JSON Schema's own rules hold: 3.0 is an integer, "3" is not; `format` is checked; a `time` has
seconds and a zone (RFC 3339), so "16:20" wants a `pattern`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, Final

import jsonschema_rs
import orjson

from astra_mcp.errors import SchemaError

Json = Any
Schema = Mapping[str, Json]

MAX_DEPTH: Final = 12
MAX_BYTES: Final = 65_536
MAX_MESSAGE: Final = 300
FORMATS: Final = frozenset({"date", "date-time", "time", "email", "uri"})
TYPES: Final = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})

_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples"})
_ANY: Final = _ANNOTATIONS | {"type", "enum", "const", "anyOf"}
_OF_TYPE: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
}
_COUNTS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength"})
_KNOWN: Final = _ANY.union(*_OF_TYPE.values())
_PAIRS: Final = (("minItems", "maxItems"), ("minLength", "maxLength"), ("minimum", "maximum"))


# ---- the profile ---------------------------------------------------------------------------


def check_schema(schema: Json) -> None:
    """Refuse a tool's input or output schema that is outside the closed profile.

    The top is an object with `additionalProperties: false`. Below it every schema is one type (or
    a type and null), an `enum`, a `const`, or an `anyOf` of simple types, with the keywords that
    apply to it (`_OF_TYPE`) and nothing else. Listed values have to fit their own schema.

    Raises:
        SchemaError: names the place and the keyword.
    """
    if not isinstance(schema, dict):
        raise SchemaError("The schema is no object.", 'Start with {"type": "object", ...}.')
    try:
        size = len(orjson.dumps(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError("The schema is no JSON or nested too deep.") from error
    if size > MAX_BYTES:
        raise SchemaError(f"The schema has {size} bytes.", f"Use at most {MAX_BYTES}.")
    if schema.get("type") != "object" or schema.get("additionalProperties") is not False:
        raise SchemaError(
            "The top of a tool's schema is not a closed object.",
            'Set "type": "object" and "additionalProperties": false.',
        )
    _check(schema, "", 0)
    validator = validator_for(schema)
    _check_annotations(schema, "", validator)


def _check(schema: Json, at: str, depth: int) -> None:
    where = at or "the top"
    if not isinstance(schema, dict):
        raise SchemaError(f"{where}: a schema has to be an object.", "Booleans are not allowed.")
    if depth > MAX_DEPTH:
        raise SchemaError(f"{where}: nested too deep.", f"Use at most {MAX_DEPTH} levels.")
    if unknown := sorted(set(schema) - _KNOWN):
        raise SchemaError(
            f"{where}: keyword {unknown[0][:40]!r} is outside the profile.",
            f"Allowed are {', '.join(sorted(_KNOWN))}.",
        )
    types = _types(schema, where)
    _check_keywords(schema, types, where)
    if "anyOf" in schema:
        _check_any_of(schema["anyOf"], where, depth)
    for name, child in _properties(schema, where).items():
        _check(child, f"{at}.{name}" if at else name, depth + 1)
    if "items" in schema:
        _check(schema["items"], f"{at}[]", depth + 1)


def _types(schema: Schema, where: str) -> set[str]:
    """The types that a schema allows; empty when enum, const or anyOf say it instead."""
    given = schema.get("type")
    if given is None:
        if not {"enum", "const", "anyOf"} & set(schema):
            raise SchemaError(f"{where}: says no type.", "Add type, enum, const or anyOf.")
        return set()
    names = given if isinstance(given, list) else [given]
    if not all(isinstance(name, str) and name in TYPES for name in names):
        raise SchemaError(f"{where}: unknown type.", f"Types are {', '.join(sorted(TYPES))}.")
    pair = len(names) == 2 and names[1] == "null" and names[0] != "null"
    if isinstance(given, list) and not pair:
        raise SchemaError(
            f"{where}: a list of types is not [T, null].", "Use anyOf for other unions."
        )
    return set(names)


def _check_keywords(schema: Schema, types: set[str], where: str) -> None:
    groups = {"number" if name == "integer" else name for name in types}
    fitting = _ANY.union(*(_OF_TYPE.get(group, frozenset()) for group in groups))
    if idle := sorted(set(schema) - fitting):
        raise SchemaError(
            f"{where}: {idle[0]} does nothing without a type that it applies to.",
            "Remove it, or name the type.",
        )
    if "array" in types and "items" not in schema:
        raise SchemaError(f"{where}: an array without items.", "Say what its members are.")
    for key, rule, wanted in _RULES:
        if key in schema and not rule(schema[key]):
            raise SchemaError(f"{where}: {key} has to be {wanted}.")
    for low, high in _PAIRS:
        if low in schema and high in schema and schema[low] > schema[high]:
            raise SchemaError(f"{where}: {low} is above {high}, so no value fits.")


def _check_any_of(branches: Json, where: str, depth: int) -> None:
    if not isinstance(branches, list) or not 2 <= len(branches) <= 8:
        raise SchemaError(f"{where}: anyOf has to be a list of 2 to 8 schemas.")
    for index, branch in enumerate(branches):
        place = f"{where}.anyOf[{index}]"
        if isinstance(branch, dict) and (
            "anyOf" in branch or {"object", "array"} & _types(branch, place)
        ):
            raise SchemaError(
                f"{place}: anyOf is for simple types.", "Use text, numbers, booleans or null."
            )
        _check(branch, place, depth + 1)


def _properties(schema: Schema, where: str) -> dict[str, Json]:
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or len(properties) > 128:
        raise SchemaError(f"{where}: properties has to be an object of at most 128 members.")
    if any(not 1 <= len(name) <= 64 for name in properties):
        raise SchemaError(f"{where}: names of properties have 1 to 64 characters.")
    if missing := sorted(set(schema.get("required", [])) - set(properties)):
        raise SchemaError(f"{where}: requires {missing[0][:64]!r}, which is not declared.")
    return properties


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _distinct_texts(value: Json) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(item, str) for item in value)
        and len(set(value)) == len(value)
    )


def _distinct_scalars(value: Json) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= 512:
        return False
    scalar = all(item is None or isinstance(item, str | int | float) for item in value)
    return scalar and len({orjson.dumps(item) for item in value}) == len(value)


_RULES: Final[tuple[tuple[str, Callable[[Json], bool], str], ...]] = (
    *((key, _is_count, "an integer >= 0") for key in sorted(_COUNTS)),
    *(
        (key, _is_number, "a finite number")
        for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    ),
    ("multipleOf", lambda v: _is_number(v) and v > 0, "a number above 0"),
    ("pattern", lambda v: isinstance(v, str) and len(v) <= 512, "a text of at most 512 characters"),
    ("format", lambda v: isinstance(v, str) and v in FORMATS, f"one of {sorted(FORMATS)}"),
    ("required", _distinct_texts, "a list of distinct names"),
    ("enum", _distinct_scalars, "a list of 1 to 512 distinct simple values"),
    ("const", lambda v: v is None or isinstance(v, str | int | float), "a simple value"),
    ("additionalProperties", lambda v: isinstance(v, bool), "true or false"),
    ("uniqueItems", lambda v: isinstance(v, bool), "true or false"),
    ("title", lambda v: isinstance(v, str), "a text"),
    ("description", lambda v: isinstance(v, str), "a text"),
    ("examples", lambda v: isinstance(v, list), "a list"),
)


def _check_annotations(schema: Schema, at: str, validator: Validator) -> None:
    """Defaults, examples, enum members and const have to be valid values of their schema."""
    where = at or "the top"
    listed = [schema["const"]] if "const" in schema else list(schema.get("enum", []))
    shown = [schema["default"]] if "default" in schema else []
    for value in listed + shown + list(schema.get("examples", [])):
        if (problem := validator.check(value)) is not None:
            raise SchemaError(f"{where}: a listed value does not fit its own schema: {problem}")
    for name, child in schema.get("properties", {}).items():
        _check_annotations(child, f"{at}.{name}" if at else name, validator_for(child))
    if "items" in schema:
        _check_annotations(schema["items"], f"{at}[]", validator_for(schema["items"]))


# ---- validators ----------------------------------------------------------------------------


class Validator:
    """A compiled schema.

    Args:
        schema: Any JSON Schema 2020-12 without remote references.

    Raises:
        SchemaError: it does not compile.
    """

    __slots__ = ("_is_valid", "_validator")

    def __init__(self, schema: Schema) -> None:
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                dict(schema),
                validate_formats=True,
                offline=True,
                mask="the value",
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except (
            jsonschema_rs.ValidationError,
            jsonschema_rs.ReferencingError,
            ValueError,
            TypeError,
        ) as error:
            reason = str(error).splitlines()[0][:200].rstrip(".")
            raise SchemaError(
                f"The schema does not compile: {reason}.",
                "Patterns have no look-around or back-references; references are local.",
            ) from error
        self._is_valid = self._validator.is_valid

    def check(self, value: Json) -> str | None:
        """None when `value` is valid, else one sentence of at most 300 characters.

        The sentence names the place and what was expected there; of the value itself it shows
        nothing but its type and the names of unexpected members.
        """
        try:
            if self._is_valid(value):
                return None
            error = next(iter(self._validator.iter_errors(value)), None)
        except (ValueError, TypeError, RecursionError):
            return "the value is no JSON, or nested too deep"
        if error is None:
            return "the value does not fit the schema"
        return _sentence(error)[:MAX_MESSAGE]


@lru_cache(maxsize=4096)
def _compiled(schema: bytes) -> Validator:
    return Validator(orjson.loads(schema))


def validator_for(schema: Schema) -> Validator:
    """The validator of a schema, compiled once for equal schemas (cached).

    Raises:
        SchemaError: it does not compile.
    """
    try:
        key = orjson.dumps(schema)
    except (TypeError, ValueError) as error:
        raise SchemaError("The schema is no JSON.", "Use JSON values only.") from error
    return _compiled(key)


def _sentence(error: jsonschema_rs.ValidationError) -> str:
    place = ""
    for part in error.instance_path:
        place += f"[{part}]" if isinstance(part, int) else f".{part[:40]}" if place else part[:40]
    place = place if len(place) <= 100 else f"{place[:97]}..."
    return f"{place or 'the top level'}: {_expected(error)}"


def _expected(error: jsonschema_rs.ValidationError) -> str:
    kind, detail = error.kind.name, error.kind.as_dict()
    if kind == "type":
        types = detail.get("types") or [detail.get("type")]
        return f"expected {' or '.join(map(str, types))}, got {_kind(error.instance)}"
    if kind == "enum":
        shown = ", ".join(orjson.dumps(option).decode() for option in detail["options"][:12])
        return f"expected one of {shown[:180]}"
    if kind == "const":
        return f"expected {orjson.dumps(detail['expected_value']).decode()[:80]}"
    if kind == "required":
        return f"{str(detail['property'])[:64]!r} is required"
    if kind == "additionalProperties":
        return f"unexpected {', '.join(repr(n[:40]) for n in detail['unexpected'][:4])}"
    if kind == "format":
        return f"expected the format {detail['format']}"
    if kind == "pattern":
        return f"expected text matching {detail['pattern'][:120]}"
    return error.message


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return names.get(type(value), "object" if isinstance(value, dict) else "array")
