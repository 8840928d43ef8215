"""Bundles and recorded tool results that client tests play with, without a host.

`Script` is a stand-in for both planes of one episode: it answers calls from a table, opens turns as
the task says, and records what it was asked. It grades nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from astra_clients.agents import AgentContext
from astra_clients.control import OpenedEpisode, UserReply
from astra_clients.mcp_client import ToolResponse
from astra_mcp.bundle import Bundle
from astra_mcp.task import Task

Json = Any
Tool = Callable[[dict[str, Json]], Json]


def opened(task: Task, max_calls: int | None = None, language: str = "en") -> OpenedEpisode:
    return OpenedEpisode(
        episode_id="ep_1",
        task=f"test@1.0.0#{task.id}",
        digest="sha256:d",
        world_digest="sha256:w",
        seed=0,
        language=language,
        system_prompt="You are an assistant.",
        message=task.turns[0].say,
        endpoint="http://unused.invalid/mcp",
        token="tok-secret",
        max_calls=max_calls or task.max_calls,
        canary="canary-0001",
    )


@dataclass
class Script:
    """Both planes of one episode; see the module."""

    task: Task
    tools: Mapping[str, Tool]
    schemas: Mapping[str, dict[str, Json]] = field(default_factory=dict)
    fail: Callable[[int], ToolResponse | None] = lambda index: None
    calls: list[tuple[str, dict[str, Json]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    listed: int = 0
    submitted: str | None = None
    turn: int = 0
    tools_changed: bool = False

    def context(self, max_calls: int | None = None, language: str = "en") -> AgentContext:
        opening = opened(self.task, max_calls, language)
        return AgentContext(opening, self, self)  # type: ignore[arg-type]

    # the agent's plane
    async def list_tools(self) -> list[dict[str, Json]]:
        self.listed += 1
        return self.listing()

    async def call_tool(
        self, name: str, args: Mapping[str, Json], call_id: str | None = None
    ) -> ToolResponse:
        return self.answer(name, args)

    def listing(self) -> list[dict[str, Json]]:
        hidden = set(self.task.turns[self.turn].hide)
        any_object = {"type": "object", "properties": {}, "additionalProperties": True}
        return [
            {"name": name, "description": name, "inputSchema": self.schemas.get(name, any_object)}
            for name in self.tools
            if name not in hidden
        ]

    def answer(self, name: str, args: Mapping[str, Json]) -> ToolResponse:
        index = len(self.calls)
        self.calls.append((name, dict(args)))
        if (failure := self.fail(index)) is not None:
            return failure
        if name not in self.tools:
            return ToolResponse(None, "unknown_tool: no", True, "unknown_tool")
        result = self.tools[name](dict(args))
        return ToolResponse(result, str(result), False)

    # the user's side
    async def post_message(self, episode_id: str, text: str) -> UserReply:
        return self.reply(text)

    def reply(self, text: str) -> UserReply:
        self.said.append(text)
        if self.turn + 1 >= len(self.task.turns):
            return UserReply(kind="end")
        following = self.task.turns[self.turn + 1]
        asked = any(word.lower() in text.lower() for word in following.ask_words)
        if following.opens == "asked" and not asked:
            return UserReply(kind="nudge", text="Please go on.")
        changed = set(self.task.turns[self.turn].hide) != set(following.hide)
        self.turn += 1
        return UserReply(kind="user", text=following.say, tools_changed=changed)


def failure(code: str, message: str = "no") -> ToolResponse:
    return ToolResponse(None, f"{code}: {message}", True, code)


def small_task() -> Task:
    """Three steps in three turns: one has to ask, and a tool appears in the last."""
    return Task.model_validate(
        {
            "id": "t1",
            "title": "A pickup for a broken laptop",
            "turns": [
                {
                    "id": "u1",
                    "say": "Laptop LT-1 is broken: open a ticket and book its pickup.",
                    "hide": ["book_pickup"],
                },
                {
                    "id": "u2",
                    "opens": "asked",
                    "slot": "floor",
                    "slot_values": [3],
                    "ask_words": ["which floor"],
                    "say": "Floor 3.",
                    "hide": ["book_pickup"],
                },
                {"id": "u3", "opens": "next", "say": "Pickups work now. What is the code?"},
            ],
            "plan": [
                {"id": "s1", "turn": "u1", "tool": "get_asset", "args": {"tag": "LT-1"}},
                {
                    "id": "s2",
                    "turn": "u1",
                    "tool": "open_ticket",
                    "args": {"owner": {"$expr": "s1.owner"}},
                },
                {
                    "id": "s3",
                    "turn": "u3",
                    "tool": "book_pickup",
                    "args": {"ticket": {"$expr": "s2.ticket"}, "floor": 3},
                },
            ],
            "subtasks": [
                {"id": "q1", "ask": "Whose is it?", "steps": ["s1"]},
                {"id": "q2", "ask": "Open the ticket.", "after": ["q1"], "steps": ["s2"]},
                {"id": "q3", "ask": "Ask for the floor.", "kind": "ask"},
                {"id": "q4", "ask": "Book it.", "turn": "u3", "after": ["q2"], "steps": ["s3"]},
            ],
            "answer": {
                "value": "PU-TK-EM-58-3",
                "expr": "s3.code",
                "match": {"kind": "exact"},
                "accept": ["PU-TK-EM-58-3"],
            },
            "difficulty": {
                "level": 3,
                "hops": 3,
                "steps": 3,
                "width": 1,
                "turns": 3,
                "writes": 2,
                "tools": 3,
            },
            "max_calls": 8,
        }
    )


def bundle_of(task: Task) -> Bundle:
    """A bundle around a task whose tools read when their name says get, and write otherwise."""
    anything = {"type": "object", "properties": {}, "additionalProperties": False}
    names = sorted({step.tool for step in task.plan})
    return Bundle.model_validate(
        {
            "format": "astra-mcp/bundle@1",
            "manifest": {
                "id": "test",
                "version": "1.0.0",
                "title": "Test",
                "summary": "A world for tests of agents.",
                "domain": "testing",
                "license": "CC0-1.0",
                "now": "2025-01-01T00:00:00Z",
                "provenance": {"backend": "hand", "generator": "tests/1"},
                "servers": [{"name": "main", "instructions": "A world for tests."}],
                "tools": [
                    {
                        "name": name,
                        "description": f"The tool {name} of a world for tests.",
                        "input_schema": anything,
                        "output_schema": anything,
                        "effects": "read" if name.startswith("get") else "write",
                    }
                    for name in names
                ],
            },
            "code": "",
            "state": {},
            "sealed": {"canary": "canary-0001", "tasks": [task]},
        }
    )
