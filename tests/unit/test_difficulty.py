"""Difficulty is measured on the plan and agrees with what every shipped bundle declares."""

from __future__ import annotations

from pathlib import Path

import pytest
from graderkit import changed_task, tea_shop

from astra_mcp.difficulty import level_of, measure, plan_layers
from astra_mcp.store import load_bundle
from astra_mcp.task import Step

SHIPPED = sorted((Path(__file__).parents[2] / "synthesized_envs").glob("*/bundle.json"))


def plan(**reads: list[str]) -> list[Step]:
    """A plan in which each step reads these earlier ones."""
    return [
        Step(
            id=step,
            tool="get_stock",
            args={f"a{i}": {"$expr": f"{ref}.x"} for i, ref in enumerate(refs)},
        )
        for step, refs in reads.items()
    ]


@pytest.mark.parametrize(
    ("steps", "hops", "width"),
    [
        pytest.param(plan(), 0, 0, id="no plan"),
        pytest.param(plan(s1=[]), 1, 1, id="one step"),
        pytest.param(plan(s1=[], s2=["s1"], s3=["s2"]), 3, 1, id="chain"),
        pytest.param(plan(s1=[], s2=[], s3=[]), 1, 3, id="parallel"),
        pytest.param(plan(s1=[], s2=["s1"], s3=["s1"], s4=["s2", "s3"]), 3, 2, id="diamond"),
        pytest.param(plan(s1=[], **{f"s{i}": ["s1"] for i in range(2, 8)}), 2, 6, id="fan"),
        pytest.param(
            plan(s1=[], s2=["s1"], s3=["s1"], s4=["s1"], s5=[], s6=["s5"], s7=["s5"]),
            2,
            5,
            id="two fans",
        ),
        pytest.param(plan(s1=[], s2=["s1"], s3=["s2"], s4=["s1", "s3"]), 4, 1, id="shortcut edge"),
        pytest.param(plan(s1=[], s2=[], s3=[], s4=["s1", "s2", "s3"]), 2, 3, id="join"),
    ],
)
def test_hops_and_width(steps: list[Step], hops: int, width: int) -> None:
    layers = plan_layers(steps)
    assert len(layers) == hops
    assert max(map(len, layers), default=0) == width
    assert sorted(step for layer in layers for step in layer) == sorted(s.id for s in steps)


def test_references_are_read_from_nested_arguments_and_expressions() -> None:
    steps = plan(s1=[])
    nested = {"rows": [{"id": {"$expr": "s1.rows[?x=='s9'] | [0].id"}}]}
    steps.append(Step(id="s2", tool="get_stock", args=nested))
    assert plan_layers(steps) == [["s1"], ["s2"]]


def test_the_tea_shop_declares_what_is_measured() -> None:
    for task in tea_shop().sealed.tasks:
        assert measure(task, tea_shop().manifest) == task.difficulty


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_every_shipped_bundle_declares_what_is_measured(path: Path) -> None:
    bundle = load_bundle(path.parent)
    for task in bundle.sealed.tasks:
        assert measure(task, bundle.manifest) == task.difficulty


def test_writes_count_steps_not_tools() -> None:
    task = tea_shop().task("refund")
    raw = task.model_dump(mode="json", exclude_unset=True)
    again = {"id": "s4", "tool": "refund_order", "args": {"order_id": "OR-15", "amount": 1}}
    more = changed_task(
        task,
        plan=[*raw["plan"], again],
        subtasks=[*raw["subtasks"], {"id": "q4", "ask": "Pay.", "steps": ["s4"]}],
    )
    assert measure(more, tea_shop().manifest).writes == 2


@pytest.mark.parametrize(
    ("hops", "turns", "writes", "features", "level"),
    [
        (3, 1, 0, ["disambiguation"], 1),
        (2, 1, 0, ["parallel", "compare", "arithmetic"], 2),
        (3, 2, 1, ["missing_parameter", "stateful", "constraint"], 3),
        (3, 2, 2, ["missing_function", "stateful", "date_arithmetic"], 4),
        (2, 1, 0, ["set", "intersection", "parallel", "distractors"], 3),
        (4, 1, 0, ["chain", "argmax", "date_arithmetic"], 3),
        (2, 1, 1, ["stateful", "arithmetic", "constraint", "disambiguation", "parallel"], 4),
        (6, 3, 4, list("abcdefgh"), 5),
        (0, 1, 0, [], 1),
        (1, 1, 0, ["a", "a", "a", "a"], 1),
    ],
)
def test_levels(hops: int, turns: int, writes: int, features: list[str], level: int) -> None:
    assert level_of(hops, turns, writes, features) == level
