"""Scripted agents, each against a stand-in of both planes."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from client_worlds import Script, bundle_of, failure, small_task

from astra_clients.agents import (
    AgentSpec,
    GoldenAgent,
    NullAgent,
    RandomAgent,
    RepeatAgent,
    ToolCall,
    make_agent,
)
from astra_clients.agents.draw import ValuePool, draw_arguments
from astra_mcp.errors import ClientError, UsageError
from astra_mcp.schema import Validator

Json = Any


def pickup_script(**more: Any) -> Script:
    """A world where the pickup's code depends on a ticket, and one more turn shows a tool."""
    return Script(
        small_task(),
        {
            "get_asset": lambda args: {"owner": "EM-58" if args.get("tag") == "LT-1" else "EM-0"},
            "open_ticket": lambda args: {"ticket": f"TK-{args['owner']}"},
            "book_pickup": lambda args: {"code": f"PU-{args['ticket']}-{args['floor']}"},
        },
        **more,
    )


async def test_golden_binds_arguments_to_live_results_and_derives_its_answer() -> None:
    script = pickup_script()
    script.tools = {**script.tools, "get_asset": lambda args: {"owner": "EM-77"}}
    answer = await GoldenAgent(script.task).run(script.context())
    assert script.calls == [
        ("get_asset", {"tag": "LT-1"}),
        ("open_ticket", {"owner": "EM-77"}),
        ("book_pickup", {"ticket": "TK-EM-77", "floor": 3}),
    ]
    assert answer == "ANSWER: PU-TK-EM-77-3", "the sealed value is PU-TK-EM-58-3"


async def test_golden_asks_with_the_tasks_words_and_ends_turns() -> None:
    script = pickup_script()
    await GoldenAgent(script.task).run(script.context())
    assert len(script.said) == 2
    assert "which floor" in script.said[0]
    assert script.turn == 2


async def test_tools_are_listed_again_after_a_turn_changed_them() -> None:
    script = pickup_script()
    ctx = script.context()
    await GoldenAgent(script.task).run(ctx)
    assert script.listed == 2
    names = [[tool["name"] for tool in tools] for tools in ctx.tools_by_turn]
    assert names == [["get_asset", "open_ticket"], ["get_asset", "open_ticket", "book_pickup"]]


async def test_golden_repeats_a_call_after_a_transient_failure() -> None:
    down = failure("unavailable")
    script = pickup_script(fail=lambda index: down if index in (0, 2, 3) else None)
    answer = await GoldenAgent(script.task).run(script.context(max_calls=20))
    assert answer == "ANSWER: PU-TK-EM-58-3"
    assert [name for name, _ in script.calls].count("get_asset") == 2
    assert [name for name, _ in script.calls].count("open_ticket") == 3


@pytest.mark.parametrize(("code", "calls"), [("unavailable", 3), ("timeout", 3), ("crash", 1)])
async def test_golden_gives_up_without_an_answer(code: str, calls: int) -> None:
    script = pickup_script(fail=lambda index: failure(code))
    assert await GoldenAgent(script.task, retries=2).run(script.context(max_calls=20)) is None
    assert len(script.calls) == calls


async def test_golden_fails_loudly_when_a_turn_does_not_open() -> None:
    script = pickup_script()
    deaf = [*script.task.turns]
    deaf[1] = deaf[1].model_copy(update={"ask_words": ["nobody says this"]})
    script.task = script.task.model_copy(update={"turns": deaf})
    with pytest.raises(ClientError, match="did not open turn u2"):
        await GoldenAgent(small_task()).run(script.context())


async def test_the_conversation_is_recorded_in_openai_form() -> None:
    script = pickup_script()
    ctx = script.context()
    await GoldenAgent(script.task).run(ctx)
    roles = [message["role"] for message in ctx.messages]
    call = ["assistant", "tool"]
    talk = ["assistant", "user"]
    assert roles == ["system", "user", *call, *call, *talk, *talk, *call]
    asked, told = ctx.messages[2], ctx.messages[3]
    assert asked["tool_calls"][0]["function"] == {
        "name": "get_asset",
        "arguments": '{"tag":"LT-1"}',
    }
    assert told["tool_call_id"] == asked["tool_calls"][0]["id"]
    ids = [c["id"] for message in ctx.messages for c in message.get("tool_calls", [])]
    assert len(ids) == len(set(ids))
    assert "tok-secret" not in str(ctx.messages)


async def test_noisy_adds_reads_only_and_is_seeded() -> None:
    async def play(seed: int) -> list[tuple[str, dict[str, Json]]]:
        script = pickup_script()
        spec = AgentSpec.parse("noisy:rate=1.0")
        agent = make_agent(spec, bundle_of(script.task), "t1", seed)
        assert await agent.run(script.context(max_calls=30)) == "ANSWER: PU-TK-EM-58-3"
        return script.calls

    first = await play(3)
    assert first == await play(3)
    names = [name for name, _ in first]
    assert names.count("open_ticket") == names.count("book_pickup") == 1
    assert names.count("get_asset") > 1


async def test_noisy_leaves_calls_enough_for_the_plan() -> None:
    script = pickup_script()
    agent = make_agent(AgentSpec.parse("noisy:rate=1.0"), bundle_of(script.task), "t1", 1)
    assert await agent.run(script.context(max_calls=3)) == "ANSWER: PU-TK-EM-58-3"
    assert len(script.calls) == 3


async def test_repeat_makes_the_first_call_until_none_is_left() -> None:
    script = pickup_script()
    assert await RepeatAgent(script.task).run(script.context(max_calls=5)) is None
    assert script.calls == [("get_asset", {"tag": "LT-1"})] * 5


async def test_null_does_nothing() -> None:
    script = pickup_script()
    assert await NullAgent().run(script.context()) is None
    assert (script.calls, script.said) == ([], [])


async def test_random_is_seeded_valid_and_within_the_limit() -> None:
    schema = {
        "type": "object",
        "properties": {
            "tag": {"type": "string", "pattern": "^LT-[0-9]+$"},
            "priority": {"type": "string", "enum": ["low", "high"]},
        },
        "required": ["tag", "priority"],
        "additionalProperties": False,
    }

    async def play(seed: int) -> tuple[list[tuple[str, dict[str, Json]]], str | None]:
        script = pickup_script(schemas={"get_asset": schema})
        script.tools = {"get_asset": script.tools["get_asset"]}
        answer = await RandomAgent(seed=seed).run(script.context(max_calls=6))
        return script.calls, answer

    calls, answer = await play(1)
    assert (calls, answer) == await play(1)
    others = [await play(seed) for seed in range(2, 8)]
    assert any(other != (calls, answer) for other in others)
    assert 1 <= len(calls) <= 6
    for _, args in calls:
        assert Validator(schema).check(args) is None
        assert args["tag"] == "LT-1", "the only literal of the question that fits"
    assert answer == "ANSWER: EM-58"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "integer", "minimum": 3, "maximum": 5},
        {"type": "number", "minimum": 0.5, "maximum": 0.6},
        {"type": "boolean"},
        {"type": "string", "maxLength": 3},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 2},
        {"anyOf": [{"type": "integer", "minimum": 7, "maximum": 7}, {"type": "null"}]},
        {"type": ["string", "null"], "enum": ["x", None]},
        {"type": "string", "format": "date", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
    ],
)
def test_arguments_are_drawn_for_every_kind_of_schema(part: dict[str, Json]) -> None:
    schema = {
        "type": "object",
        "properties": {"x": part},
        "required": ["x"],
        "additionalProperties": False,
    }
    pool = ValuePool('Book "Quay" for 4 on 2025-05-16, please.')
    args = draw_arguments(random.Random(0), schema, pool)
    assert args is not None
    assert Validator(schema).check(args) is None


def test_a_spec_is_read_from_a_word() -> None:
    assert AgentSpec.parse("golden") == AgentSpec(name="golden", kind="golden")
    noisy = AgentSpec.parse("noisy:rate=0.3,retries=2")
    assert (noisy.kind, noisy.options) == ("noisy", {"rate": 0.3, "retries": 2})
    chat = AgentSpec.parse("small=chat:model=q/3,base_url=http://127.0.0.1:1/v1")
    assert (chat.name, chat.options["base_url"]) == ("small", "http://127.0.0.1:1/v1")
    assert AgentSpec.parse("chat:model=q/3,temperature=0").name == "q/3"


@pytest.mark.parametrize("text", ["gold", "noisy:rate", ""])
def test_a_spec_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        AgentSpec.parse(text)


def test_a_sealed_agent_without_its_bundle_is_refused() -> None:
    with pytest.raises(UsageError, match="sealed task"):
        make_agent(AgentSpec.parse("golden"), None, "t1", 0)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("random:luck=1", "luck"),
        ("chat:model=m,api_key=sk-1", "api_key"),
        ("chat:model=m,base_url=http://me:secret@127.0.0.1/v1", "user or password"),
        ("chat:temperature=1", "model"),
    ],
)
def test_options_that_do_not_exist_or_hold_secrets_are_refused(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make_agent(AgentSpec.parse(spec), None, "t1", 0)


async def test_text_that_no_json_can_hold_is_mended_before_it_is_recorded() -> None:
    script = pickup_script()
    ctx = script.context()
    broken = "a\ud800b"
    responses = await ctx.call_all(broken, [ToolCall("c1", broken, '{"x": "\ud800"}')])
    await ctx.say(broken)
    assert responses[0].code == "unknown_tool"
    assert script.calls == [("a?b", {"x": "?"})]
    assert orjson.loads(orjson.dumps(ctx.messages)) == ctx.messages


@pytest.mark.parametrize(
    "arguments",
    ["x" * 300_000, "[" * 2000, f'{{"a": {"[" * 900}{"]" * 900}}}', "null", '{"a": NaN}'],
)
async def test_arguments_that_are_no_object_never_reach_the_host(arguments: str) -> None:
    script = pickup_script()
    (response,) = await script.context().call_all("", [ToolCall("c1", "get_asset", arguments)])
    assert response.code == "invalid_arguments"
    assert script.calls == []
