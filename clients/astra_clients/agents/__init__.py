"""Agents: the protocol, the scripted ones, the chat loop, and how they are named in a plan.

`make_agent` is the only place that knows every kind. A spec is plain data (it is hashed into a
collection's configuration), so nothing secret may stand in it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Self

import openai
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from astra_clients.agents.base import Agent, AgentContext, ToolCall, openai_tool
from astra_clients.agents.chat import ChatAgent, ChatSettings
from astra_clients.agents.golden import GoldenAgent, NoisyAgent, RepeatAgent
from astra_clients.agents.simple import NullAgent, RandomAgent
from astra_mcp.bundle import Bundle
from astra_mcp.errors import UsageError
from astra_mcp.task import Task

Json = Any
Kind = Literal["golden", "noisy", "repeat", "null", "random", "chat"]
#: Kinds that need the sealed task.
SEALED_KINDS: Final = frozenset({"golden", "noisy", "repeat"})

__all__ = [
    "SEALED_KINDS",
    "Agent",
    "AgentContext",
    "AgentSpec",
    "ChatAgent",
    "ChatSettings",
    "GoldenAgent",
    "NoisyAgent",
    "NullAgent",
    "RandomAgent",
    "RepeatAgent",
    "ToolCall",
    "chat_settings",
    "make_agent",
    "openai_tool",
]


class AgentSpec(BaseModel):
    """An agent as data.

    `options` by kind: golden and noisy `retries`; noisy `rate`; random `calls`; chat every field of
    `ChatSettings`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=120)
    """Stands in every record as `agent`."""
    kind: Kind
    options: dict[str, Json] = {}

    @classmethod
    def parse(cls, text: str) -> Self:
        """`kind`, `kind:key=value,key=value` or `name=kind:...`; values are JSON or words.

        Without a name, a chat agent has its model's, and any other the text itself.

        Raises:
            UsageError: the text has another form.
        """
        head, _, tail = text.partition(":")
        name, _, kind = head.rpartition("=")
        options: dict[str, Json] = {}
        for part in filter(None, tail.split(",")):
            key, equals, value = part.partition("=")
            if not equals:
                raise _bad_spec(text, f"{part!r} is no key=value")
            options[key.strip()] = _json_or_text(value)
        try:
            return cls.model_validate(
                {"name": name or _name(text, kind, options), "kind": kind, "options": options}
            )
        except ValidationError as error:
            raise _bad_spec(text, error.errors()[0]["msg"]) from error

    @property
    def sealed(self) -> bool:
        """Whether it needs the sealed task."""
        return self.kind in SEALED_KINDS


def make_agent(
    spec: AgentSpec,
    bundle: Bundle | None,
    task_id: str,
    seed: int,
    client: openai.AsyncOpenAI | None = None,
) -> Agent:
    """A fresh agent for one episode.

    Args:
        spec: Which one.
        bundle: The loaded bundle, for the kinds that need the sealed task.
        task_id: The task's id within the bundle.
        seed: The episode's seed.
        client: A model client for chat agents to share; by default each makes its own.

    Raises:
        UsageError: the bundle is missing, or an option does not exist.
    """
    options = dict(spec.options)
    try:
        if spec.kind == "chat":
            return ChatAgent(chat_settings(spec), client, seed)
        if spec.kind == "null":
            return NullAgent(**options)
        if spec.kind == "random":
            return RandomAgent(seed=seed, **options)
        task = _sealed_task(spec, bundle, task_id)
        if spec.kind == "repeat":
            return RepeatAgent(task, **options)
        if spec.kind == "noisy" and bundle is not None:
            return NoisyAgent(task, bundle=bundle, seed=seed, **options)
        return GoldenAgent(task, **options)
    except TypeError as error:
        raise _bad_spec(spec.name, str(error).splitlines()[0]) from error


def _sealed_task(spec: AgentSpec, bundle: Bundle | None, task_id: str) -> Task:
    if bundle is None:
        raise UsageError(
            f"Agent {spec.name} needs the sealed task, and its bundle is not loaded.",
            "Give the bundle's path, or use an agent that knows no plan.",
        )
    try:
        return bundle.task(task_id)
    except KeyError as error:
        raise UsageError(
            f"Bundle {bundle.ref} has no task {task_id}.", "Name one of its tasks."
        ) from error


def chat_settings(spec: AgentSpec) -> ChatSettings:
    """The settings of a chat agent.

    Raises:
        UsageError: an option does not exist or has a wrong value.
    """
    try:
        return ChatSettings.model_validate(spec.options)
    except ValidationError as error:
        first = error.errors()[0]
        raise _bad_spec(spec.name, f"{first['loc'][0]}: {first['msg']}") from error


def _name(text: str, kind: str, options: dict[str, Json]) -> str:
    return str(options.get("model", text)) if kind == "chat" else text


def _json_or_text(value: str) -> Json:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _bad_spec(text: str, why: str) -> UsageError:
    return UsageError(
        f"Agent {text!r} cannot be made: {why}.",
        "Write kind or kind:key=value,...; kinds: golden, noisy, repeat, null, random, chat.",
    )
