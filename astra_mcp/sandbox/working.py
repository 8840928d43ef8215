"""The worker's working copy of the state, and what a call changed in it.

Invariant: after `commit` and after `reload` the copy is exactly what the host's copy is once it
applied the reported changes, key order included, and shares no object with anything a tool could
have kept. So one long-lived worker and a fresh one answer alike. Comparing is by `marshal` bytes,
which for plain JSON values are deterministic and an order of magnitude faster than walking.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping
from typing import Any

from astra_mcp.sandbox.wire import json_fault

Json = Any
Changes = dict[str, dict[str, Json]]
_PLAIN = 2  # marshal version without back references: equal values, equal bytes


class StateBreach(Exception):
    """A tool left the state in a form that no state may have; says which, names no value."""


class WorkingState:
    """A state `{table: {row id: row}}` that tools work on, with a baseline to compare with."""

    def __init__(self, state: Mapping[str, Mapping[str, Json]]) -> None:
        self.live: dict[str, Any] = {name: dict(rows) for name, rows in state.items()}
        self._baseline = {name: marshal.dumps(rows, _PLAIN) for name, rows in self.live.items()}
        self._names = list(self._baseline)
        self._rows: dict[str, dict[str, bytes]] = {}
        self.touched = False
        """Whether the last comparison saw any difference, were it only in the order of keys."""

    def changes(self) -> Changes:
        """Rows that differ from the baseline, by table; a removed row is None.

        Raises:
            StateBreach: tables were added or removed, or a value is no JSON row.
        """
        names = list(self.live)
        self.touched = names != self._names
        if self.touched and set(names) != set(self._names):
            raise StateBreach("the tool added or removed a table of the state")
        found: Changes = {}
        for name, before in self._baseline.items():
            rows = self.live[name]
            if type(rows) is not dict:
                raise StateBreach("the tool replaced a table of the state by something else")
            if _packed(rows) == before:
                continue
            self.touched = True
            if name not in self._rows:
                self._rows[name] = {k: _packed(row) for k, row in marshal.loads(before).items()}
            if changed := _diff(self._rows[name], rows):
                found[name] = changed
        return found

    def commit(self, changes: Changes) -> None:
        """Make baseline and `live` what the host's copy becomes by `changes`."""
        self.reload()
        for name, rows in changes.items():
            table, packed = self.live[name], self._rows[name]
            for row_id, row in rows.items():
                if row is None:
                    table.pop(row_id, None)
                    packed.pop(row_id, None)
                else:
                    table[row_id] = row
                    packed[row_id] = _packed(row)
            self._baseline[name] = _packed(table)

    def reload(self) -> None:
        """Make `live` the baseline in fresh objects: nothing aliases, nothing is remembered."""
        self.live = {name: marshal.loads(rows) for name, rows in self._baseline.items()}


def _packed(rows: Json) -> bytes:
    try:
        return marshal.dumps(rows, _PLAIN)
    except ValueError:
        raise StateBreach("the tool put a value into the state that is no JSON") from None


def _diff(before: Mapping[str, bytes], after: Mapping[str, Json]) -> dict[str, Json]:
    """Rows of `after` that differ in more than the order of their keys; removed ones as None."""
    changed: dict[str, Json] = {row_id: None for row_id in before if row_id not in after}
    for row_id, row in after.items():
        packed, old = _packed(row), before.get(row_id)
        if packed == old:
            continue
        if type(row_id) is not str or type(row) is not dict:
            raise StateBreach(
                "the tool put a row into the state that is no object with a string id"
            )
        if (fault := _row_fault(row)) is not None:
            raise StateBreach(f"the tool put a value into the state that is no JSON: {fault}")
        if old is None or _sorted(marshal.loads(old)) != _sorted(row):
            changed[row_id] = marshal.loads(packed)
    return changed


def _row_fault(row: Json) -> str | None:
    """Why a row that marshal can pack is no JSON object; what it packs are exact built-in types."""
    level: list[Json] = [row]
    while level:
        kinds = {type(item) for item in level}
        if extra := kinds - {dict, list, str, int, float, bool, type(None)}:
            return f"a {sorted(kind.__name__ for kind in extra)[0]}"
        level = [
            child
            for item in level
            if type(item) in (dict, list)
            for child in (item.values() if type(item) is dict else item)
        ]
    return json_fault(row)


def _sorted(row: Json) -> str:
    try:
        return json.dumps(row, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError):
        raise StateBreach("the tool put a number into the state that is not finite") from None
