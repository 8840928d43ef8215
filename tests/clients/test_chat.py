"""The chat loop against a real HTTP server that speaks OpenAI's form and is told what to answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import orjson
import pytest
from client_servers import ScriptedServer, json_reply, serve
from client_worlds import Script, small_task

from astra_clients.agents import ChatAgent, ChatSettings
from astra_clients.agents.chat import make_client
from astra_mcp.errors import ClientError, UsageError

Json = Any
KEY = "sk-very-secret-1"
Reply = tuple[int, dict[str, str], list[bytes]]


def says(text: str | None, *calls: tuple[str, str], **more: Json) -> Reply:
    """A completion: text and calls (name, arguments as text)."""
    message: dict[str, Json] = {"role": "assistant", "content": text, **more}
    if calls:
        message["tool_calls"] = [
            {"id": f"c{i}", "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(calls)
        ]
    return json_reply(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
    )


def error(status: int, words: str, **headers: str) -> Reply:
    body = {"error": {"message": words, "type": "x", "code": None}}
    return status, {"content-type": "application/json", **headers}, [orjson.dumps(body)]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    with serve(server) as server.url:
        yield server


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch, endpoint: ScriptedServer) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", KEY)
    endpoint.requests.clear()


def script() -> Script:
    return Script(
        small_task(),
        {
            "get_asset": lambda args: {"owner": "EM-58"},
            "open_ticket": lambda args: {"ticket": "TK-1"},
            "book_pickup": lambda args: {"code": "PU-1"},
        },
    )


def agent(endpoint: ScriptedServer, **settings: Json) -> ChatAgent:
    base = {"model": "m", "base_url": f"{endpoint.url}/v1", "api_key_env": "TEST_MODEL_KEY"}
    return ChatAgent(ChatSettings.model_validate({**base, **settings}))


async def test_plays_an_episode_of_several_turns(endpoint: ScriptedServer) -> None:
    endpoint.answers(
        says(None, ("get_asset", '{"tag": "LT-1"}'), ("open_ticket", '{"owner": "EM-58"}')),
        says("Which floor is it on? I need to know which floor."),
        says("I cannot book it yet."),
        says("", ("book_pickup", '{"ticket": "TK-1", "floor": 3}')),
        says("Done.\nANSWER: PU-1"),
    )
    world = script()
    ctx = world.context()
    assert await agent(endpoint).run(ctx) == "Done.\nANSWER: PU-1"
    assert [name for name, _ in world.calls] == ["get_asset", "open_ticket", "book_pickup"]
    tools = [[t["function"]["name"] for t in body["tools"]] for body, _ in endpoint.requests]
    assert tools[0] == tools[2] == ["get_asset", "open_ticket"]
    assert tools[3] == ["get_asset", "open_ticket", "book_pickup"], "listed again after the turn"
    assert ctx.usage == {
        "model": "m", "requests": 5, "prompt_tokens": 50, "completion_tokens": 25,
    }  # fmt: skip
    assert ctx.messages[-1] == {"role": "assistant", "content": "Done.\nANSWER: PU-1"}


async def test_the_model_sees_what_its_calls_gave(endpoint: ScriptedServer) -> None:
    endpoint.answers(says(None, ("get_asset", "{}"), ("nope", "{}")), says("ANSWER: x"))
    await agent(endpoint).run(script().context())
    sent = endpoint.requests[1][0]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert sent[3] == {"role": "tool", "tool_call_id": "c0", "content": "{'owner': 'EM-58'}"}
    assert sent[4]["content"].startswith("unknown_tool")


@pytest.mark.parametrize("arguments", ['{"tag": ', "[1]", '"x"'])
async def test_bad_arguments_become_an_error_that_the_model_sees(
    endpoint: ScriptedServer, arguments: str
) -> None:
    endpoint.answers(says(None, ("get_asset", arguments)), says("ANSWER: x"))
    world = script()
    await agent(endpoint).run(world.context())
    assert world.calls == []
    told = endpoint.requests[1][0]["messages"][-1]["content"]
    assert told.startswith("invalid_arguments: the arguments")


async def test_a_model_that_stops_without_the_mark_submits_its_text(
    endpoint: ScriptedServer,
) -> None:
    endpoint.answers(says("It is PU-1."))
    world = script()
    world.turn = 2
    assert await agent(endpoint).run(world.context()) == "It is PU-1."
    assert world.said == ["It is PU-1."]


async def test_a_marked_answer_is_not_said_to_the_user(endpoint: ScriptedServer) -> None:
    endpoint.answers(says("Well.\n**ANSWER:** PU-1"))
    world = script()
    assert await agent(endpoint).run(world.context()) == "Well.\n**ANSWER:** PU-1"
    assert world.said == []


@pytest.mark.parametrize(
    ("settings", "requests", "stopped"),
    [
        ({"max_turns": 3}, 3, "turns"),
        ({"episode_tokens": 20}, 2, "tokens"),
        ({"episode_s": 1e-9}, 0, "time"),
    ],
)
async def test_limits_end_the_attempt_with_an_empty_answer(
    endpoint: ScriptedServer, settings: dict[str, Json], requests: int, stopped: str
) -> None:
    endpoint.answers(says(None, ("get_asset", "{}")))
    ctx = script().context(max_calls=50)
    assert await agent(endpoint, **settings).run(ctx) is None
    assert len(endpoint.requests) == requests
    assert ctx.usage["stopped_by"] == stopped


async def test_a_context_that_is_full_ends_the_attempt(endpoint: ScriptedServer) -> None:
    words = "This model's maximum context length is 8192 tokens."
    endpoint.answers(error(400, words))
    ctx = script().context()
    assert await agent(endpoint).run(ctx) is None
    assert ctx.usage["stopped_by"] == "context"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_retries_are_made_in_one_layer(endpoint: ScriptedServer, status: int) -> None:
    busy = error(status, "busy", **{"retry-after": "0"})
    endpoint.answers(busy, busy, says("ANSWER: x"))
    ctx = script().context()
    assert await agent(endpoint).run(ctx) == "ANSWER: x"
    assert len(endpoint.requests) == 3
    assert ctx.usage["requests"] == 1


async def test_retries_end(endpoint: ScriptedServer) -> None:
    endpoint.answers(error(500, "broken", **{"retry-after": "0"}))
    with pytest.raises(ClientError, match="no reply in 3 attempts"):
        await agent(endpoint, retries=2).run(script().context())
    assert len(endpoint.requests) == 3


async def test_a_wait_beyond_the_episode_is_not_begun(endpoint: ScriptedServer) -> None:
    endpoint.answers(error(429, "busy", **{"retry-after": "3600"}))
    ctx = script().context()
    assert await agent(endpoint, episode_s=30).run(ctx) is None
    assert ctx.usage["stopped_by"] == "time"


async def test_a_refusal_is_not_repeated_and_shows_no_key(endpoint: ScriptedServer) -> None:
    endpoint.answers(error(401, f"Incorrect API key provided: {KEY}."))
    with pytest.raises(ClientError) as caught:
        await agent(endpoint).run(script().context())
    assert len(endpoint.requests) == 1
    assert endpoint.requests[0][1]["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(caught.value)
    assert "HTTP 401" in str(caught.value)


async def test_reasoning_is_recorded_and_not_sent_back(endpoint: ScriptedServer) -> None:
    endpoint.answers(
        says(None, ("get_asset", "{}"), reasoning_content="I should look it up."),
        says("ANSWER: x"),
    )
    ctx = script().context()
    await agent(endpoint).run(ctx)
    assert ctx.messages[2]["reasoning_content"] == "I should look it up."
    assert "reasoning_content" not in endpoint.requests[1][0]["messages"][2]


async def test_sampling_settings_are_sent_when_given(endpoint: ScriptedServer) -> None:
    endpoint.answers(says("ANSWER: x"))
    await agent(endpoint, temperature=0.0, max_tokens=9, extra_body={"top_k": 3}).run(
        script().context()
    )
    body = endpoint.requests[0][0]
    assert (body["temperature"], body["max_tokens"], body["top_k"]) == (0.0, 9, 3)
    assert "top_p" not in body
    assert "seed" not in body


async def test_a_shared_client_stays_open(endpoint: ScriptedServer) -> None:
    endpoint.answers(says("ANSWER: x"))
    settings = ChatSettings(model="m", base_url=f"{endpoint.url}/v1", api_key_env="TEST_MODEL_KEY")
    async with make_client(settings) as client:
        for _ in range(2):
            assert await ChatAgent(settings, client).run(script().context()) == "ANSWER: x"


def test_a_missing_key_is_told_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(UsageError, match="NO_SUCH_KEY"):
        ChatAgent(ChatSettings(model="m", api_key_env="NO_SUCH_KEY"))
    local = ChatSettings(model="m", api_key_env="NO_SUCH_KEY", base_url="http://127.0.0.1:1/v1")
    assert isinstance(make_client(local), openai.AsyncOpenAI)
