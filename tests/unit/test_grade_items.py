"""Asks, holds, answers, and that doing nothing never pays."""

from __future__ import annotations

from typing import Any

import pytest
from graderkit import (
    ASK,
    FIND,
    MOVE,
    MOVE_ANSWER,
    MOVE_RUN,
    ORDERS,
    REFUND,
    REFUND_ANSWER,
    REFUND_RUN,
    Move,
    call,
    changed_task,
    graded,
    say,
    solved,
    tea_shop,
)

from astra_mcp.task import Task

MOVE_TASK = tea_shop().task("move")
GUESS = call("change_address", order_id="OR-12", address="5 Mill Street")


def _held(**changes: Any) -> Task:
    """The move task with a hold in its first turn, after the orders are known."""
    hold = {"id": "q5", "ask": "Hold.", "kind": "hold", "forbid": ["refund_order"]}
    hold |= {"after": ["q2"]} | changes
    raw = [sub.model_dump(mode="json", exclude_unset=True) for sub in MOVE_TASK.subtasks]
    return changed_task(MOVE_TASK, subtasks=[*raw, hold])


class TestAsk:
    def test_asking_opens_the_turn_and_is_solved(self) -> None:
        assert "q3" in solved(graded("move", MOVE_RUN, MOVE_ANSWER))

    def test_a_message_that_opens_nothing_is_no_asking(self) -> None:
        assert "q3" not in solved(graded("move", [FIND, ORDERS, say("Working on it.")], ""))

    def test_never_writing_to_the_user_is_no_asking(self) -> None:
        assert "q3" not in solved(graded("move", [FIND, ORDERS, MOVE], MOVE_ANSWER))

    @pytest.mark.parametrize(
        "early",
        [
            pytest.param(GUESS, id="done"),
            pytest.param(call("change_address", order_id="OR-12"), id="refused"),
            pytest.param(call("change_address", order_id="OR-99", address="abc"), id="failed"),
            pytest.param({**GUESS, "fault": "timeout"}, id="lost to a fault"),
        ],
    )
    def test_trying_a_forbidden_tool_first_loses_it(self, early: Move) -> None:
        assert "q3" not in solved(graded("move", [FIND, early, ORDERS, ASK, MOVE], MOVE_ANSWER))

    def test_a_tool_of_that_name_from_another_bundle_is_not_forbidden(self) -> None:
        far = {"far": "change_address", "args": {}}
        assert "q3" in solved(graded("move", [far, FIND, ORDERS, ASK, MOVE], MOVE_ANSWER))

    def test_a_turn_that_merely_comes_next_is_not_asked_for(self) -> None:
        turns = [turn.model_dump(mode="json", exclude_unset=True) for turn in MOVE_TASK.turns]
        turns[1] = {"id": "u2", "opens": "next", "say": "Send it to 8 Fen Lane."}
        assert "q3" not in solved(graded(changed_task(MOVE_TASK, turns=turns), MOVE_RUN))

    def test_each_question_has_its_own_turn(self) -> None:
        raw = MOVE_TASK.model_dump(mode="json", exclude_unset=True)
        third = raw["turns"][1] | {"id": "u3", "say": "In the morning.", "ask_words": ["when"]}
        again = {"id": "q5", "ask": "Ask when.", "kind": "ask", "turn": "u2"}
        task = changed_task(
            MOVE_TASK, turns=[*raw["turns"], third], subtasks=[*raw["subtasks"], again]
        )
        assert solved(graded(task, [FIND, ASK], "")) == {"q1", "q3"}
        when = say("When shall it come?", opens="u3")
        assert solved(graded(task, [FIND, ASK, when], "")) == {"q1", "q3", "q5"}


class TestHold:
    def test_ending_the_turn_after_the_work_is_solved(self) -> None:
        assert "q5" in solved(graded(_held(), MOVE_RUN, MOVE_ANSWER))

    def test_calling_a_forbidden_tool_in_the_turn_loses_it(self) -> None:
        refused = call("refund_order", order_id="OR-9")
        for early in (REFUND, refused):
            moves = [FIND, ORDERS, early, ASK, MOVE]
            assert "q5" not in solved(graded(_held(), moves, MOVE_ANSWER))

    def test_calling_it_in_a_later_turn_does_not(self) -> None:
        assert "q5" in solved(graded(_held(), [FIND, ORDERS, ASK, REFUND], ""))

    def test_without_the_work_before_it_there_is_nothing_to_hold(self) -> None:
        assert "q5" not in solved(graded(_held(), [FIND, ASK], ""))

    def test_a_message_that_opens_no_turn_ends_none(self) -> None:
        assert "q5" not in solved(graded(_held(), [FIND, ORDERS, say("Busy.")], MOVE_ANSWER))

    def test_a_turn_that_the_agent_never_ended_is_not_held(self) -> None:
        assert "q5" not in solved(graded(_held(), [FIND, ORDERS], ""))
        assert "q5" not in solved(graded(_held(), [FIND, ORDERS], MOVE_ANSWER))

    def test_the_last_turn_is_ended_by_an_answer_that_says_something(self) -> None:
        task = _held(turn="u2")
        assert "q5" in solved(graded(task, MOVE_RUN, MOVE_ANSWER))
        assert "q5" not in solved(graded(task, MOVE_RUN, " \n"))
        assert "q5" not in solved(graded(task, MOVE_RUN, None))


class TestAnswer:
    @pytest.mark.parametrize("answer", [None, "", "  ", "ANSWER:", "ANSWER: RF-30", "done"])
    def test_no_or_another_answer_is_not_solved(self, answer: str | None) -> None:
        result = graded("refund", REFUND_RUN, answer)
        assert "answer" not in solved(result)
        assert result.value == pytest.approx(8 / 9)

    def test_a_task_without_an_answer_has_no_such_item(self) -> None:
        task = changed_task(tea_shop().task("refund"), answer=None)
        result = graded(task, REFUND_RUN, "")
        assert [item.id for item in result.items] == ["q1", "q2", "q3", "final_state"]
        assert result.value == 1

    def test_the_number_is_read_in_the_language_of_the_bundle(self) -> None:
        from graderkit import golden_run, play

        from astra_mcp.grade import grade

        bundle = tea_shop()
        expect = {"value": 1379.5, "match": {"kind": "number"}}
        task = changed_task(bundle.task("refund"), answer=expect)
        attempt = play(bundle, task, REFUND_RUN, "ANSWER: 1.379,5")
        found = [
            grade(task, golden_run(bundle, task), attempt, bundle.state, locale)
            for locale in ("de", "en")
        ]
        assert ["answer" in solved(result) for result in found] == [True, False]


class TestDoingNothing:
    """From a survey of benchmarks: up to 38 % of tasks paid an agent that does nothing."""

    def test_a_state_that_holds_from_the_start_pays_nobody_who_did_nothing(self) -> None:
        silent = graded("refuse", [], "")
        assert (silent.value, solved(silent)) == (0, set())

    def test_its_clean_twin_saying_so_is_paid(self) -> None:
        assert graded("refuse", [], "ANSWER: no").value == 1

    def test_a_wrong_answer_does_not_bring_the_unchanged_state_with_it(self) -> None:
        assert graded("refuse", [], "ANSWER: yes").value == 0

    def test_chatting_is_doing_nothing(self) -> None:
        assert graded("refuse", [say("Hello!"), say("Anything else?")], "").value == 0

    def test_a_task_of_passive_items_alone_cannot_be_solved(self) -> None:
        task = changed_task(tea_shop().task("refuse"), answer=None)
        for answer in (None, "", "ANSWER: no"):
            assert graded(task, [], answer).value == 0

    def test_a_state_that_takes_work_needs_no_other_item(self) -> None:
        task = changed_task(tea_shop().task("refund"), answer=None)
        assert "final_state" in solved(graded(task, [REFUND], None))

    def test_an_unchanged_state_is_solved_beside_real_work(self) -> None:
        read_only = {"rows": [], "others_unchanged": True}
        task = changed_task(tea_shop().task("refund"), final_state=read_only)
        assert solved(graded(task, [FIND], "")) == {"q1", "final_state"}
        assert solved(graded(task, [], "")) == set()

    @pytest.mark.parametrize("task", ["refund", "move"])
    @pytest.mark.parametrize("answer", [None, "", REFUND_ANSWER, MOVE_ANSWER])
    def test_without_evidence_everything_is_zero(self, task: str, answer: str | None) -> None:
        for moves in ([], [ASK] if task == "move" else [], [call("get_stock", tea="Assam")]):
            result = graded(task, moves, answer)
            assert (result.value, result.recall, result.outcome) == (0, 0, False)

    def test_a_counted_call_in_a_task_without_call_sub_tasks_costs_everything(self) -> None:
        result = graded("refuse", [FIND], "ANSWER: no")
        assert (result.recall, result.precision, result.value) == (1, 0, 0)

    def test_unless_the_task_tolerates_it(self) -> None:
        task = changed_task(tea_shop().task("refuse"), tolerated=[{"tool": "get_policy"}])
        look = call("get_policy", topic="refunds")
        assert graded(task, [look], "ANSWER: no").value == 1
