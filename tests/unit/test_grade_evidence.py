"""Which calls solve which sub-task."""

from __future__ import annotations

from typing import Any

import pytest
from graderkit import (
    FIND,
    MOVE,
    OTHER,
    REFUND,
    REFUND_ANSWER,
    REFUND_RUN,
    STOCK,
    Move,
    call,
    changed_task,
    graded,
    labels,
    say,
    solved,
    tea_shop,
)

from astra_mcp.grade import Grade
from astra_mcp.task import Task

REFUND_TASK = tea_shop().task("refund")


def _with(sub_id: str, task: Task = REFUND_TASK, **changes: Any) -> Task:
    raw = [sub.model_dump(mode="json", exclude_unset=True) for sub in task.subtasks]
    return changed_task(
        task, subtasks=[sub | changes if sub["id"] == sub_id else sub for sub in raw]
    )


def _evidence(result: Grade) -> dict[int, list[str]]:
    return {one.index: one.evidence_for for one in result.calls if one.evidence_for}


def test_golden_calls_are_evidence_in_any_order_and_turn() -> None:
    result = graded("refund", [REFUND_RUN[2], REFUND_RUN[1], REFUND_RUN[0]], REFUND_ANSWER)
    assert result.value == 1
    assert _evidence(result) == {0: ["q3"], 1: ["q2"], 2: ["q1"]}


def test_an_argument_is_compared_without_case_and_outer_space() -> None:
    assert solved(graded("refund", [call("find_customer", name=" mira HOLT ")])) == {"q1"}


def test_true_is_not_the_number_one() -> None:
    task = _with("q1", evidence=[[{"tool": "find_customer", "where": {"name": 1}}]])
    assert graded(task, [call("find_customer", name="1")]).evidence_calls == 0
    flagged = _with("q1", evidence=[[{"tool": "find_customer", "where": {"name": True}}]])
    attempt_with_one = [{"call": "find_customer", "args": {"name": 1}}]
    assert graded(flagged, attempt_with_one).evidence_calls == 0


def test_one_is_one_point_zero() -> None:
    assert "q3" in solved(graded("refund", [call("refund_order", order_id="OR-9", amount=48.5)]))
    task = _with("q1", evidence=[[{"tool": "refund_order", "where": {"amount": 5}}]])
    assert "q1" in solved(graded(task, [call("refund_order", order_id="OR-9", amount=5.0)]))


@pytest.mark.parametrize(
    "move",
    [
        pytest.param({"call": "list_orders", "args": {"customer_id": "CU-99"}}, id="failed"),
        pytest.param({**REFUND_RUN[1], "fault": "timeout"}, id="injected fault"),
        pytest.param({"far": "list_orders", "args": {"customer_id": "CU-4"}}, id="other bundle"),
        pytest.param({"call": "list_order", "args": {"customer_id": "CU-4"}}, id="unknown tool"),
        pytest.param(call("list_orders"), id="refused arguments"),
        pytest.param(OTHER, id="other argument"),
    ],
)
def test_no_other_call_is_evidence(move: Move) -> None:
    with_all = (
        _with("q2", evidence=[[{"tool": move.get("call", "list_orders")}]])
        if (move.get("call") == "list_orders" and move is not OTHER)
        else REFUND_TASK
    )
    result = graded(with_all, [FIND, move])
    assert "q2" not in solved(result)
    assert _evidence(result) == {0: ["q1"]}


def test_a_hidden_tool_gives_no_evidence_before_its_turn() -> None:
    move_task = tea_shop().task("move")
    turns = [turn.model_dump(mode="json", exclude_unset=True) for turn in move_task.turns]
    turns[0]["hide"] = ["list_orders"]
    task = changed_task(move_task, turns=turns)
    early = call("list_orders", customer_id="CU-4")
    result = graded(task, [FIND, early, say("which address?", opens="u2"), early])
    assert labels(result)[:2] == ["progress", "premature"]
    assert _evidence(result)[2] == ["q2"]


def test_a_further_argument_is_fine_when_the_expected_value_is_read_from_the_result() -> None:
    narrowed = call("list_orders", customer_id="CU-4", status="delivered")
    assert "q2" in solved(graded("refund", [FIND, narrowed]))
    emptied = call("list_orders", customer_id="CU-4", status="open")
    assert "q2" not in solved(graded("refund", [FIND, emptied]))


def test_a_further_argument_is_not_fine_when_nothing_checks_the_result() -> None:
    task = _with("q2", expect=None)
    assert "q2" in solved(graded(task, [FIND, REFUND_RUN[1]]))
    narrowed = call("list_orders", customer_id="CU-4", status="open")
    assert "q2" not in solved(graded(task, [FIND, narrowed]))


def test_the_call_whose_result_gives_the_expected_value_is_the_evidence() -> None:
    small = call("refund_order", order_id="OR-15", amount=1)
    result = graded("refund", [FIND, REFUND_RUN[1], small, REFUND], REFUND_ANSWER)
    assert "q3" not in solved(result), "the number of the refund is another one now"
    assert result.outcome is False


def test_a_conjunction_needs_all_its_patterns_and_names_all_its_calls() -> None:
    both = [[{"tool": "find_customer"}, {"tool": "get_stock"}]]
    task = _with("q1", evidence=both, expect=None)
    assert "q1" not in solved(graded(task, [FIND]))
    assert "q1" not in solved(graded(task, [STOCK]))
    result = graded(task, [STOCK, FIND])
    assert _evidence(result) == {0: ["q1"], 1: ["q1"]}
    assert [one.credit for one in result.calls] == [0, pytest.approx(1 / 3)]


def test_of_several_conjunctions_the_one_complete_first_is_named() -> None:
    task = _with("q1", evidence=[[{"tool": "get_stock"}], [{"tool": "find_customer"}]])
    assert _evidence(graded(task, [FIND, STOCK])) == {0: ["q1"]}
    assert _evidence(graded(task, [STOCK, FIND])) == {0: ["q1"]}


def test_select_is_compared_with_the_expected_value() -> None:
    def found_by(select: str) -> bool:
        task = _with("q1", evidence=[[{"tool": "find_customer", "select": select}]])
        return "q1" in solved(graded(task, [FIND]))

    assert found_by("result.customer_id")
    assert not found_by("result.city")
    assert not found_by("result.nothing")
    assert found_by("join('-', ['CU', '4'])") is True


def test_an_expression_that_fails_on_a_result_is_not_evidence() -> None:
    select = "max_by(result.orders, &status).id"  # texts, then a missing column: both fail closed
    for expression in (select, "abs(result.city)", "result.city.x.y", "sum(result.city)"):
        task = _with("q1", evidence=[[{"tool": "find_customer", "select": expression}]])
        assert solved(graded(task, [FIND])) == set()


def test_an_expected_expression_that_fails_on_the_attempt_is_not_evidence() -> None:
    orders = REFUND_TASK.subtasks[1].model_dump(mode="json", exclude_unset=True)["expect"]
    expect = orders | {"expr": "max_by(s2.orders[?status=='delivered'], &total).id"}
    task = _with("q2", expect=expect)
    assert "q2" in solved(graded(task, [FIND, REFUND_RUN[1]]))
    emptied = call("list_orders", customer_id="CU-4", status="open")
    assert "q2" not in solved(graded(task, [FIND, emptied]))


def test_one_call_may_solve_two_sub_tasks_and_counts_once() -> None:
    task = _with("q2", evidence=[[{"tool": "find_customer"}]])
    result = graded(task, [FIND, REFUND], REFUND_ANSWER)
    assert _evidence(result) == {0: ["q1", "q2"], 1: ["q3"]}
    assert (result.evidence_calls, result.counted_calls, result.precision) == (2, 2, 1)


def test_a_plan_that_makes_the_same_call_twice_needs_it_twice() -> None:
    raw = REFUND_TASK.model_dump(mode="json", exclude_unset=True)
    twice = {"id": "s4", "tool": "refund_order", "args": {"order_id": "OR-15", "amount": 1}}
    again = twice | {"id": "s5"}
    pays = [{"id": f"q{n}", "ask": "Pay back a pound.", "steps": [f"s{n}"]} for n in (4, 5)]
    task = changed_task(
        REFUND_TASK, plan=[*raw["plan"], twice, again], subtasks=[*raw["subtasks"], *pays]
    )
    pay = call("refund_order", order_id="OR-15", amount=1)
    once = graded(task, [*REFUND_RUN, pay], REFUND_ANSWER)
    assert solved(once) >= {"q3", "q4"}
    assert "q5" not in solved(once)
    assert _evidence(graded(task, [*REFUND_RUN, pay, pay], REFUND_ANSWER))[4] == ["q5"]


def test_a_sub_task_of_two_steps_needs_both() -> None:
    raw = REFUND_TASK.model_dump(mode="json", exclude_unset=True)
    merged = [
        raw["subtasks"][0] | {"steps": ["s1", "s2"]},
        raw["subtasks"][2] | {"after": []},
    ]
    task = changed_task(REFUND_TASK, subtasks=merged)
    assert "q1" not in solved(graded(task, [FIND, REFUND]))
    result = graded(task, [FIND, REFUND_RUN[1]])
    assert _evidence(result) == {0: ["q1"], 1: ["q1"]}
    assert [one.credit for one in result.calls] == [0, 0.5]


def test_work_of_another_task_is_no_evidence() -> None:
    assert graded("refund", [MOVE], REFUND_ANSWER).value == 0


def test_a_pattern_may_bring_its_own_matcher() -> None:
    def found(**match: Any) -> bool:
        pattern = {"tool": "find_customer", "select": "result.customer_id"} | match
        task = _with("q1", evidence=[[pattern]])
        return "q1" in solved(graded(task, [call("find_customer", name="Mira Holm")]))

    assert not found()
    assert found(match={"kind": "regex", "pattern": "CU-[0-9]"})


def _paying_twice(expects: dict[str, Any], evidence: dict[str, Any], **steps: list[str]) -> Task:
    """A task whose plan makes the same refund twice, with these sub-tasks."""
    pay = {"tool": "refund_order", "args": {"order_id": "OR-15", "amount": 1}}
    return changed_task(
        REFUND_TASK,
        plan=[pay | {"id": "s1"}, pay | {"id": "s2"}],
        subtasks=[
            {"id": sub, "ask": "Pay.", "steps": own}
            | ({"expect": expects[sub]} if sub in expects else {})
            | ({"evidence": evidence[sub]} if sub in evidence else {})
            for sub, own in steps.items()
        ],
        answer={"value": "RF-32", "match": {"kind": "exact"}},
    )


PAY = call("refund_order", order_id="OR-15", amount=1)


def test_a_sub_task_of_the_same_call_twice_needs_it_twice() -> None:
    task = _paying_twice({}, {}, q1=["s1", "s2"])
    assert solved(graded(task, [PAY])) == set()
    assert _evidence(graded(task, [PAY, STOCK, PAY])) == {0: ["q1"], 2: ["q1"]}


def test_equal_results_of_two_calls_are_two_calls() -> None:
    look = {"tool": "find_customer", "args": {"name": "Mira Holt"}}
    expect = {
        "value": ["CU-4", "CU-4"],
        "expr": "[s1.customer_id, s2.customer_id]",
        "match": {"kind": "list", "of": {"kind": "exact"}},
    }
    task = changed_task(
        REFUND_TASK,
        plan=[look | {"id": "s1"}, look | {"id": "s2"}],
        subtasks=[{"id": "q1", "ask": "Look.", "steps": ["s1", "s2"], "expect": expect}],
        answer={"value": "RF-31", "match": {"kind": "exact"}},
    )
    assert solved(graded(task, [FIND])) == set()
    assert solved(graded(task, [FIND, FIND])) == {"q1"}


def test_a_call_that_gave_another_result_does_not_hide_a_later_right_one() -> None:
    expect = {"value": "RF-32", "expr": "s2.refund_id", "match": {"kind": "exact"}}
    evidence = {"q1": [[{"tool": "refund_order"}]]}
    task = _paying_twice({"q2": expect}, evidence, q1=["s1"], q2=["s2"])
    assert _evidence(graded(task, [PAY])) == {0: ["q1"]}
    assert _evidence(graded(task, [PAY, PAY])) == {0: ["q1"], 1: ["q2"]}
