"""Where the answer is in a message, and which texts look the same."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra_mcp.match import answer_slot
from astra_mcp.match.slot import fold


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        ("42", "42"),
        ("  42. ", "42"),
        ("ANSWER: 42", "42"),
        ("answer : 42", "42"),
        ("Answer：42", "42"),
        ("**ANSWER:** 42", "42"),
        ("**ANSWER: 42**", "42"),
        ("**ANSWER**: 42", "42"),
        ("**Final Answer:** **42**", "42"),
        ("`ANSWER: 42`", "42"),
        ("# Answer: 42", "42"),
        ("答案：42。", "42"),
        ("最终答案: 42", "42"),
        ("ANSWER: 41\nNo, wait.\nANSWER: 42", "42"),
        ("ANSWER:\n42\n", "42"),
        ("ANSWER: `42`", "42"),
        ("ANSWER: ```\n42\n```", "42"),
        ("ANSWER: ```json\n[1]\n```", "[1]"),
        ("ANSWER: $\\boxed{42}$", "42"),
        ("- 42 apples", "- 42 apples"),
        ("- apples", "apples"),
        ("* apples", "apples"),
        ("a_b_c", "a_b_c"),
        ("ANSWER: - a\n- b", "- a\n- b"),
        ("and so on...", "and so on..."),
        ("the reanswer: 42", "the reanswer: 42"),
        ("", ""),
        ("ANSWER:", ""),
        ("ANSWER: 4\u200b2", "42"),
    ],
)
def test_the_slot_is_what_follows_the_last_marker_without_its_markup(text: str, slot: str) -> None:
    assert answer_slot(text) == slot


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("１６：２０", "16:20"),
        ("١٦", "16"),
        ("L\u200bP\ufeffB", "LPB"),
        ("“x” – ‘y’", "\"x\" - 'y'"),
        ("a\u00a0\u202fb", "a b"),
        ("𝟒𝟐", "42"),
        ("e\u0301", "é"),
    ],
)
def test_texts_that_look_the_same_fold_to_one(a: str, b: str) -> None:
    assert fold(a) == b


@pytest.mark.parametrize("text", ["10²", "5₂", "½", "1½", "①", "⒈", "2⁄3"])
def test_what_changes_a_value_is_not_folded_into_digits(text: str) -> None:
    assert fold(text) == text


@given(st.text(max_size=300))
def test_slots_and_folds_are_stable(text: str) -> None:
    slot = answer_slot(text)
    assert answer_slot(slot) == slot
    folded = fold(text)
    assert fold(folded) == folded
    assert not any(unicodedata.category(char) == "Nd" and not char.isascii() for char in folded)
