"""The committed bundles: each is solved by its plan, by nothing less, and gives nothing away."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from astra_clients.agents.draw import ValuePool, draw_arguments
from astra_mcp.attempt import Attempt, Call, Failure, Golden
from astra_mcp.bundle import Bundle
from astra_mcp.check import check_bundle, golden_answer
from astra_mcp.golden import run_plan
from astra_mcp.grade import Grade, grade
from astra_mcp.match import match_text
from astra_mcp.sandbox import Sandbox
from astra_mcp.store import dump_json, find_bundles, load_bundle, load_json
from astra_mcp.task import Task
from astra_mcp.world import BundleWorld

FOLDER = Path(__file__).parents[2] / "synthesized_envs"
PATHS = find_bundles(FOLDER)
BUNDLES = [load_bundle(path) for path in PATHS]
TASKS = [(bundle, task) for bundle in BUNDLES for task in bundle.sealed.tasks]
HAND_MADE = {
    "bird-counts",
    "glasshouse-care",
    "solar-cooperative",
    "touring-theatre",
    "vet-booster",
}
WALKS = 12

each_bundle = pytest.mark.parametrize("bundle", BUNDLES, ids=lambda b: b.manifest.id)
each_task = pytest.mark.parametrize(
    ("bundle", "task"), TASKS, ids=[f"{b.manifest.id}-{t.id}" for b, t in TASKS]
)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    started = await Sandbox.start()
    yield started
    await started.aclose()


def attempt_grade(bundle: Bundle, task: Task, golden: Golden, attempt: Attempt) -> Grade:
    locale = bundle.manifest.language
    return grade(task, golden, attempt, bundle.state, locale, manifest=bundle.manifest)


def by_id(bundle_id: str) -> Bundle:
    return next(bundle for bundle in BUNDLES if bundle.manifest.id == bundle_id)


def test_the_hand_made_ones_are_there() -> None:
    assert {bundle.manifest.id for bundle in BUNDLES} >= HAND_MADE


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.name)
def test_a_directory_is_named_after_its_bundle_and_equals_its_json_form(path: Path) -> None:
    bundle = load_bundle(path)
    assert bundle.manifest.id == path.name
    assert load_json(dump_json(bundle)).digest == bundle.digest


@each_bundle
async def test_plan_values_phrasings_and_difficulty_hold(bundle: Bundle, sandbox: Sandbox) -> None:
    world = BundleWorld.from_bundle(bundle, sandbox)
    checked = await check_bundle(bundle, world)
    await world.aclose()
    assert [f"{f.task} {f.place}: {f.problem}" for f in checked.findings] == []


@each_task
async def test_saying_the_answer_without_work_pays_nothing(
    bundle: Bundle, task: Task, sandbox: Sandbox
) -> None:
    world = BundleWorld.from_bundle(bundle, sandbox)
    golden = await run_plan(world, task, bundle.digest)
    await world.aclose()
    assert any(item.kind == "call" for item in task.subtasks)
    for answer in (None, "", golden_answer(task, golden.results)):
        idle = Attempt(calls=[], messages=[], answer=answer, final_state=bundle.state)
        assert attempt_grade(bundle, task, golden, idle).value == 0.0


@each_task
async def test_luck_pays_little(bundle: Bundle, task: Task, sandbox: Sandbox) -> None:
    world = BundleWorld.from_bundle(bundle, sandbox)
    golden = await run_plan(world, task, bundle.digest)
    walks = [await random_walk(bundle, task, world, seed) for seed in range(WALKS)]
    await world.aclose()
    grades = [attempt_grade(bundle, task, golden, walk) for walk in walks]
    assert sum(g.value or 0.0 for g in grades) / WALKS <= 0.35
    assert sum(g.outcome is True for g in grades) <= 0.05 * WALKS


async def random_walk(bundle: Bundle, task: Task, world: BundleWorld, seed: int) -> Attempt:
    """Random calls with arguments from the question and from results, then a random value."""
    rng = random.Random(f"{bundle.ref}#{task.id}:{seed}")
    pool = ValuePool(task.turns[0].say)
    environment = await world.open()
    calls: list[Call] = []
    for _ in range(rng.randint(1, task.max_calls)):
        tool = rng.choice(bundle.manifest.tools)
        args = draw_arguments(rng, tool.input_schema, pool)
        if args is None:
            continue
        outcome = await environment.call(tool.name, args)
        pool.see(outcome.result)
        failed = outcome.failure
        calls.append(
            Call(
                index=len(calls),
                turn=task.turns[0].id,
                tool=tool.name,
                args=args,
                result=outcome.result,
                failure=Failure(code=failed.code, message=failed.message) if failed else None,
                state_before=outcome.state_before,
                state_after=outcome.state_after,
            )
        )
    answer = f"ANSWER: {rng.choice(pool.everything())}"
    final = environment.state
    await environment.aclose()
    return Attempt(calls=calls, messages=[], answer=answer, final_state=final)


@each_task
def test_what_the_agent_reads_at_the_start_holds_no_expected_value(
    bundle: Bundle, task: Task
) -> None:
    shown = [task.turns[0].say, *(server.instructions for server in bundle.manifest.servers)]
    for tool in bundle.manifest.tools:
        schemas = [tool.input_schema, tool.output_schema]
        shown += [tool.name, tool.description, *map(json.dumps, schemas)]
    text = "\n".join(shown).casefold()
    expects = [item.expect for item in task.subtasks if item.expect] + [task.answer]
    values = [leaf for expect in expects if expect is not None for leaf in leaves(expect.value)]
    rare = {str(v).casefold() for v in values if not isinstance(v, bool) and len(str(v)) > 3}
    assert sorted(value for value in rare if value in text) == []


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value


@each_task
def test_calls_are_limited_to_about_twice_the_plan(bundle: Bundle, task: Task) -> None:
    assert len(task.plan) < task.max_calls <= 2 * len(task.plan) + 4


@pytest.mark.parametrize(
    ("bundle", "task"), [(b, t) for b, t in TASKS if b.manifest.id in HAND_MADE]
)
def test_hand_made_tasks_list_what_is_right_and_what_is_nearly_right(
    bundle: Bundle, task: Task
) -> None:
    assert task.answer is not None
    assert len(task.answer.accept) >= 4
    assert len(task.answer.reject) >= 4


# ---- one statement per feature that a hand-made bundle is there for ----------------------------


def test_vet_booster_keeps_the_day_for_whoever_asks() -> None:
    task = by_id("vet-booster").task("t1")
    first, asked = task.turns
    assert asked.opens == "asked"
    assert asked.slot_values == ["2025-11-20"]
    assert not any(word in first.say for word in ("2025", "20 ", "November", "Thursday"))
    assert [item.kind for item in task.subtasks].count("ask") == 1


@pytest.mark.parametrize("pages_read", [1, 2])
async def test_bird_counts_needs_every_page(pages_read: int, sandbox: Sandbox) -> None:
    bundle = by_id("bird-counts")
    task = bundle.task("t1")
    assert task.answer is not None
    world = BundleWorld.from_bundle(bundle, sandbox)
    golden = await run_plan(world, task, bundle.digest)
    await world.aclose()
    trained = {row["id"] for row in golden.results["s3"]["observers"]}
    pages = [golden.results[step]["counts"] for step in ("s4", "s5", "s6")]
    totals = [
        sum(
            row["number"]
            for page in pages[:read]
            for row in page
            if row["species_id"] == "SP-12" and row["observer_id"] in trained
        )
        for read in (pages_read, 3)
    ]
    partial, whole = (match_text(task.answer.match, task.answer.value, str(n)).ok for n in totals)
    assert whole
    assert not partial


def test_touring_theatre_crosses_from_one_server_to_the_other() -> None:
    bundle = by_id("touring-theatre")
    task = bundle.task("t1")
    used = {bundle.manifest.by_name[step.tool].server for step in task.plan}
    assert used == {"programme", "rail"}


async def test_glasshouse_care_wants_nothing_done(sandbox: Sandbox) -> None:
    bundle = by_id("glasshouse-care")
    task = bundle.task("t1")
    world = BundleWorld.from_bundle(bundle, sandbox)
    golden = await run_plan(world, task, bundle.digest)
    environment = await world.open()
    calls: list[Call] = []
    vents = ("open_vents", {"house_id": "GH-2", "percent": 40})
    for tool, args in [*((step.tool, step.args) for step in golden.steps), vents]:
        outcome = await environment.call(tool, args)
        calls.append(
            Call(
                index=len(calls),
                turn="u1",
                tool=tool,
                args=args,
                result=outcome.result,
                state_before=outcome.state_before,
                state_after=outcome.state_after,
            )
        )
    meddled = environment.state
    await environment.aclose()
    await world.aclose()
    answer = golden_answer(task, golden.results)
    left_alone = Attempt(calls=calls[:-1], messages=[], answer=answer, final_state=bundle.state)
    opened = Attempt(calls=calls, messages=[], answer=answer, final_state=meddled)
    good = attempt_grade(bundle, task, golden, left_alone)
    bad = attempt_grade(bundle, task, golden, opened)
    assert (good.value, good.outcome) == (1.0, True)
    assert bad.outcome is False
    assert [item.kind for item in bad.items if not item.solved] == ["final_state"]


def test_solar_cooperative_drafts_only_in_the_follow_up() -> None:
    task = by_id("solar-cooperative").task("t1")
    assert [turn.opens for turn in task.turns] == ["start", "next"]
    hold = next(item for item in task.subtasks if item.kind == "hold")
    assert "draft_statement" in hold.forbid
    assert [step.turn for step in task.plan if step.tool == "draft_statement"] == ["u2"]
