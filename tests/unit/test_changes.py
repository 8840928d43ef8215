"""`changes_between` is the inverse of `apply_changes`, whatever changed."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from astra_mcp.world import apply_changes, changes_between

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(0, 2), st.floats(0, 2, width=16), st.sampled_from("ab")
)
ROWS = st.dictionaries(st.sampled_from("xyz"), st.dictionaries(st.just("v"), VALUES), max_size=3)
STATES = st.fixed_dictionaries({"t": ROWS, "u": ROWS})


@given(STATES, STATES)
def test_applying_the_changes_gives_the_last_state_byte_by_byte(first: Any, last: Any) -> None:
    made = apply_changes(first, changes_between(first, last))
    options = orjson.OPT_SORT_KEYS
    assert orjson.dumps(made, option=options) == orjson.dumps(last, option=options)


def test_only_what_changed_is_named() -> None:
    first = {"t": {"a": {"v": 1}, "b": {"v": 1}}, "u": {"c": {"v": 1}}}
    last = {"t": {"a": {"v": 1.0}, "d": {"v": 2}}, "u": {"c": {"v": 1}}}
    assert changes_between(first, last) == {"t": {"a": {"v": 1.0}, "b": None, "d": {"v": 2}}}
    assert changes_between(first, first) == {}
