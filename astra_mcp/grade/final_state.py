"""The end state: named rows exist exactly n times and, by default, nothing else is changed.

Pure. Named values are compared like arguments (`same`); what must not change is compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from astra_mcp.grade.equality import json_key, same
from astra_mcp.task import FinalState, RowCheck

Json = Any
Row = Mapping[str, Json]
State = Mapping[str, Mapping[str, Row]]


def holds(check: FinalState, initial: State, final: State) -> bool:
    """Whether `final` is a right end of an attempt that began with `initial`."""
    return rows_hold(check, final) and (
        not check.others_unchanged or not _stray_changes(check, initial, final)
    )


def rows_hold(check: FinalState, state: State) -> bool:
    """Whether every named row exists exactly as often as it should."""
    return all(_count(row, state) == row.count for row in check.rows)


def holds_from_the_start(check: FinalState, initial: State) -> bool:
    """Whether an agent that does nothing has this end state."""
    return holds(check, initial, initial)


def _count(check: RowCheck, state: State) -> int:
    return sum(_fits(check, row) for row in state.get(check.table, {}).values())


def _fits(check: RowCheck, row: Row) -> bool:
    return all(name in row and same(row[name], want) for name, want in check.where.items())


def _stray_changes(check: FinalState, initial: State, final: State) -> list[str]:
    """Tables with a changed row that no check asks for."""
    tables = [t for t in sorted({*initial, *final}) if t not in check.ignore]
    return [t for t in tables if _strays(check, t, initial.get(t, {}), final.get(t, {}))]


def _strays(
    check: FinalState, table: str, before: Mapping[str, Row], after: Mapping[str, Row]
) -> bool:
    checks = [row for row in check.rows if row.table == table]
    ignored = {i.split(".", 1)[1] for i in check.ignore if i.startswith(f"{table}.")}
    return any(
        not _allowed(checks, ignored, before.get(row_id), after.get(row_id))
        for row_id in {*before, *after}
    )


def _allowed(
    checks: list[RowCheck], ignored: set[str], before: Row | None, after: Row | None
) -> bool:
    """Whether a check asks for this change; no row that is left fits a check with count 0."""
    if before is None and after is not None:
        return any(_fits(c, after) for c in checks)
    if before is not None and after is None:
        return any(c.count == 0 and _fits(c, before) for c in checks)
    assert before is not None
    assert after is not None
    changed = _changed_columns(before, after) - ignored
    return not changed or any(_fits(c, after) and changed <= c.where.keys() for c in checks)


def _changed_columns(before: Row, after: Row) -> set[str]:
    return {
        name
        for name in {*before, *after}
        if name not in before
        or name not in after
        or json_key(before[name]) != json_key(after[name])
    }
