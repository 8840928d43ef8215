"""The grade as a whole: null, refusals, secrecy, and properties that no attempt may break."""

from __future__ import annotations

from typing import Any

import pytest
from graderkit import (
    ASK,
    FIND,
    MOVE,
    ORDERS,
    OTHER,
    POLICY,
    REFUND,
    REFUND_ANSWER,
    REFUND_RUN,
    STOCK,
    Move,
    call,
    golden_run,
    graded,
    play,
    solved,
    tea_shop,
)
from hypothesis import given
from hypothesis import strategies as st

from astra_mcp.attempt import Attempt
from astra_mcp.errors import ReplayError
from astra_mcp.grade import Grade, grade, no_grade

BUNDLE = tea_shop()
TASKS = [task.id for task in BUNDLE.sealed.tasks]
IDLE: list[Move] = [
    STOCK,
    OTHER,
    POLICY,
    call("find_customer", name="Nobody"),
    call("no_such_tool"),
    {"far": "book_table", "args": {}},
]
USEFUL: list[Move] = [FIND, ORDERS, REFUND, MOVE, {**FIND, "fault": "timeout"}, ASK]
ANSWERS = st.sampled_from([None, "", REFUND_ANSWER, "ANSWER: CH-1210", "ANSWER: no", "ANSWER: x"])


def attempts(task: str) -> st.SearchStrategy[list[Move]]:
    """Moves in any order; the second turn is opened at most once and only where there is one."""
    pool = IDLE + [move for move in USEFUL if move is not ASK]
    moves = st.lists(st.sampled_from(pool), max_size=7)
    if len(BUNDLE.task(task).turns) < 2:
        return moves
    at = st.none() | st.integers(0, 7)
    return st.builds(lambda m, i: m if i is None else [*m[:i], ASK, *m[i:]], moves, at)


def value(result: Grade) -> float:
    assert result.value is not None
    return result.value


def credit(result: Grade) -> float:
    return sum(one.credit for one in result.calls)


class TestNull:
    def test_a_reward_that_cannot_be_computed_is_null_with_a_reason(self) -> None:
        """The reference scored 1.0 when a judge failed; a failure must not be a number."""
        result = no_grade("the judge did not answer")
        assert result.value is None
        assert result.reason == "the judge did not answer"
        assert result.summary() == {
            "value": None,
            "f1": None,
            "recall": None,
            "precision": None,
            "outcome": None,
            "paper_f1": None,
            "reason": "the judge did not answer",
        }

    def test_its_clean_twin_is_a_number(self) -> None:
        assert graded("refund", REFUND_RUN, REFUND_ANSWER).value == 1

    def test_it_comes_back_from_json(self) -> None:
        for result in (no_grade("x"), graded("refund", REFUND_RUN, REFUND_ANSWER)):
            assert Grade.model_validate_json(result.model_dump_json()) == result


class TestGolden:
    def _grade(self, **changes: Any) -> Grade:
        task = BUNDLE.task("refund")
        golden = golden_run(BUNDLE, task).model_copy(update=changes)
        digest = BUNDLE.digest
        attempt = play(BUNDLE, task, REFUND_RUN, REFUND_ANSWER)
        return grade(task, golden, attempt, BUNDLE.state, digest=digest)

    def test_the_full_name_of_the_task_is_fine(self) -> None:
        assert self._grade(task="tea-shop@1.0.0#refund").value == 1

    def test_of_another_task_is_refused(self) -> None:
        with pytest.raises(ReplayError, match="is of task move"):
            self._grade(task="move")

    def test_of_another_bundle_is_refused(self) -> None:
        with pytest.raises(ReplayError, match="another bundle"):
            self._grade(digest="sha256:0")

    def test_without_a_step_is_refused(self) -> None:
        steps = golden_run(BUNDLE, BUNDLE.task("refund")).steps
        with pytest.raises(ReplayError, match="lacks step s3"):
            self._grade(steps=steps[:2])
        with pytest.raises(ReplayError, match="lacks step s2"):
            self._grade(steps=[steps[0], steps[1].model_copy(update={"tool": "x"}), steps[2]])


def test_a_grade_quotes_no_expected_value() -> None:
    for moves in ([], [FIND], [FIND, ORDERS, STOCK], REFUND_RUN, [*REFUND_RUN, MOVE]):
        for answer in (None, "", "ANSWER: RF-30", "ANSWER: RF-31 or RF-30", REFUND_ANSWER):
            said = graded("refund", moves, answer).model_dump_json()
            for gold in ("RF-31", "OR-9", "CU-4", "48.5", "Mira"):
                assert gold not in said


def test_grading_is_deterministic_and_changes_nothing() -> None:
    task = BUNDLE.task("refund")
    golden, attempt = golden_run(BUNDLE, task), play(BUNDLE, task, REFUND_RUN, REFUND_ANSWER)
    before = (task.model_dump_json(), golden.model_dump_json(), attempt.model_dump_json())
    first = grade(task, golden, attempt, BUNDLE.state, manifest=BUNDLE.manifest)
    assert grade(task, golden, attempt, BUNDLE.state, manifest=BUNDLE.manifest) == first
    assert before == (task.model_dump_json(), golden.model_dump_json(), attempt.model_dump_json())


STRANGE: list[Any] = [None, [], "x", 7, 10**400, -1.5, {"orders": None}, {"orders": [1, None]}]


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: str(value)[:20])
def test_strange_records_are_graded_and_do_not_break_the_grader(strange: Any) -> None:
    task = BUNDLE.task("refund")
    good = play(BUNDLE, task, REFUND_RUN, REFUND_ANSWER)
    for args in (*STRANGE, {"name": strange}, good.calls[1].args):
        changes = {"result": strange, "args": args}
        calls = [one.model_copy(update=changes) for one in good.calls]
        attempt = good.model_copy(update={"calls": calls, "final_state": {}})
        result = grade(
            task, golden_run(BUNDLE, task), attempt, BUNDLE.state, manifest=BUNDLE.manifest
        )
        assert solved(result) == {"answer"}
        assert result.value == 0


def test_arguments_nested_without_end_cost_the_agent_and_not_the_grader() -> None:
    deep: Any = "x"
    for _ in range(20_000):
        deep = [deep]
    task = BUNDLE.task("refund")
    good = play(BUNDLE, task, [*REFUND_RUN, OTHER, OTHER], REFUND_ANSWER)
    calls = [
        *good.calls[:3],
        *(one.model_copy(update={"args": {"x": deep}}) for one in good.calls[3:]),
    ]
    attempt = good.model_copy(update={"calls": calls})
    golden = golden_run(BUNDLE, task)
    result = grade(task, golden, attempt, BUNDLE.state, manifest=BUNDLE.manifest)
    assert result.recall == 1
    assert result.precision == 3 / 5


@given(task=st.sampled_from(TASKS), data=st.data(), answer=ANSWERS)
def test_every_number_is_within_its_bounds(
    task: str, data: st.DataObject, answer: str | None
) -> None:
    result = graded(task, data.draw(attempts(task)), answer)
    assert result.recall is not None
    assert result.precision is not None
    for number in (value(result), result.recall, result.precision, result.paper_f1 or 0.0):
        assert 0 <= number <= 1
    assert result.outcome == (result.recall == 1)
    assert all(one.credit >= 0 for one in result.calls)
    kinds = [item.solved for item in result.items if item.kind == "call"]
    assert credit(result) == pytest.approx(sum(kinds) / max(1, len(kinds)))
    assert result.evidence_calls <= result.counted_calls <= len(result.calls)
    assert {one.index for one in result.calls if one.evidence_for} <= {
        one.index for one in result.calls if one.counted
    }


@given(
    task=st.sampled_from(TASKS),
    data=st.data(),
    answer=ANSWERS,
    idle=st.sampled_from([move for move in IDLE if move is not POLICY]),
)
def test_an_idle_call_never_pays(
    task: str, data: st.DataObject, answer: str | None, idle: Move
) -> None:
    moves = data.draw(attempts(task))
    at = data.draw(st.integers(0, len(moves)))
    before, after = (
        graded(task, moves, answer),
        graded(task, [*moves[:at], idle, *moves[at:]], answer),
    )
    assert value(after) <= value(before)
    assert credit(after) == pytest.approx(credit(before))
    assert solved(after) <= solved(before)


@given(task=st.sampled_from(TASKS), data=st.data(), answer=ANSWERS)
def test_making_a_call_again_never_pays(task: str, data: st.DataObject, answer: str | None) -> None:
    moves = data.draw(attempts(task).filter(lambda m: any("call" in x for x in m)))
    again = data.draw(st.sampled_from([m for m in moves if "call" in m]))
    before = graded(task, moves, answer)
    after = graded(task, [*moves, again], answer)
    if "fault" not in again and any(x == {**again, "fault": "timeout"} for x in moves):
        return  # the retry of a fault: that it can pay is the point of it
    assert value(after) <= value(before) + 1e-12
    assert credit(after) <= credit(before) + 1e-12


@given(task=st.sampled_from(TASKS), data=st.data(), answer=ANSWERS)
def test_the_prefix_of_an_attempt_earns_the_same_credit(
    task: str, data: st.DataObject, answer: str | None
) -> None:
    moves = data.draw(attempts(task))
    cut = data.draw(st.integers(0, len(moves)))
    whole, prefix = graded(task, moves, answer), graded(task, moves[:cut], None)
    n = len(prefix.calls)
    assert [one.credit for one in whole.calls[:n]] == [one.credit for one in prefix.calls]
    assert [one.evidence_for for one in whole.calls[:n]] == [
        one.evidence_for for one in prefix.calls
    ]


@given(order=st.permutations([FIND, ORDERS, OTHER, STOCK, POLICY, REFUND]))
def test_the_order_of_independent_calls_does_not_matter(order: list[Move]) -> None:
    result = graded("refund", order, REFUND_ANSWER)
    assert solved(result) == {"q1", "q2", "q3", "answer", "final_state"}
    assert value(result) == value(graded("refund", [*REFUND_RUN, OTHER, STOCK], REFUND_ANSWER))


@given(
    task=st.sampled_from(["refund", "move"]),
    answer=ANSWERS,
    moves=st.lists(st.sampled_from(IDLE), max_size=6),
)
def test_without_useful_calls_the_reward_is_zero(
    task: str, answer: str | None, moves: list[Move]
) -> None:
    assert value(graded(task, moves, answer)) == 0


def test_an_attempt_of_nothing_is_zero_in_every_task() -> None:
    for task in BUNDLE.sealed.tasks:
        nothing = Attempt(calls=[], messages=[], answer="", final_state=BUNDLE.state)
        result = grade(task, golden_run(BUNDLE, task), nothing, BUNDLE.state)
        assert (result.value, result.outcome) == (0, False)
