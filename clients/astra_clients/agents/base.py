"""What an agent is, and what it can do in one episode.

An `Agent` plays one episode through an `AgentContext` and returns the text to submit, or None when
it has nothing to say; the caller submits and grades. The context is the only way to the world: it
calls tools, talks to the user, and writes the conversation down in OpenAI's chat form as it
happens, so that the record is what the agent saw. It holds no sealed byte and shows no token.
Invariant: calls of one episode run one after the other, in the order of the record.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson

from astra_clients.control import ControlClient, OpenedEpisode, UserReply
from astra_clients.mcp_client import McpClient, ToolResponse
from astra_mcp.canonical import deeper_than
from astra_mcp.errors import (
    INVALID_ARGUMENTS,
    TOO_MANY_CALLS,
    UNKNOWN_TOOL,
    ClientError,
    EpisodeError,
    JournalError,
)
from astra_mcp.grade import Grade
from astra_mcp.settings import MAX_ARGUMENT_DEPTH, MAX_TEXT

Json = Any
ANSWER: Final = "ANSWER:"
#: Longest arguments of one call, in characters; a host has its own limit on requests above it.
MAX_ARGUMENTS: Final = 200_000
#: Longest name of a tool that is worth asking a host for.
MAX_NAME: Final = 1_000


class Agent(Protocol):
    """Anything that can play one episode; an instance plays one and no more."""

    async def run(self, ctx: AgentContext) -> str | None:
        """Play until the answer.

        Returns:
            The text to submit; None submits the empty answer.

        Raises:
            AstraError: the host or a model failed; the episode gets no reward.
        """


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as a model asked for it: `arguments` is the model's own text, JSON or not."""

    id: str
    name: str
    arguments: str

    def clean(self) -> ToolCall:
        """The call without what no JSON text can hold."""
        return ToolCall(clean(self.id), clean(self.name), clean(self.arguments))


@dataclass
class AgentContext:
    """One episode as its agent sees it.

    Attributes:
        opened: What `open_episode` gave.
        mcp: The agent's plane.
        control: The control plane, for the user's side only.
        messages: The conversation in OpenAI chat form.
        tools_by_turn: The tool list of each turn that had another one, as served.
        call_ms: Time of each call, in milliseconds.
        usage: Numbers that an agent wants in the record, such as tokens.
    """

    opened: OpenedEpisode
    mcp: McpClient
    control: ControlClient
    messages: list[dict[str, Json]] = field(default_factory=list)
    tools_by_turn: list[list[dict[str, Json]]] = field(default_factory=list)
    call_ms: list[float] = field(default_factory=list)
    usage: dict[str, Json] = field(default_factory=dict)
    calls_made: int = 0
    out_of_calls: bool = False
    _tools: list[dict[str, Json]] | None = None

    def __post_init__(self) -> None:
        self.messages += [
            {"role": "system", "content": self.opened.system_prompt},
            {"role": "user", "content": self.opened.message},
        ]

    @property
    def system_prompt(self) -> str:
        """The system prompt of the episode."""
        return self.opened.system_prompt

    @property
    def first_message(self) -> str:
        """The user's first message."""
        return self.opened.message

    @property
    def calls_left(self) -> int:
        """Calls that the episode still allows."""
        return 0 if self.out_of_calls else max(0, self.opened.max_calls - self.calls_made)

    async def tools(self) -> list[dict[str, Json]]:
        """The tools served now, as MCP `Tool` objects; listed again after a turn changed them."""
        if self._tools is None or self.mcp.tools_changed:
            self._tools = await self.mcp.list_tools()
            if not self.tools_by_turn or self.tools_by_turn[-1] != self._tools:
                self.tools_by_turn.append(self._tools)
        return self._tools

    async def call(self, name: str, args: Mapping[str, Json]) -> ToolResponse:
        """One call without words around it.

        Raises:
            ClientError: the exchange failed, or the episode has ended.
        """
        call = ToolCall(f"call_{self.calls_made}", name, orjson.dumps(dict(args)).decode())
        return (await self.call_all("", [call]))[0]

    async def call_all(
        self, text: str, calls: Sequence[ToolCall], extra: Mapping[str, Json] | None = None
    ) -> list[ToolResponse]:
        """Calls that one assistant message asks for, in order.

        Arguments that are no JSON object never reach the host: the agent is told so.

        Args:
            text: What the message says beside them.
            extra: More fields of the assistant message, such as a model's reasoning.
        """
        await self.tools()
        calls = [call.clean() for call in calls]
        self.messages.append(
            {
                "role": "assistant",
                "content": clean(text) or None,
                **(extra or {}),
                "tool_calls": [_openai_call(call) for call in calls],
            }
        )
        responses = []
        for call in calls:
            response = await self._one(call)
            responses.append(response)
            self.messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": response.text}
            )
        return responses

    async def say(self, text: str, extra: Mapping[str, Json] | None = None) -> UserReply:
        """Give the user a message; the reply may bring other tools."""
        text = clean(text)[-MAX_TEXT:]
        self.messages.append({"role": "assistant", "content": text, **(extra or {})})
        reply = await self.control.post_message(self.opened.episode_id, text)
        if reply.text is not None:
            self.messages.append({"role": "user", "content": reply.text})
        if reply.tools_changed:
            self._tools = None
        return reply

    async def submit(self, text: str | None) -> Grade:
        """Submit the final answer; for whoever runs the agent, not for the agent.

        The end of a text that is too long is kept, since the answer stands there.
        """
        answer = clean(text or "")[-MAX_TEXT:]
        last = self.messages[-1]
        if answer and (last["role"], last["content"]) != ("assistant", answer):
            self.messages.append({"role": "assistant", "content": answer})
        return await self.control.submit_answer(self.opened.episode_id, answer)

    def openai_tools(self, tools: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
        """MCP tools in OpenAI's function form."""
        return [openai_tool(tool) for tool in tools]

    async def _one(self, call: ToolCall) -> ToolResponse:
        if len(call.name) > MAX_NAME:
            return ToolResponse(None, f"{UNKNOWN_TOOL}: no such tool", True, UNKNOWN_TOOL)
        args = parse_arguments(call.arguments)
        if isinstance(args, str):
            return ToolResponse(None, f"{INVALID_ARGUMENTS}: {args}", True, INVALID_ARGUMENTS)
        started = time.perf_counter()
        response = await self.mcp.call_tool(call.name, args, uuid.uuid4().hex)
        self.call_ms.append(round((time.perf_counter() - started) * 1000, 3))
        if response.code == TOO_MANY_CALLS:
            self.out_of_calls = True
        elif response.code == EpisodeError.code:
            raise ClientError(
                f"The host ended the episode: {response.text}", "Open the episode again."
            )
        elif response.code == JournalError.code:
            raise ClientError(f"The host cannot record the call: {response.text}")
        else:
            self.calls_made += 1
        return response


def clean(text: str) -> str:
    """The text with lone surrogates, which no JSON file can hold, as question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def parse_arguments(text: str) -> dict[str, Json] | str:
    """Arguments of a model's call, or one sentence on what is wrong with them."""
    if len(text) > MAX_ARGUMENTS:
        return f"the arguments are longer than {MAX_ARGUMENTS} characters"
    try:
        args = orjson.loads(text or "{}")
        orjson.dumps(args)
    except orjson.JSONDecodeError as error:
        return f"the arguments are not valid JSON: {error}"
    except orjson.JSONEncodeError:
        return "the arguments are nested too deeply"
    if deeper_than(args, MAX_ARGUMENT_DEPTH):
        return "the arguments are nested too deeply"
    if not isinstance(args, dict):
        return "the arguments must be a JSON object"
    return args


def openai_tool(tool: Mapping[str, Json]) -> dict[str, Json]:
    """One MCP tool in OpenAI's function form."""
    return {
        "type": "function",
        "function": {
            "name": tool["name"],
            "description": tool.get("description", ""),
            "parameters": tool["inputSchema"],
        },
    }


def _openai_call(call: ToolCall) -> dict[str, Json]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
