"""Known ways in which answer checks fail: each is refused here, and its clean twin accepted.

Sources: substring checks of the reference implementation and of WebArena Verified, the Agentic
Benchmark Checklist (arXiv 2507.02825), tau2-bench issue 384, webexercises issue 18, career-ops
issue 2722, BFCL's unordered response checker.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from astra_mcp.errors import BundleError
from astra_mcp.match import Matcher, check_gold, match_text, match_value

MATCHER: TypeAdapter[Matcher] = TypeAdapter(Matcher)


def says(matcher: dict[str, Any], gold: Any, text: str, locale: str = "en") -> bool:
    model = MATCHER.validate_python(matcher)
    check_gold(model, gold)
    return match_text(model, gold, text, locale).ok


NUMBER = {"kind": "number"}


def test_a_number_is_not_found_inside_a_longer_one() -> None:
    assert not says(NUMBER, 1, "Founded in 2021")
    assert not says(NUMBER, 1, "2021")
    assert says(NUMBER, 2021, "Founded in 2021")
    assert says(NUMBER, 1, "1")


def test_a_decimal_comma_is_read_where_it_is_at_home() -> None:
    matcher = {"kind": "number", "abs_tol": 0.005}
    assert says(matcher, 1379.5, "1.379,50 €", "de")
    assert not says(matcher, 1379.5, "1.379,50 €", "en")
    assert not says(matcher, 1379.5, "13.795,0 €", "de")


def test_the_locale_of_a_matcher_wins_over_the_bundles() -> None:
    matcher = {"kind": "number", "abs_tol": 0.005, "locale": "de"}
    assert says(matcher, 1379.5, "1.379,50 €", "en")


def test_an_ambiguous_number_is_not_guessed() -> None:
    assert not says(NUMBER, 1379, "1.379", "en")
    assert says(NUMBER, 1.379, "1.379", "en")
    assert says(NUMBER, 1379, "1.379", "de")
    assert not says(NUMBER, 1.379, "1.379", "de")


def test_the_right_number_in_the_wrong_unit_is_wrong() -> None:
    matcher = {"kind": "number", "abs_tol": 0.01, "unit": "km"}
    assert not says(matcher, 10.64, "10.64 miles")
    assert says(matcher, 10.64, "10.64 km")
    assert says(matcher, 10.64, "6.611 miles")


def test_listing_every_option_is_no_answer() -> None:
    assert not says({"kind": "exact"}, "LPB", "It is CUZ, LPB or MEX")
    assert says({"kind": "exact"}, "LPB", "It is LPB")


def test_a_denied_answer_is_no_answer() -> None:
    assert not says({"kind": "exact"}, "LPB", "It is not LPB")
    assert not says({"kind": "exact"}, "LPB", "It isn't LPB")
    assert says({"kind": "exact"}, "LPB", "It's LPB.")


@pytest.mark.parametrize("gold", ["", None, [], {}, "  "])
def test_an_empty_gold_is_refused_before_it_grades(gold: Any) -> None:
    for kind in ("exact", "number", "date", "time", "bool"):
        with pytest.raises(BundleError):
            check_gold(MATCHER.validate_python({"kind": kind}), gold)
    check_gold(MATCHER.validate_python({"kind": "exact"}), "a")


def test_one_instant_has_many_spellings() -> None:
    matcher = {"kind": "datetime"}
    assert says(matcher, "2025-03-02T16:15", "4:15 PM on March 2, 2025")
    assert says(matcher, "2025-03-02T16:15", "2025-03-02 16:15")
    assert not says(matcher, "2025-03-02T16:15", "4:15 AM on March 2, 2025")


def test_a_set_has_no_order_and_nothing_missing() -> None:
    matcher = {"kind": "set", "of": {"kind": "exact"}}
    assert says(matcher, ["BE", "CH"], "CH and BE")
    assert not says(matcher, ["BE", "CH"], "CH")
    assert not says(matcher, ["BE", "CH"], "CH, BE and DE")


def test_a_value_echoed_inside_a_message_of_a_tool_is_not_that_value() -> None:
    model = MATCHER.validate_python({"kind": "exact"})
    assert not match_value(model, "600", "could not verify 600")
    assert match_value(model, "600", "600")
    number = MATCHER.validate_python(NUMBER)
    assert not match_value(number, 600, "600")
    assert match_value(number, 600, 600.0)
