"""Tools and a prompt of the 2026 era that need something from the client before they can answer.

The answer says what is needed; the client asks again with it (SEP-2322). Names and texts are the
suite's.
"""

from __future__ import annotations

import json
from typing import Any, Final

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage

Json = Any
Needed = types.InputRequiredResult
ROUNDS: Final = (
    ("step1", "Step 1: What is your name?", "name"),
    ("step2", "Step 2: What is your favorite color?", "color"),
)


def _form(message: str, field: str = "name", kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def _sample(text: str) -> types.CreateMessageRequest:
    content = types.TextContent(type="text", text=text)
    message = types.SamplingMessage(role="user", content=content)
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    return types.CreateMessageRequest(params=params)


def _given(ctx: Context, key: str) -> Any:
    return (ctx.input_responses or {}).get(key)


def _field(ctx: Context, key: str, name: str) -> str | None:
    """A field of a form that the client filled in; None when there is none."""
    answer = _given(ctx, key)
    content = answer.content if isinstance(answer, types.ElicitResult) else None
    value = (content or {}).get(name)
    return value if isinstance(value, str) else None


def add_input_required(server: MCPServer) -> None:
    """Give the suite's server these tools and the prompt."""
    _single(server)
    _states(server)
    _several(server)


def _single(server: MCPServer) -> None:
    @server.tool()
    async def test_input_required_result_elicitation(ctx: Context) -> str | Needed:
        """A name."""
        if name := _field(ctx, "user_name", "name"):
            return f"Hello, {name}!"
        return Needed(input_requests={"user_name": _form("What is your name?")})

    @server.tool()
    async def test_streaming_elicitation(ctx: Context) -> str | Needed:
        """The same, after a report."""
        await ctx.report_progress(1, 2, "half-way")
        if name := _field(ctx, "user_name", "name"):
            return f"Hello, {name}!"
        return Needed(input_requests={"user_name": _form("What is your name?")})

    @server.tool()
    async def test_input_required_result_sampling(ctx: Context) -> str | Needed:
        """A model's answer."""
        answer = _given(ctx, "capital_question")
        if isinstance(answer, types.CreateMessageResult) and answer.content.type == "text":
            return f"Model said: {answer.content.text}"
        return Needed(input_requests={"capital_question": _sample("What is France's capital?")})

    @server.tool()
    async def test_input_required_result_list_roots(ctx: Context) -> str | Needed:
        """The client's roots."""
        answer = _given(ctx, "client_roots")
        if isinstance(answer, types.ListRootsResult):
            return f"Client exposed {len(answer.roots)} root(s)."
        return Needed(input_requests={"client_roots": types.ListRootsRequest()})

    @server.prompt()
    async def test_input_required_result_prompt(ctx: Context) -> list[UserMessage] | Needed:
        """A context."""
        if text := _field(ctx, "user_context", "context"):
            content = types.TextContent(type="text", text=f"Use the following context: {text}")
            return [UserMessage(content)]
        return Needed(input_requests={"user_context": _form("Which context?", "context")})


def _states(server: MCPServer) -> None:
    confirm = {"confirm": _form("Please confirm", "ok", "boolean")}

    @server.tool()
    async def test_input_required_result_request_state(ctx: Context) -> str | Needed:
        """A confirmation, with a state that comes back."""
        if _given(ctx, "confirm") and ctx.request_state == "nonce":
            return "state-ok: confirmation received"
        return Needed(input_requests=confirm, request_state="nonce")

    @server.tool()
    async def test_input_required_result_tampered_state(ctx: Context) -> str | Needed:
        """A state that the SDK seals; a changed one never gets here."""
        if ctx.request_state is not None:
            return f"state-ok: {ctx.request_state}"
        return Needed(input_requests=confirm, request_state="round-1")

    @server.tool()
    async def test_input_required_result_multi_round(ctx: Context) -> str | Needed:
        """Two forms, one after the other."""
        state: dict[str, Json] = json.loads(ctx.request_state or '{"answers": []}')
        answers: list[str] = state["answers"]
        if ctx.request_state is not None:
            key, _, field = ROUNDS[len(answers)]
            if answer := _field(ctx, key, field):
                answers = [*answers, answer]
        if len(answers) == len(ROUNDS):
            return f"{answers[0]} likes {answers[1]}."
        key, message, field = ROUNDS[len(answers)]
        kept = json.dumps({"answers": answers})
        return Needed(input_requests={key: _form(message, field)}, request_state=kept)


def _several(server: MCPServer) -> None:
    @server.tool()
    async def test_input_required_result_multiple_inputs(ctx: Context) -> str | Needed:
        """Three things at once."""
        needed: dict[str, Any] = {
            "user_name": _form("What is your name?"),
            "greeting": _sample("Generate a greeting"),
            "client_roots": types.ListRootsRequest(),
        }
        if needed.keys() <= (ctx.input_responses or {}).keys():
            return "All inputs received."
        return Needed(input_requests=needed, request_state="several")

    @server.tool()
    async def test_input_required_result_capabilities(ctx: Context) -> Needed:
        """Only what the client can do."""
        declared = ctx.client_capabilities
        needed: dict[str, Any] = {}
        if declared is None or declared.sampling is not None:
            needed["sample"] = _sample("Say hello")
        if declared is None or declared.elicitation is not None:
            needed["ask"] = _form("What is your name?")
        return Needed(input_requests=needed, request_state="gated")
