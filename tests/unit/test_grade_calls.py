"""Which calls count, what they are called, and what they are credited with."""

from __future__ import annotations

from typing import Any

import pytest
from graderkit import (
    ASK,
    FIND,
    MOVE,
    MOVE_ANSWER,
    ORDERS,
    OTHER,
    POLICY,
    REFUND,
    REFUND_ANSWER,
    REFUND_RUN,
    STOCK,
    Move,
    call,
    changed_task,
    golden_run,
    graded,
    labels,
    play,
    tea_shop,
)

from astra_mcp.grade import Grade, grade
from astra_mcp.grade.grounding import Grounds

REFUND_TASK = tea_shop().task("refund")


def faulty(move: Move, kind: str = "unavailable") -> Move:
    return {**move, "fault": kind}


def counted(result: Grade) -> list[bool]:
    return [one.counted for one in result.calls]


class TestCounting:
    def test_a_fault_and_a_retry_that_is_no_evidence_do_not_count(self) -> None:
        result = graded("refund", [faulty(OTHER), OTHER, *REFUND_RUN], REFUND_ANSWER)
        assert counted(result) == [False, False, True, True, True]
        assert result.value == 1

    def test_only_one_retry_is_free(self) -> None:
        result = graded("refund", [faulty(OTHER), OTHER, OTHER, *REFUND_RUN], REFUND_ANSWER)
        assert counted(result)[:3] == [False, False, True]

    def test_a_retry_may_come_later(self) -> None:
        result = graded("refund", [faulty(OTHER), FIND, OTHER], "")
        assert counted(result) == [False, True, False]

    def test_another_argument_is_no_retry(self) -> None:
        result = graded("refund", [faulty(OTHER), call("list_orders", customer_id="CU-9")], "")
        assert counted(result) == [False, True]

    def test_each_of_two_faults_has_its_retry(self) -> None:
        moves = [faulty(OTHER), faulty(OTHER, "timeout"), OTHER, OTHER]
        assert counted(graded("refund", moves, "")) == [False, False, False, True]

    def test_a_retry_that_is_evidence_counts(self) -> None:
        result = graded("refund", [faulty(FIND), FIND], "")
        assert counted(result) == [False, True]
        assert result.evidence_calls == 1

    def test_tolerated_calls_do_not_count_but_failed_ones_do(self) -> None:
        failed = call("get_policy", topic="weather")
        assert counted(graded("refund", [POLICY, failed, POLICY], "")) == [False, True, False]

    def test_a_tolerated_call_that_is_evidence_counts(self) -> None:
        task = changed_task(REFUND_TASK, tolerated=[{"tool": "find_customer"}])
        result = graded(task, [FIND, FIND, ORDERS], "")
        assert counted(result) == [True, False, True]

    @pytest.mark.parametrize(
        ("pattern", "fits"),
        [
            ({"where": {"topic": " Refunds"}}, True),
            ({"where": {"topic": "delivery"}}, False),
            ({"select": "result.text"}, True),
            ({"select": "result.text", "match": {"kind": "regex", "pattern": ".*30 days.*"}}, True),
            ({"select": "result.text", "match": {"kind": "regex", "pattern": "30"}}, False),
            ({"select": "result.text", "match": {"kind": "contains", "all_of": ["days"]}}, True),
            ({"select": "result.text", "match": {"kind": "contains", "all_of": ["year"]}}, False),
            ({"select": "result.text", "match": {"kind": "exact"}}, False),
            ({"select": "result.nothing", "match": {"kind": "regex", "pattern": ".*"}}, False),
            ({"select": "abs(result.text)", "match": {"kind": "regex", "pattern": ".*"}}, False),
        ],
    )
    def test_tolerated_patterns(self, pattern: dict[str, Any], fits: bool) -> None:
        task = changed_task(REFUND_TASK, tolerated=[{"tool": "get_policy"} | pattern])
        assert counted(graded(task, [POLICY], "")) == [not fits]

    def test_calls_of_other_bundles_count_and_are_never_tolerated(self) -> None:
        result = graded("refund", [{"far": "get_policy", "args": {"topic": "refunds"}}], "")
        assert counted(result) == [True]

    def test_failed_calls_earn_nothing(self) -> None:
        """The reference's code gave half a point to a failed call."""
        failed = [call("list_orders", customer_id="CU-99")] * 4
        result = graded("refund", failed, "")
        assert (result.value, result.counted_calls, result.evidence_calls) == (0, 4, 0)
        twin = graded("refund", [FIND, ORDERS], "")
        assert twin.value is not None
        assert twin.value > 0

    def test_a_solved_step_pays_once_however_often_it_is_repeated(self) -> None:
        """The reference counted a sub-task again for every call that showed its answer."""
        result = graded("refund", [FIND] * 4, "")
        once = graded("refund", [FIND], "")
        assert sum(one.credit for one in result.calls) == pytest.approx(1 / 3)
        assert result.recall == once.recall == pytest.approx(1 / 5)
        assert result.value is not None
        assert once.value is not None
        assert result.value < once.value


class TestLabels:
    def test_each_label_once(self) -> None:
        moves = [
            faulty(FIND),
            FIND,
            call("find_client", name="Mira Holt"),
            STOCK,
            {"far": "book_table", "args": {}},
            call("list_orders", customer_id="nobody"),
            ORDERS,
            FIND,
            call("refund_order", order_id="OR-15", amount=1),
            call("list_orders", customer_id="CU-4", status="open"),
        ]
        assert labels(graded("refund", moves, "")) == [
            "fault",
            "progress",
            "unknown_tool",
            "distractor",
            "distractor",
            "invalid",
            "progress",
            "repeat",
            "ungrounded",
            "idle",
        ]

    def test_a_forbidden_tool_is_premature_only_in_its_turn(self) -> None:
        moves = [FIND, ORDERS, MOVE, ASK, MOVE]
        assert labels(graded("move", moves, "")) == [
            "progress",
            "progress",
            "premature",
            "idle",
        ]

    def test_a_failed_distractor_is_a_distractor(self) -> None:
        assert labels(graded("refund", [call("get_stock", tea="Coal")], "")) == ["distractor"]

    def test_evidence_is_progress_even_when_the_tool_is_listed_as_a_distractor(self) -> None:
        task = changed_task(REFUND_TASK, distractors=["find_customer"])
        assert labels(graded(task, [FIND, FIND], "")) == ["progress", "distractor"]

    def test_the_same_call_after_a_write_is_no_repeat(self) -> None:
        write = call("refund_order", order_id="OR-15", amount=1)
        found = labels(graded("refund", [FIND, ORDERS, ORDERS, write, ORDERS], ""))
        assert (found[2], found[4]) == ("repeat", "idle")

    def test_the_retry_of_a_fault_is_no_repeat(self) -> None:
        assert labels(graded("refund", [faulty(POLICY), POLICY, POLICY], ""))[1:] == [
            "idle",
            "repeat",
        ]

    def test_repeating_a_failed_call_is_invalid_not_repeat(self) -> None:
        failed = call("list_orders", customer_id="CU-99")
        assert labels(graded("refund", [failed, failed], "")) == ["invalid", "invalid"]

    def test_without_a_manifest_nothing_is_ungrounded_and_the_numbers_are_the_same(self) -> None:
        bundle = tea_shop()
        moves = [call("find_customer", name="Mira Holm"), *REFUND_RUN]
        attempt = play(bundle, REFUND_TASK, moves, REFUND_ANSWER)
        golden = golden_run(bundle, REFUND_TASK)
        bare = grade(REFUND_TASK, golden, attempt, bundle.state)
        full = grade(REFUND_TASK, golden, attempt, bundle.state, manifest=bundle.manifest)
        assert (labels(bare)[0], labels(full)[0]) == ("idle", "ungrounded")
        assert bare.summary() == full.summary()


class TestGrounding:
    """Two refunds of OR-15 make a call that is no evidence; its arguments are what matters."""

    @staticmethod
    def _label(say: str, **args: Any) -> str:
        turns = [{"id": "u1", "say": say}]
        tools = {"order_id": "refund_order", "name": "find_customer", "address": "change_address"}
        tool = next(tools[name] for name in args)
        others: dict[str, dict[str, Any]] = {
            "refund_order": {"amount": 1},
            "change_address": {"order_id": "OR-15"},
        }
        given = others.get(tool, {})
        task = changed_task(REFUND_TASK, turns=turns)
        return labels(graded(task, [OTHER, call(tool, **(given | args))], ""))[1]

    def test_what_the_user_said(self) -> None:
        assert self._label("Who is ada pemberton?", name="Ada  Pemberton") == "invalid"
        assert self._label("We moved to 12 Long Row.", address="12 long row") == "idle"
        assert self._label("We moved to Long Row 12.", address="12 Long Row") == "idle"
        assert self._label("We moved.", address="12 Long Row") == "ungrounded"

    def test_what_a_result_said(self) -> None:
        assert self._label("Pay back what she paid.", order_id="OR-15", amount=7.25) == "idle"
        assert self._label("Pay back what she paid.", order_id="OR-15", amount=6.25) == "ungrounded"
        assert self._label("Pay back 6.25 pounds.", order_id="OR-15", amount=6.25) == "idle"

    def test_small_numbers_need_no_source_and_separators_are_read_both_ways(self) -> None:
        assert self._label("Pay a bit back.", order_id="OR-15", amount=3) == "idle"

    def test_texts_of_two_characters_need_no_source(self) -> None:
        raw = REFUND_TASK.model_dump(mode="json", exclude_unset=True)
        task = changed_task(REFUND_TASK, turns=[raw["turns"][0] | {"say": "Go."}])
        calls = [{"far": "search", "args": {"unit": "mg"}}, {"far": "search", "args": {"x": "mgx"}}]
        assert labels(graded(task, calls, "")) == ["distractor", "distractor"]
        assert Grounds(task, golden_run(tea_shop(), task), tea_shop().manifest).has(
            play(tea_shop(), task, calls[:1]).calls[0]
        )
        assert not Grounds(task, golden_run(tea_shop(), task), tea_shop().manifest).has(
            play(tea_shop(), task, calls[1:]).calls[0]
        )

    @pytest.mark.parametrize(
        ("said", "typed", "label"),
        [
            ("Come in May.", "2025-05-16", "ungrounded"),
            ("There are 16 of us.", "2025-05-16", "ungrounded"),
            ("Come on 16 May 2025.", "2025-05-16", "idle"),
            ("Come on May 16.", "2025-05-16", "idle"),
            ("Come on 16/5.", "2025-05-16", "idle"),
            ("Come in summer.", "2025-05-16", "ungrounded"),
            ("Come tomorrow.", "2025-03-13", "idle"),
            ("Come at half past.", "19:30", "ungrounded"),
            ("Come at 7:30 pm.", "19:30", "idle"),
            ("Come at 7 pm.", "19:00", "idle"),
            ("Come on 16 May at 7.30 pm.", "2025-05-16T19:30", "idle"),
            ("Come on 16 May.", "2025-05-16T19:30", "ungrounded"),
        ],
    )
    def test_dates_and_times(self, said: str, typed: str, label: str) -> None:
        assert self._label(said, address=typed) == label

    def test_what_the_plan_says_is_worked_out(self) -> None:
        raw = REFUND_TASK.model_dump(mode="json", exclude_unset=True)
        plan = [
            step | {"reasoned": ["name"]} if step["id"] == "s1" else step for step in raw["plan"]
        ]
        twice = [FIND, call("refund_order", order_id="OR-15", amount=1), FIND]
        turns = [{"id": "u1", "say": "Pay OR-15 back a pound."}]
        assert labels(graded(changed_task(REFUND_TASK, turns=turns), twice, ""))[2] == "ungrounded"
        reasoned = changed_task(REFUND_TASK, turns=turns, plan=plan)
        assert labels(graded(reasoned, twice, ""))[2] == "idle"


class TestCredit:
    def test_it_is_earned_when_a_sub_task_is_complete(self) -> None:
        result = graded("refund", [STOCK, FIND, STOCK, ORDERS, REFUND], REFUND_ANSWER)
        third = pytest.approx(1 / 3)
        assert [one.credit for one in result.calls] == [0, third, 0, third, third]

    def test_there_is_none_without_call_sub_tasks(self) -> None:
        assert [one.credit for one in graded("refuse", [FIND], "ANSWER: no").calls] == [0]

    def test_a_premature_call_that_is_evidence_has_credit(self) -> None:
        result = graded("move", [FIND, ORDERS, MOVE, ASK], MOVE_ANSWER)
        assert result.calls[2].label == "premature"
        assert result.calls[2].evidence_for == ["q4"]
        assert result.calls[2].credit == pytest.approx(1 / 3)
