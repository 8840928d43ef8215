"""The closed profile of JSON Schema, and validators over it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra_mcp.errors import SchemaError
from astra_mcp.schema import MAX_MESSAGE, Validator, check_schema, validator_for


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


GOOD: list[dict[str, Any]] = [
    closed(),
    closed(a={"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[A-Z]{2}-\\d+$"}),
    closed(a={"type": ["string", "null"], "format": "date", "description": "A day."}),
    closed(a={"enum": ["x", "y", None]}, b={"const": 3}),
    closed(a={"type": "array", "items": {"type": "integer"}, "minItems": 1, "uniqueItems": True}),
    closed(a={"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}),
    closed(a={"type": "number", "exclusiveMinimum": 0, "maximum": 9.5, "multipleOf": 0.5}),
    closed(a={"type": "integer", "default": 3, "examples": [1, 2]}),
    closed(a={"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]}),
    {**closed(a={"type": "string"}), "required": ["a"], "title": "T"},
]

DEEP: dict[str, Any] = {"type": "string"}
for _ in range(20):
    DEEP = {"type": "array", "items": DEEP}

BAD: list[Any] = [
    None,
    True,
    [],
    {},
    {"type": "object"},
    {"type": "object", "additionalProperties": True},
    {"type": "array", "items": {"type": "string"}},
    closed(a=True),
    closed(a={}),
    closed(a={"description": "no type"}),
    closed(a={"type": "text"}),
    closed(a={"type": ["string", "integer"]}),
    closed(a={"type": ["null", "string"]}),
    closed(a={"type": []}),
    closed(a={"$ref": "#/properties/b"}),
    closed(a={"$ref": "https://example.org/schema"}),
    {**closed(), "$schema": "https://json-schema.org/draft/2020-12/schema"},
    {**closed(), "$defs": {}},
    closed(a={"oneOf": [{"type": "string"}, {"type": "null"}]}),
    closed(a={"allOf": [{"type": "string"}]}),
    closed(a={"not": {"type": "string"}}),
    closed(a={"type": "string", "minimum": 3}),
    closed(a={"type": "integer", "maxLength": 3}),
    closed(a={"enum": ["a"], "minLength": 1}),
    closed(a={"type": "array"}),
    closed(a={"type": "array", "items": [{"type": "string"}]}),
    closed(a={"type": "array", "items": {"type": "string"}, "prefixItems": []}),
    closed(a={"type": "string", "minLength": -1}),
    closed(a={"type": "string", "minLength": 5, "maxLength": 3}),
    closed(a={"type": "string", "minLength": True}),
    closed(a={"type": "string", "maxLength": "3"}),
    closed(a={"type": "integer", "minimum": "0"}),
    closed(a={"type": "integer", "minimum": 5, "maximum": 3}),
    closed(a={"type": "number", "minimum": float("nan")}),
    closed(a={"type": "number", "multipleOf": 0}),
    closed(a={"type": "string", "pattern": "("}),
    closed(a={"type": "string", "pattern": "(?=look)"}),
    closed(a={"type": "string", "pattern": "(a)\\1"}),
    closed(a={"type": "string", "pattern": 5}),
    closed(a={"type": "string", "format": "hostname"}),
    closed(a={"enum": []}),
    closed(a={"enum": ["a", "a"]}),
    closed(a={"enum": [["a"]]}),
    closed(a={"type": "string", "enum": ["a", 1]}),
    closed(a={"type": "integer", "default": "3"}),
    closed(a={"type": "integer", "minimum": 5, "examples": [1]}),
    closed(a={"type": "object", "required": ["b"]}),
    closed(a={"type": "object", "required": "b"}),
    closed(a={"type": "object", "additionalProperties": {"type": "string"}}),
    closed(a={"anyOf": [{"type": "string"}]}),
    closed(a={"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    closed(a={"anyOf": [{"type": "string"}, {"anyOf": [{"type": "null"}, {"type": "number"}]}]}),
    {**closed(a={"type": "string"}), "required": ["a", "a"]},
    {**closed(), "required": ["nowhere"]},
    closed(a=DEEP),
    closed(a={"type": "string", "description": "x" * 70_000}),
    closed(**{"": {"type": "string"}}),
    closed(a={"type": "string", "title": 5}),
]


@pytest.mark.parametrize("schema", GOOD)
def test_a_schema_of_the_profile_is_accepted_and_compiles(schema: dict[str, Any]) -> None:
    check_schema(schema)
    assert validator_for(schema).check([]) is not None


@pytest.mark.parametrize("schema", BAD, ids=lambda schema: str(schema)[:60])
def test_a_schema_outside_the_profile_is_refused_by_name(schema: Any) -> None:
    with pytest.raises(SchemaError) as refused:
        check_schema(schema)
    assert 0 < len(str(refused.value)) < 700


SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "maxLength": 8},
        "n": {"type": "integer", "minimum": 3, "maximum": 9},
        "maybe": {"type": ["integer", "null"]},
        "size": {"enum": ["small", "large"]},
        "on": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
        "rows": {
            "type": "array",
            "maxItems": 3,
            "uniqueItems": True,
            "items": {"type": "object", "properties": {"x": {"type": "number"}}},
        },
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    },
}


@pytest.mark.parametrize(
    "value",
    [
        {"id": "a"},
        {"id": "a", "n": 3},
        {"id": "a", "n": 3.0},
        {"id": "a", "maybe": None},
        {"id": "a", "on": "2024-02-29", "at": "2025-03-02T16:15:00Z"},
        {"id": "a", "rows": [{"x": 1}, {"x": 2.5}]},
        {"id": "a", "either": 5},
    ],
)
def test_a_valid_value_has_no_problem(value: Any) -> None:
    assert validator_for(SCHEMA).check(value) is None


@pytest.mark.parametrize(
    ("value", "place", "says"),
    [
        ({}, "top level", "'id' is required"),
        ([], "top level", "expected object, got array"),
        (None, "top level", "got null"),
        ({"id": 5}, "id", "expected string, got integer"),
        ({"id": "a", "n": "3"}, "n", "expected integer, got string"),
        ({"id": "a", "n": True}, "n", "got boolean"),
        ({"id": "a", "n": 3.5}, "n", "expected integer, got number"),
        ({"id": "a", "n": None}, "n", "got null"),
        ({"id": "a", "n": 2}, "n", "minimum of 3"),
        ({"id": "a", "maybe": "1"}, "maybe", "integer"),
        ({"id": "a" * 9}, "id", "longer than 8"),
        ({"id": "a", "size": "medium"}, "size", 'expected one of "small", "large"'),
        ({"id": "a", "on": "2025-02-30"}, "on", "format date"),
        ({"id": "a", "at": "2025-03-02 at noon"}, "at", "format date-time"),
        ({"id": "a", "code": "ABC"}, "code", "^[A-Z]{2}$"),
        ({"id": "a", "rows": [{"x": 1}, {"x": "2"}]}, "rows[1].x", "expected number, got string"),
        ({"id": "a", "rows": [{}, {}]}, "rows", "unique"),
        ({"id": "a", "other": 1}, "top level", "unexpected 'other'"),
        ({"id": "a", "either": []}, "either", "anyOf"),
        ({1: "a"}, "", "no JSON"),
        ({"id": object()}, "", "no JSON"),
    ],
)
def test_a_problem_names_the_place_and_what_was_expected(value: Any, place: str, says: str) -> None:
    problem = validator_for(SCHEMA).check(value)
    assert problem is not None
    assert place in problem
    assert says in problem


def test_a_problem_is_short_and_does_not_echo_the_value() -> None:
    huge = "SECRET" * 10_000
    for value in (
        {"id": huge},
        {"id": "a", "size": huge},
        {"id": "a", "code": huge},
        {"id": "a", "on": huge},
        {"id": "a", "either": [huge]},
        {"id": "a", "rows": [{"x": huge}] * 9},
    ):
        problem = validator_for(SCHEMA).check(value)
        assert problem is not None
        assert len(problem) <= MAX_MESSAGE
        assert "SECRET" not in problem
    names = validator_for(SCHEMA).check({"id": "a", **{f"{'k' * 5000}{i}": 1 for i in range(50)}})
    assert names is not None
    assert len(names) <= MAX_MESSAGE


def test_a_remote_reference_is_never_fetched() -> None:
    with pytest.raises(SchemaError, match="does not compile"):
        Validator({"$ref": "http://127.0.0.1:9/never"})


def test_a_local_reference_works_in_a_validator_though_not_in_the_profile() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"}
    assert Validator(schema).check(5) is None
    assert Validator(schema).check("5") is not None


def test_equal_schemas_share_one_validator() -> None:
    assert validator_for(closed(a={"type": "string"})) is validator_for(
        closed(a={"type": "string"})
    )


def test_a_pattern_made_to_backtrack_answers_at_once() -> None:
    schema = closed(a={"type": "string", "pattern": "^(a+)+$"})
    check_schema(schema)
    assert validator_for(schema).check({"a": "a" * 50_000 + "!"}) is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(json_values)
def test_any_value_is_valid_or_has_a_short_problem(value: Any) -> None:
    problem = validator_for(SCHEMA).check(value)
    assert problem is None or 0 < len(problem) <= MAX_MESSAGE


@given(json_values)
def test_any_schema_is_accepted_or_refused(schema: Any) -> None:
    for candidate in (schema, closed(a=schema)):
        try:
            check_schema(candidate)
        except SchemaError:
            continue
        validator_for(candidate)
