"""Helpers of the grading tests: the tea shop, its tools run in this process, and attempts as data.

A move is {"call": tool, "args": {...}} (with "fault": the call never reaches the tool),
{"far": tool, "args": {...}} (a tool of another bundle), or {"say": text, "opens": turn id}.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from astra_mcp.attempt import Attempt, Call, Failure, Golden, GoldenStep, Message
from astra_mcp.bundle import Bundle
from astra_mcp.canonical import state_hash
from astra_mcp.expr import bind_args
from astra_mcp.grade import Grade, grade
from astra_mcp.schema import validator_for
from astra_mcp.store import load_bundle
from astra_mcp.task import Task

ROOT = Path(__file__).resolve().parents[2]
TEA_SHOP = ROOT / "tests" / "data" / "tea_shop.json"

Move = Mapping[str, Any]


@cache
def tea_shop() -> Bundle:
    return load_bundle(TEA_SHOP)


def changed_task(task: Task, **changes: Any) -> Task:
    """The task with other raw fields, validated anew."""
    return Task.model_validate(task.model_dump(mode="json", exclude_unset=True) | changes)


class Shop:
    """The bundle's tools on a state of their own; trusted test code, so no sandbox."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.state = copy.deepcopy(bundle.state)
        self.names: dict[str, Any] = {}
        exec(compile(bundle.code, "tools.py", "exec"), self.names)

    def call(self, tool: str, args: Mapping[str, Any]) -> tuple[Any, Failure | None]:
        spec = self.bundle.manifest.by_name[tool]
        if (problem := validator_for(spec.input_schema).check(dict(args))) is not None:
            return None, Failure(code="invalid_arguments", message=problem)
        before = copy.deepcopy(self.state)
        try:
            return copy.deepcopy(self.names[tool](self.state, **args)), None
        except self.names["ToolError"] as error:
            self.state = before
            return None, Failure(code=error.code, message=str(error))


def golden_run(bundle: Bundle, task: Task) -> Golden:
    shop = Shop(bundle)
    results: dict[str, Any] = {}
    steps = []
    for step in task.plan:
        args = bind_args(step.args, results)
        results[step.id], failure = shop.call(step.tool, args)
        assert failure is None, failure
        steps.append(
            GoldenStep(
                id=step.id, tool=step.tool, turn=step.turn, args=args, result=results[step.id]
            )
        )
    return Golden(digest=bundle.digest, task=task.id, steps=steps)


def play(bundle: Bundle, task: Task, moves: Iterable[Move], answer: str | None = None) -> Attempt:
    """The record of an attempt that makes these moves."""
    shop, turn = Shop(bundle), task.turns[0].id
    calls: list[Call] = []
    messages: list[Message] = []
    for move in moves:
        if "say" in move:
            opens = move.get("opens")
            messages.append(
                Message(text=move["say"], turn=turn, calls_before=len(calls), opened=opens)
            )
            turn = opens or turn
            continue
        calls.append(_called(bundle, task, shop, turn, len(calls), move))
    return Attempt(calls=calls, messages=messages, answer=answer, final_state=shop.state)


def _called(bundle: Bundle, task: Task, shop: Shop, turn: str, index: int, move: Move) -> Call:
    tool, args = move.get("call") or move["far"], move.get("args", {})
    hidden = {t.id: t.hide for t in task.turns}[turn]
    before = state_hash(shop.state)
    result, failure, origin = None, None, "world"
    if "far" in move:
        origin, result = "distractor", {"done": True}
    elif tool not in bundle.manifest.by_name or tool in hidden:
        origin, failure = "none", Failure(code="unknown_tool", message="no such tool")
    elif "fault" in move:
        failure = Failure(code=move["fault"], message="try again")
    else:
        result, failure = shop.call(tool, args)
    return Call(
        index=index,
        turn=turn,
        tool=tool,
        args=args,
        result=result,
        failure=failure,
        fault=move.get("fault"),
        origin=origin,
        state_before=before,
        state_after=state_hash(shop.state),
    )


def graded(
    task: Task | str,
    moves: Iterable[Move],
    answer: str | None = None,
    bundle: Bundle | None = None,
) -> Grade:
    """The grade of an attempt at a task of the tea shop."""
    bundle = bundle or tea_shop()
    task = bundle.task(task) if isinstance(task, str) else task
    attempt = play(bundle, task, moves, answer)
    return grade(task, golden_run(bundle, task), attempt, bundle.state, manifest=bundle.manifest)


def call(tool: str, fault: str | None = None, **args: Any) -> Move:
    return {"call": tool, "args": args} | ({"fault": fault} if fault else {})


def say(text: str, opens: str | None = None) -> Move:
    return {"say": text, "opens": opens}


FIND = call("find_customer", name="Mira Holt")
ORDERS = call("list_orders", customer_id="CU-4")
REFUND = call("refund_order", order_id="OR-9", amount=48.5)
STOCK = call("get_stock", tea="Assam")
POLICY = call("get_policy", topic="refunds")
OTHER = call("list_orders", customer_id="CU-7")
MOVE = call("change_address", order_id="OR-12", address="8 Fen Lane")
ASK = say("To which address shall it go?", opens="u2")
REFUND_RUN = [FIND, ORDERS, REFUND]
REFUND_ANSWER = "ANSWER: RF-31"
MOVE_RUN = [FIND, ORDERS, ASK, MOVE]
MOVE_ANSWER = "ANSWER: CH-1210"


def solved(result: Grade) -> set[str]:
    return {item.id for item in result.items if item.solved}


def labels(result: Grade) -> list[str]:
    return [one.label for one in result.calls]
