"""Regrading gives what playing the same calls against the newer task would give, or says why not.

The oracle is the host: the same agent plays the newer bundle live.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from astra_clients.agents import Agent, AgentContext, AgentSpec, make_agent
from astra_clients.attempts import sealed_attempt
from astra_clients.collector import collect
from astra_clients.output import read_records
from astra_clients.plan import CollectPlan, TaskRef
from astra_clients.regrade import regrader
from astra_clients.regrade.files import regrade_file
from astra_mcp.canonical import state_hash
from astra_mcp.errors import UsageError
from astra_mcp.store import find_bundles, load_bundle
from tests.e2e.conftest import CONTROL_TOKEN, ENVS, Rigger
from tests.e2e.nasty import nasty_bundle

Json = Any
Record = dict[str, Json]
Edit = Callable[[dict[str, Json]], None]


class Script:
    """Makes these calls, says these things, gives this answer."""

    def __init__(
        self, *calls: tuple[str, dict[str, Json]], say: str = "", answer: str = ""
    ) -> None:
        self.calls, self.say, self.answer = calls, say, answer

    async def run(self, ctx: AgentContext) -> str | None:
        for tool, args in self.calls:
            await ctx.call(tool, args)
        return self.answer


class Crash:
    """Breaks after one call."""

    async def run(self, ctx: AgentContext) -> str | None:
        await ctx.call("count", {})
        raise ZeroDivisionError


WRONG_VALUE = Script(("put", {"key": "b", "value": 40}), ("count", {}), answer="ANSWER: 2")
GOLDEN = Script(("put", {"key": "b", "value": 41}), ("count", {}), answer="ANSWER: 2")


@pytest.fixture
def collected(rig_of: Rigger, tmp_path: Path) -> Callable[..., Json]:
    """Records of agents on the bundles at a path, made by the collector on a real host."""
    numbers = itertools.count()

    async def run(path: Path, agents: Mapping[str, Agent | None], **more: Json) -> list[Record]:
        out = tmp_path / f"records-{next(numbers)}.jsonl"
        bundles = [load_bundle(one) for one in find_bundles([path])]
        tasks = [
            TaskRef(task=f"{bundle.ref}#{task.id}", bundle=bundle)
            for bundle in bundles
            for task in bundle.sealed.tasks
        ]

        def maker(spec: AgentSpec, bundle: Json, task_id: str, seed: int) -> Agent:
            return agents[spec.name] or make_agent(spec, bundle, task_id, seed)

        async with rig_of(path) as rig:
            plan = CollectPlan(
                control_url=f"{rig.host.url}/control/mcp",
                token=SecretStr(CONTROL_TOKEN),
                tasks=tuple(tasks),
                agents=tuple(
                    AgentSpec(name=name, kind="null" if agent else name)  # type: ignore[arg-type]
                    for name, agent in agents.items()
                ),
                out=out,
                concurrency=1,
                **more,
            )
            await collect(plan, maker=maker, progress=io.StringIO())
        return list(read_records(out))

    return run


def nasty_at(tmp_path: Path, name: str, *edits: Edit) -> Path:
    """A version of the nasty bundle."""
    raw = nasty_bundle()
    for edit in edits:
        edit(raw)
    path = tmp_path / name
    path.write_bytes(orjson.dumps(raw))
    return path


async def regraded(records: list[Record], path: Path, **options: Json) -> list[Record]:
    async with regrader([path], **options) as again:
        return [await again.regrade(record) for record in records]


def task_of(raw: dict[str, Json]) -> dict[str, Json]:
    task: dict[str, Json] = raw["sealed"]["tasks"][0]
    return task


# ---- only tasks changed ---------------------------------------------------------------------


async def test_the_same_bundle_gives_every_record_its_reward_again(
    collected: Callable[..., Json],
) -> None:
    """All examples: several turns, two servers, writes; with faults and far distractors."""
    agents = {"golden": None, "noisy": None, "random": None, "null": None}
    records = await collected(ENVS, agents, fault_rate=0.2, far_distractors=3, max_calls=60)
    assert {call["origin"] for r in records for call in r["calls"]} >= {"world", "distractor"}
    assert any(call["fault"] for r in records for call in r["calls"])
    assert any(message["opened"] for r in records for message in r["attempt"]["messages"])
    for before, after in zip(records, await regraded(records, ENVS), strict=True):
        origin = after.pop("regraded_from")
        assert origin["mode"] == "as recorded"
        assert origin["reward"] == before["reward"]
        assert after == before


def any_value(raw: dict[str, Json]) -> None:
    """Whatever value was put will do."""
    task = task_of(raw)
    task["subtasks"][0]["evidence"] = [[{"tool": "put", "where": {"key": "b"}}]]
    task["final_state"]["rows"][0]["where"] = {"id": "b"}


def another_answer(raw: dict[str, Json]) -> None:
    task = task_of(raw)
    task["answer"] = {
        "value": "two", "match": {"kind": "exact"}, "accept": ["two"], "reject": ["2"],
    }  # fmt: skip


def no_end_state(raw: dict[str, Json]) -> None:
    task_of(raw)["final_state"] = None


@pytest.mark.parametrize("edit", [any_value, another_answer, no_end_state])
async def test_a_newer_task_gives_what_a_live_attempt_at_it_gets(
    collected: Callable[..., Json], tmp_path: Path, edit: Edit
) -> None:
    agents: dict[str, Agent | None] = {"wrong": WRONG_VALUE, "right": GOLDEN}
    old = await collected(nasty_at(tmp_path, "old.json"), agents)
    newer = nasty_at(tmp_path, "newer.json", edit)
    live = await collected(newer, agents)
    again = await regraded(old, newer)
    assert [r["regraded_from"]["mode"] for r in again] == ["as recorded"] * 2
    assert [r["grade"] for r in again] == [r["grade"] for r in live]
    assert [r["digest"] for r in again] == [load_bundle(newer).digest] * 2
    assert [r["regraded_from"]["reward"] for r in again] == [r["reward"] for r in old]
    assert [r["regraded_from"]["digest"] for r in again] == [r["digest"] for r in old]
    assert any(a["reward"] != b["reward"] for a, b in zip(again, old, strict=True))


async def test_a_regraded_record_can_be_regraded_and_keeps_its_past(
    collected: Callable[..., Json], tmp_path: Path
) -> None:
    first = nasty_at(tmp_path, "old.json")
    old = await collected(first, {"wrong": WRONG_VALUE})
    (middle,) = await regraded(old, nasty_at(tmp_path, "newer.json", any_value))
    (last,) = await regraded([middle], first)
    past = last.pop("regraded_from")
    assert last == old[0]
    assert past["reward"] == middle["reward"]
    assert past["before"]["reward"] == old[0]["reward"]


async def test_another_wording_is_noted_and_another_conversation_is_refused(
    collected: Callable[..., Json], tmp_path: Path
) -> None:
    source = orjson.loads(_single(ENVS / "restaurant-reservation", tmp_path))
    path = tmp_path / "restaurant.json"
    path.write_bytes(orjson.dumps(source))
    (record,) = await collected(path, {"golden": None})
    assert record["attempt"]["messages"][0]["opened"] == "u2"

    def version(name: str, edit: Edit) -> Path:
        raw = orjson.loads(orjson.dumps(source))
        raw.pop("digests", None)
        edit(raw)
        (tmp_path / name).write_bytes(orjson.dumps(raw))
        return tmp_path / name

    def reworded(raw: dict[str, Json]) -> None:
        task_of(raw)["turns"][0]["say"] += " Thanks!"

    def other_words(raw: dict[str, Json]) -> None:
        task_of(raw)["turns"][1]["ask_words"] = ["zebra"]

    (noted,) = await regraded([record], version("a.json", reworded))
    assert noted["reward"]["value"] == 1.0
    assert noted["regraded_from"]["notes"] == ["turn u1 is worded otherwise now"]
    (refused,) = await regraded([record], version("b.json", other_words))
    assert refused["reward"]["value"] is None
    assert "message 0 would get another reply" in refused["reward"]["reason"]


def _single(folder: Path, tmp_path: Path) -> bytes:
    from astra_mcp.store import dump_json

    dumped = dump_json(load_bundle(folder))
    return dumped if isinstance(dumped, bytes) else dumped.encode()


async def test_a_tool_that_is_hidden_now_makes_it_another_attempt(
    collected: Callable[..., Json], tmp_path: Path
) -> None:
    agent = Script(("sly_read", {}), *GOLDEN.calls, answer="ANSWER: 2")
    records = await collected(nasty_at(tmp_path, "old.json"), {"a": agent})

    def hide(raw: dict[str, Json]) -> None:
        task_of(raw)["turns"][0]["hide"] = ["sly_read"]

    (refused,) = await regraded(records, nasty_at(tmp_path, "newer.json", hide))
    assert refused["reward"]["value"] is None
    assert "call 0 uses sly_read, which is hidden now" in refused["reward"]["reason"]


# ---- the world changed ----------------------------------------------------------------------


def described_otherwise(raw: dict[str, Json]) -> None:
    raw["manifest"]["version"] = "2.0.0"
    raw["manifest"]["tools"][0]["description"] += " It is careful."


def one_item_more(raw: dict[str, Json]) -> None:
    raw["state"]["items"]["c"] = {"id": "c", "value": 1}
    task = task_of(raw)
    for expect in (task["answer"], task["subtasks"][1]["expect"]):
        expect["value"] = 3
    task["answer"].update(accept=["3"], reject=["2"])


async def test_a_world_that_gives_the_same_results_is_graded_by_calls_made_again(
    collected: Callable[..., Json], tmp_path: Path
) -> None:
    agents: dict[str, Agent | None] = {"wrong": WRONG_VALUE, "right": GOLDEN}
    old = await collected(nasty_at(tmp_path, "old.json"), agents)
    newer = nasty_at(tmp_path, "newer.json", described_otherwise, any_value)
    live = await collected(newer, agents)
    again = await regraded(old, newer)
    assert [r["regraded_from"]["mode"] for r in again] == ["calls made again"] * 2
    assert [r["grade"] for r in again] == [r["grade"] for r in live]
    assert {r["task"] for r in again} == {"nasty@2.0.0#t1"}
    for mine, theirs in zip(again, live, strict=True):
        del mine["attempt"]["check"], theirs["attempt"]["check"]
        assert mine["attempt"] == theirs["attempt"]


async def test_a_world_that_gives_other_results_takes_the_reward_unless_told_otherwise(
    collected: Callable[..., Json], tmp_path: Path
) -> None:
    old = await collected(nasty_at(tmp_path, "old.json"), {"right": GOLDEN})
    assert old[0]["reward"]["f1"] == 1.0
    newer = nasty_at(tmp_path, "newer.json", one_item_more)
    live = await collected(newer, {"right": GOLDEN})
    (refused,) = await regraded(old, newer)
    assert refused["reward"]["value"] is None
    assert "calls give other results in the newer world: 0, 1" in refused["reward"]["reason"]
    assert refused["regraded_from"]["reward"] == old[0]["reward"]
    assert refused["digest"] == old[0]["digest"]
    assert refused["calls"] == old[0]["calls"]

    (graded,) = await regraded(old, newer, open_loop=True)
    assert graded["grade"] == live[0]["grade"]
    assert [call["result"] for call in graded["calls"]] == [{"count": 3}, {"count": 3}]
    first = graded["regraded_from"]["differ"][0]
    assert first["index"] == 0
    assert first["recorded"]["result"] == {"count": 2}
    assert first["now"]["result"] == {"count": 3}


async def test_a_tool_that_is_gone_is_a_result_that_differs(
    collected: Callable[..., Json], tmp_path: Path
) -> None:
    agent = Script(("sly_read", {}), *GOLDEN.calls, answer="ANSWER: 2")
    records = await collected(nasty_at(tmp_path, "old.json"), {"a": agent})

    def drop(raw: dict[str, Json]) -> None:
        tools = raw["manifest"]["tools"]
        tools[:] = [tool for tool in tools if tool["name"] != "sly_read"]

    newer = nasty_at(tmp_path, "newer.json", drop)
    (refused,) = await regraded(records, newer)
    assert "other results in the newer world: 0" in refused["reward"]["reason"]
    (graded,) = await regraded(records, newer, open_loop=True)
    assert graded["calls"][0]["label"] == "unknown_tool"


# ---- what cannot be graded again ------------------------------------------------------------


def edit_result(record: Record) -> None:
    record["calls"][1]["result"] = {"count": 3}


def edit_answer(record: Record) -> None:
    record["attempt"]["answer"] = "ANSWER: 3"


def edit_rows(record: Record) -> None:
    record["attempt"]["changes"]["items"]["b"]["value"] = 42
    record |= sealed_attempt(record, record["attempt"])


def edit_hash(record: Record) -> None:
    record["calls"][1]["state_before"] = state_hash({})
    record |= sealed_attempt(record, record["attempt"])


def move_world(record: Record) -> None:
    record["world_digest"] = "sha256:" + "0" * 64


def give_away(record: Record) -> None:
    record["agent"] = "somebody else"


def lose_grade(record: Record) -> None:
    del record["grade"]
    record["calls"][0].pop("turn")


def forget(record: Record) -> None:
    del record["attempt"]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (edit_result, "not what the collector wrote"),
        (edit_answer, "not what the collector wrote"),
        (move_world, "not what the collector wrote"),
        (give_away, "not what the collector wrote"),
        (lose_grade, "not what the collector wrote"),
        (edit_rows, "the changed rows are not those of the last state"),
        (edit_hash, "call 1 starts from another state"),
        (forget, "does not hold the exact attempt"),
    ],
)
async def test_a_tampered_record_gets_no_reward_and_loses_nothing(
    collected: Callable[..., Json],
    tmp_path: Path,
    edit: Callable[[Record], None],
    says: str,
) -> None:
    path = nasty_at(tmp_path, "old.json")
    (record,) = await collected(path, {"right": GOLDEN})
    edit(record)
    before = orjson.dumps(record)
    (after,) = await regraded([record], path)
    assert orjson.dumps(record) == before
    assert after["reward"]["value"] is None
    assert says in after["reward"]["reason"]
    assert after["regraded_from"]["reward"]["value"] == 1.0
    kept = {key: after[key] for key in record if key not in ("grade", "reward")}
    assert kept == {key: record[key] for key in kept}


async def test_what_was_never_graded_or_has_no_task_stays_without_a_reward(
    collected: Callable[..., Json], tmp_path: Path
) -> None:
    path = nasty_at(tmp_path, "old.json")
    crashed, right = await collected(path, {"crash": Crash(), "right": GOLDEN})

    def renamed(raw: dict[str, Json]) -> None:
        task_of(raw)["id"] = "t9"

    def stale(raw: dict[str, Json]) -> None:
        task_of(raw)["answer"].update(value=3, accept=[], reject=[])

    cases = [
        (crashed, path, "the episode was closed"),
        (right, nasty_at(tmp_path, "renamed.json", renamed), "has no task t1"),
        (right, nasty_at(tmp_path, "stale.json", stale), "not what the plan gives"),
        (right, ENVS / "library-pickup", "no bundle nasty was given"),
    ]
    for record, bundles, says in cases:
        (after,) = await regraded([record], bundles)
        assert after["reward"]["value"] is None
        assert says in after["reward"]["reason"]


# ---- files ----------------------------------------------------------------------------------


async def test_a_file_is_regraded_line_by_line_and_summed_up(
    collected: Callable[..., Json], tmp_path: Path
) -> None:
    agents: dict[str, Agent | None] = {"wrong": WRONG_VALUE, "right": GOLDEN, "crash": Crash()}
    old = await collected(nasty_at(tmp_path, "old.json"), agents)
    old[1]["attempt"]["answer"] = "tampered"
    records, out = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    records.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in old))
    async with regrader([nasty_at(tmp_path, "newer.json", any_value)]) as again:
        summary = await regrade_file(records, out, again)
        with pytest.raises(UsageError, match="already"):
            await regrade_file(records, out, again)
        with pytest.raises(UsageError, match="already"):
            await regrade_file(records, records, again, overwrite=True)
    new = list(read_records(out))
    assert [r["agent"] for r in new] == [r["agent"] for r in old]
    row = summary.tasks["nasty@1.0.0#t1"].as_json()
    assert (row["records"], row["graded"], row["changed"], row["lost"]) == (3, 1, 1, 1)
    assert row["new_mean"] == new[0]["reward"]["value"] == 1.0
    assert row["old_mean"] == (old[0]["reward"]["value"] + 1.0) / 2
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
