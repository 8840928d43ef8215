"""What agents connect to: an episode's tools, or an ungraded copy of a world.

Both are services on the transport and show tools only; neither knows a control operation, and no
byte that they give comes from the sealed part except the user turns that `ask_user` has opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from astra_mcp import errors
from astra_mcp.bundle import Server, ToolSpec
from astra_mcp.episode import Episode
from astra_mcp.errors import AstraError, UnknownTool
from astra_mcp.host.metrics import INJECTED
from astra_mcp.host.service import (
    CallContext,
    ResourceProvider,
    Subscribers,
    ToolListing,
    ToolResult,
)
from astra_mcp.rules import ASK_USER, FAULT_TEXT, SUBMIT
from astra_mcp.world import Environment, Outcome, World

Json = Any

_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 20000}
IO_TOOLS: Final[tuple[Mapping[str, Json], ...]] = (
    {
        "name": ASK_USER,
        "description": "Say something to the user or ask for what is missing; gives the reply.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {**_TEXT, "description": "What to say to the user"}},
            "required": ["text"],
            "additionalProperties": False,
        },
    },
    {
        "name": SUBMIT,
        "description": "Give the final answer and end the work; nothing can be called after it.",
        "inputSchema": {
            "type": "object",
            "properties": {"answer": {**_TEXT, "description": "The answer and nothing else"}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    },
)


#: What an agent that submits its own answer hears.
ACCEPTED: Final = ToolResult(None, "accepted")


def wire_tool(spec: ToolSpec) -> dict[str, Json]:
    """A tool as MCP shows it."""
    return {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": spec.input_schema,
        "outputSchema": spec.output_schema,
        "annotations": {"readOnlyHint": spec.effects == "read", "openWorldHint": False},
    }


def result_of(outcome: Outcome) -> ToolResult:
    """An outcome as MCP shows it; one that was made on purpose is counted apart."""
    if (failure := outcome.failure) is not None:
        shown = ToolResult.error(failure.code, failure.message)
        injected = FAULT_TEXT.get(failure.code) == failure.message
        return replace(shown, code=INJECTED) if injected else shown
    return ToolResult.ok(outcome.result)


def instructions_of(servers: Sequence[Server], only: str | None) -> str:
    """Instructions of one server, or of all of them."""
    return "\n".join(s.instructions for s in servers if only in (None, s.name))


class WorldService:
    """An ungraded copy of a world: /envs/<id>/mcp, and bundles served alone.

    Args:
        world: What `environment` is a copy of.
        server: Show only this server's tools.
        release: Called when the copy has ended.
    """

    resources: ResourceProvider | None = None

    def __init__(
        self,
        world: World,
        title: str,
        environment: Environment,
        server: str | None = None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, _, self.version = world.ref.partition("@")
        self.title: str | None = title
        self.instructions: str | None = instructions_of(world.servers, server)
        tools = [tool for tool in world.tools.values() if server in (None, tool.server)]
        self._listing = ToolListing([wire_tool(tool) for tool in tools])
        self._environment = environment
        self._release = release

    def tools(self) -> ToolListing:
        """The world's tools; they never change."""
        return self._listing

    async def call_tool(
        self, name: str, arguments: Mapping[str, Json], ctx: CallContext
    ) -> ToolResult:
        """Run one call in the world."""
        if name not in self._listing.names:
            raise UnknownTool(name)
        return result_of(await self._environment.call(name, arguments, ctx.progress))

    def subscribe(self, on_tools_changed: Callable[[], None]) -> Callable[[], None]:
        """Nothing ever changes, so nothing is kept."""
        return lambda: None

    async def aclose(self) -> None:
        """End the copy."""
        await self._environment.aclose()
        self._release()


class EpisodeService:
    """The agent's plane of one episode: its tools and nothing else.

    Args:
        touch: Called at every request, so that the lease starts anew.
        server: Show only this server's tools, for worlds of several servers.
    """

    resources: ResourceProvider | None = None

    def __init__(
        self, episode: Episode, touch: Callable[[], None], server: str | None = None
    ) -> None:
        manifest = episode.bundle.manifest
        self.name, self.version = manifest.id, manifest.version
        self.title: str | None = manifest.title
        self.instructions: str | None = instructions_of(manifest.servers, server)
        self._episode = episode
        self._touch = touch
        self._server = server
        self._listings: dict[tuple[str, ...], ToolListing] = {}
        self._subscribers = Subscribers()
        episode.on_tools_changed(self._subscribers.notify)

    def tools(self) -> ToolListing:
        """What the agent may call now."""
        self._touch()
        served = self._episode.tools()
        far = self._episode.far
        shown = [t for t in served if t.name in far or self._server in (None, t.server)]
        key = tuple(tool.name for tool in shown)
        if key not in self._listings:
            extra = IO_TOOLS if self._episode.spec.agent_io else ()
            self._listings[key] = ToolListing([*map(wire_tool, shown), *extra])
        return self._listings[key]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Json], ctx: CallContext
    ) -> ToolResult:
        """Run one call of the agent; an unknown one is recorded as a call, too."""
        self._touch()
        try:
            if self._episode.spec.agent_io and name in (ASK_USER, SUBMIT):
                return await self._io(name, arguments, ctx.call_id)
            outcome = await self._episode.call(name, arguments, ctx.call_id, ctx.progress)
        except AstraError as error:
            return ToolResult.error(error.code, str(error))
        if outcome.failure is not None and outcome.failure.code == errors.UNKNOWN_TOOL:
            raise UnknownTool(name)
        return result_of(outcome)

    async def _io(
        self, name: str, arguments: Mapping[str, Json], call_id: str | None
    ) -> ToolResult:
        """Speak for the agent; a repeated call id gives the first reply and says nothing again."""
        key = "text" if name == ASK_USER else "answer"
        text = arguments.get(key)
        if set(arguments) != {key} or not isinstance(text, str) or not text:
            return ToolResult.error(errors.INVALID_ARGUMENTS, f"give {key}, a text, and no more")
        if name == SUBMIT:
            await self._episode.submit(text, call_id=call_id)
            return ACCEPTED
        reply = await self._episode.post_message(text, call_id=call_id)
        return ToolResult(None, reply.text or "The user has nothing more to say.")

    def subscribe(self, on_tools_changed: Callable[[], None]) -> Callable[[], None]:
        """Call back when a user turn shows or hides tools."""
        return self._subscribers.add(on_tools_changed)
