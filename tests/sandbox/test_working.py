"""The worker's copy and the host's copy of the state never differ."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astra_mcp.sandbox.working import StateBreach, WorkingState

Json = Any
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
ROWS = st.dictionaries(st.text(max_size=3), VALUES, max_size=3)
TABLES = st.dictionaries(st.sampled_from("abcd"), ROWS, max_size=4)
STATES = st.fixed_dictionaries({"one": TABLES, "two": TABLES})
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "drop", "column", "alias", "reorder", "rebuild"]),
        st.sampled_from(["one", "two"]),
        st.sampled_from("abcdxy"),
        ROWS,
    ),
    max_size=6,
)


def _edit(state: dict[str, Any], edit: tuple[str, str, str, Json]) -> None:
    """One thing that a tool may do."""
    kind, table, row, value = edit
    rows = state[table]
    if kind == "set":
        rows[row] = value
    elif kind == "drop":
        rows.pop(row, None)
    elif kind == "column" and row in rows:
        rows[row]["column"] = value
    elif kind == "alias" and row in rows:
        state["two"]["alias"] = rows[row]
    elif kind == "reorder" and row in rows:
        rows[row] = rows.pop(row)
    elif kind == "rebuild":
        state[table] = dict(sorted(rows.items(), reverse=True))


def _apply(state: dict[str, Any], changes: Json) -> None:
    """What the host does with a reply."""
    for table, rows in changes.items():
        for row_id, row in rows.items():
            if row is None:
                state[table].pop(row_id, None)
            else:
                state[table][row_id] = row


@settings(max_examples=60, deadline=None)
@given(STATES, st.lists(EDITS, max_size=4))
def test_applying_the_changes_gives_the_same_state_byte_for_byte(
    start: dict[str, Any], calls: list[list[Any]]
) -> None:
    host = copy.deepcopy(start)
    working = WorkingState(json.loads(json.dumps(start)))
    for edits in calls:
        for edit in edits:
            _edit(working.live, copy.deepcopy(edit))
        tool_saw = json.dumps(working.live, sort_keys=True)
        changes = json.loads(json.dumps(working.changes()))
        working.commit(working.changes())
        _apply(host, changes)
        assert json.dumps(host) == json.dumps(working.live)
        assert json.dumps(host, sort_keys=True) == tool_saw


@settings(max_examples=40, deadline=None)
@given(STATES, EDITS)
def test_reload_undoes_everything(start: dict[str, Any], edits: list[Any]) -> None:
    working = WorkingState(json.loads(json.dumps(start)))
    for edit in edits:
        _edit(working.live, edit)
    working.reload()
    assert json.dumps(working.live) == json.dumps(start)
    assert working.changes() == {}
    assert not working.touched


def test_only_what_differs_is_reported() -> None:
    working = WorkingState({"t": {"a": {"x": 1, "y": 2}, "b": {"x": 1}, "c": {}}})
    working.live["t"]["a"] = {"y": 2, "x": 1}
    working.live["t"]["b"]["x"] = 1.0
    working.live["t"]["c"]["new"] = None
    assert working.changes() == {"t": {"b": {"x": 1.0}, "c": {"new": None}}}
    assert working.touched


def test_equal_values_of_other_types_are_changes() -> None:
    working = WorkingState({"t": {"a": {"x": 1}}})
    for value in (1.0, True):
        working.live["t"]["a"]["x"] = value
        assert working.changes() == {"t": {"a": {"x": value}}}


def test_an_alias_between_rows_ends_with_the_call() -> None:
    working = WorkingState({"t": {"a": {"tags": ["x"]}, "b": {"tags": ["x"]}}})
    working.live["t"]["b"]["tags"] = working.live["t"]["a"]["tags"]
    working.commit(working.changes())
    working.live["t"]["a"]["tags"].append("y")
    assert working.changes() == {"t": {"a": {"tags": ["x", "y"]}}}


@pytest.mark.parametrize(
    "value", [object(), b"x", (1,), {1}, 1j, float("nan"), 2**60, {1: 2}, ..., int]
)
def test_what_is_no_json_is_a_breach(value: object) -> None:
    working = WorkingState({"t": {"a": {"x": 1}}})
    working.live["t"]["a"]["x"] = value
    with pytest.raises(StateBreach):
        working.changes()
    working.reload()
    assert working.live == {"t": {"a": {"x": 1}}}


def test_depth_and_cycles_are_a_breach() -> None:
    working = WorkingState({"t": {"a": {}}})
    deep: dict[str, Any] = {}
    deep["self"] = deep
    working.live["t"]["a"] = deep
    with pytest.raises(StateBreach):
        working.changes()
    working.reload()
    row: dict[str, Any] = {}
    for _ in range(100):
        row = {"in": row}
    working.live["t"]["a"] = row
    with pytest.raises(StateBreach, match="nesting"):
        working.changes()
