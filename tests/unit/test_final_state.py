"""The end state: rows exist exactly n times and nothing else is changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from astra_mcp.grade.final_state import holds, holds_from_the_start
from astra_mcp.task import FinalState

START: dict[str, dict[str, dict[str, Any]]] = {
    "accounts": {
        "A": {"id": "A", "balance": 100, "frozen": False},
        "B": {"id": "B", "balance": 20.0, "frozen": False},
    },
    "transfers": {"T1": {"id": "T1", "to": "Ann", "amount": 5}},
    "log": {"L1": {"id": "L1", "reads": 0}},
}
PAID = {
    "rows": [
        {"table": "accounts", "where": {"id": "A", "balance": 90}},
        {"table": "transfers", "where": {"to": "Bob", "amount": 10}},
    ]
}


def _end(**tables: dict[str, Any]) -> dict[str, Any]:
    """The start with rows merged in; None removes a row."""
    state = copy.deepcopy(START)
    for table, rows in tables.items():
        for row_id, row in rows.items():
            if row is None:
                del state[table][row_id]
            else:
                merged = state.setdefault(table, {}).get(row_id, {}) | row
                state[table][row_id] = merged
    return state


def _paid(**more: dict[str, Any]) -> dict[str, Any]:
    base: dict[str, dict[str, Any]] = {
        "accounts": {"A": {"balance": 90}},
        "transfers": {"T2": {"id": "T2", "to": "Bob", "amount": 10}},
    }
    tables = {t: base.get(t, {}) | more.get(t, {}) for t in {*base, *more}}
    return _end(**tables)


def _holds(check: dict[str, Any], end: dict[str, Any]) -> bool:
    return holds(FinalState.model_validate(check), START, end)


def test_what_was_asked_for_holds() -> None:
    assert _holds(PAID, _paid())


def test_the_start_does_not_hold() -> None:
    assert not _holds(PAID, START)
    assert not holds_from_the_start(FinalState.model_validate(PAID), START)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(
            _paid(accounts={"A": {"balance": 90}, "B": {"balance": 1}}),
            id="another row changed",
        ),
        pytest.param(
            _paid(accounts={"A": {"balance": 90, "frozen": True}}),
            id="a column changed that the check does not name",
        ),
        pytest.param(_paid(accounts={"A": {"balance": 90, "note": "x"}}), id="a column more"),
        pytest.param(
            _paid(transfers={"T3": {"id": "T3", "to": "Eve", "amount": 1}}), id="a stray row added"
        ),
        pytest.param(
            _paid(transfers={"T3": {"id": "T3", "to": "Bob", "amount": 10}}), id="done twice"
        ),
        pytest.param(_paid(transfers={"T1": None}), id="a row removed"),
        pytest.param(_paid(extra={"X": {"id": "X"}}), id="a row in a new table"),
        pytest.param(_paid(log={"L1": {"reads": 1}}), id="a counter moved"),
        pytest.param(_end(accounts={"A": {"balance": 90}}), id="half done"),
    ],
)
def test_anything_else_does_not_hold(end: dict[str, Any]) -> None:
    assert not _holds(PAID, end)


def test_a_column_lost_is_a_change() -> None:
    end = _paid()
    del end["accounts"]["A"]["frozen"]
    assert not _holds(PAID, end)
    end = _paid()
    del end["accounts"]["B"]["frozen"]
    assert not _holds(PAID, end)


def test_texts_that_the_agent_typed_are_compared_without_case() -> None:
    assert _holds(PAID, _paid(transfers={"T2": {"id": "T2", "to": " bob", "amount": 10.0}}))


def test_what_must_not_change_is_compared_exactly() -> None:
    assert not _holds(
        PAID, _paid(transfers={"T1": {"to": "ann"}, "T2": {"to": "Bob", "amount": 10}})
    )
    assert _holds(PAID, _paid(accounts={"A": {"balance": 90}, "B": {"balance": 20}}))


def test_true_is_not_one() -> None:
    check = {"rows": [{"table": "log", "where": {"reads": False}}]}
    assert not _holds(check, START)


def test_removing_needs_a_check_with_count_zero() -> None:
    gone = _end(transfers={"T1": None})
    assert _holds({"rows": [{"table": "transfers", "where": {"id": "T1"}, "count": 0}]}, gone)
    assert not _holds({"rows": [{"table": "transfers", "where": {"id": "T9"}, "count": 0}]}, gone)
    assert not _holds({"rows": [{"table": "accounts", "where": {"id": "A"}}]}, gone)


def test_one_of_two_rows_may_not_go_although_the_count_is_right() -> None:
    start = _end(transfers={"T2": {"id": "T2", "to": "Ann", "amount": 5}})
    check = FinalState.model_validate({"rows": [{"table": "transfers", "where": {"to": "Ann"}}]})
    assert not holds(check, start, START)


def test_count_zero_forbids_the_row() -> None:
    check = {"rows": [{"table": "transfers", "where": {"to": "Ann"}, "count": 0}]}
    assert not _holds(check, START)


def test_ignoring_a_table_or_a_column() -> None:
    counted = _paid(log={"L1": {"reads": 1}})
    assert _holds(PAID | {"ignore": ["log"]}, counted)
    assert _holds(PAID | {"ignore": ["log.reads"]}, counted)
    assert not _holds(PAID | {"ignore": ["log.id", "accounts.reads"]}, counted)
    assert not _holds(PAID | {"ignore": ["log.reads"]}, _paid(log={"L2": {"reads": 1}}))


def test_others_may_be_allowed_to_change() -> None:
    check = PAID | {"others_unchanged": False}
    assert _holds(check, _paid(accounts={"A": {"balance": 90}, "B": {"balance": 1}}))
    assert not _holds(check, _end(accounts={"A": {"balance": 90}}))


def test_more_than_one_row_can_be_asked_for() -> None:
    twice = {"rows": [{"table": "transfers", "where": {"to": "Bob"}, "count": 2}]}
    row = {"to": "Bob", "amount": 1}
    assert not _holds(twice, _end(transfers={"T2": row}))
    assert _holds(twice, _end(transfers={"T2": row, "T3": row}))
    assert not _holds(twice, _end(transfers={"T2": row, "T3": row, "T4": row}))


def test_nothing_changed_holds_from_the_start() -> None:
    assert holds_from_the_start(FinalState(), START)
    assert not _holds({}, _paid())


def test_a_swap_that_leaves_counts_right_is_still_a_change() -> None:
    moved = _end(accounts={"A": {"balance": 20.0}, "B": {"balance": 100}})
    check = {"rows": [{"table": "accounts", "where": {"balance": 100}}]}
    assert not _holds(check, moved)
