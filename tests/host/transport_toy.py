"""A trusted service with one tool for each thing that a transport can get wrong, and its server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from astra_mcp.errors import AuthError, UnknownResource, UnknownTool
from astra_mcp.host.http import HttpRequest, bearer_token, respond_json
from astra_mcp.host.router import Plain, Route, Router
from astra_mcp.host.server import Limits, ServerInfo, serve
from astra_mcp.host.service import (
    CallContext,
    ResourceContent,
    ResourcePage,
    ResourceProvider,
    Subscribers,
    ToolListing,
    ToolResult,
)
from astra_mcp.host.sessions import Sessions
from astra_mcp.host.transport import Endpoint, McpTransport

Json = Any
TOKEN = "t0ken-of-an-episode-AAAAAAAAAAAAAAAAAAAAAAA"


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until something holds that nobody tells us of; five seconds."""
    with anyio.fail_after(5):
        while not condition():
            await anyio.lowlevel.checkpoint()


def tool(name: str, properties: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """A tool's listing."""
    schema = {"type": "object", "properties": dict(properties or {}), "additionalProperties": False}
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema}


STRING = {"type": "string"}
TOOLS = [
    tool("count"),
    tool("echo", {"text": STRING}),
    tool("steps", {"n": {"type": "integer"}}),
    tool("slow"),
    tool("fail"),
    tool("crash"),
    tool("wide"),
    tool("unserializable"),
    tool("impatient"),
    tool("who"),
]


class ToyResources:
    """Two resources, one a page."""

    def list_resources(self, cursor: str | None) -> ResourcePage:
        if cursor is None:
            return ResourcePage([{"uri": "toy://a", "name": "a"}], "2")
        if cursor == "2":
            return ResourcePage([{"uri": "toy://b", "name": "b", "mimeType": "text/plain"}])
        raise ValueError(cursor)

    def list_templates(self, cursor: str | None) -> ResourcePage:
        return ResourcePage([{"uriTemplate": "toy://{letter}", "name": "letters"}])

    async def read(self, uri: str) -> Sequence[ResourceContent]:
        if uri not in ("toy://a", "toy://b"):
            raise UnknownResource(uri)
        return [ResourceContent(uri, "text/plain", f"content of {uri[-1]}")]


@dataclass
class Toy:
    """The service; each has its own counter."""

    name: str = "toy"
    version: str = "1.2.3"
    title: str | None = "Toy"
    instructions: str | None = "Count."
    resources: ResourceProvider | None = field(default_factory=ToyResources)
    counter: int = 0
    contexts: list[CallContext] = field(default_factory=list)
    release: anyio.Event = field(default_factory=anyio.Event)
    started: anyio.Event = field(default_factory=anyio.Event)
    finished: anyio.Event = field(default_factory=anyio.Event)
    subscribed: anyio.Event = field(default_factory=anyio.Event)
    closed: bool = False
    subscribers: Subscribers = field(default_factory=Subscribers)
    listing: ToolListing = field(default_factory=lambda: ToolListing(TOOLS))

    def tools(self) -> ToolListing:
        return self.listing

    def show(self, specs: Sequence[Mapping[str, Json]]) -> None:
        """Change the list of tools."""
        self.listing = ToolListing(specs)
        self.subscribers.notify()

    def subscribe(self, on_tools_changed: Callable[[], None]) -> Callable[[], None]:
        self.subscribed.set()
        return self.subscribers.add(on_tools_changed)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Json], ctx: CallContext
    ) -> ToolResult:
        self.contexts.append(ctx)
        match name:
            case "count":
                self.counter += 1
                return ToolResult.ok({"count": self.counter})
            case "echo":
                return ToolResult.ok({"text": arguments.get("text"), "call_id": ctx.call_id})
            case "steps":
                for step in range(arguments["n"]):
                    await ctx.progress(step + 1, arguments["n"], f"step {step + 1}")
                return ToolResult.ok({"done": True})
            case "slow":
                self.started.set()
                await self.release.wait()
                self.counter += 1
                self.finished.set()
                return ToolResult.ok({"cancelled": ctx.cancelled})
            case "fail":
                return ToolResult.error("not_found", "No such thing.")
            case "crash":
                raise RuntimeError("the sealed answer is 42")
            case "wide":
                return ToolResult.ok({"wide": 2**80})
            case "impatient":
                raise TimeoutError("the service's own")
            case "unserializable":
                return ToolResult({"half": "\ud800"}, "half a character")
            case "who":
                return ToolResult.ok({"client": ctx.client_info, "era": ctx.era})
        raise UnknownTool(name)


@dataclass
class World:
    """A listening server with every kind of endpoint."""

    url: str
    episode: Toy
    still: Toy
    sessions: Sessions
    made: list[Toy]
    transport: McpTransport
    stop: anyio.Event
    router: Router

    @property
    def episode_url(self) -> str:
        return f"{self.url}/episodes/{TOKEN}/mcp"

    @property
    def envs_url(self) -> str:
        return f"{self.url}/envs/toy/mcp"

    @property
    def still_url(self) -> str:
        return f"{self.url}/still/mcp"


@asynccontextmanager
async def running(
    *, limits: Limits | None = None, call_deadline_s: float = 60.0, drain_s: float = 2.0
) -> AsyncIterator[World]:
    """Serve in this process until the block ends.

    /episodes/<TOKEN>/mcp has one service and announces changes; /still/mcp has one and announces
    none; /envs/toy/mcp makes one for each session.
    """
    made: list[Toy] = []

    async def open_service(client: Mapping[str, Json]) -> Toy:
        made.append(Toy())
        return made[-1]

    async def close_service(service: Any) -> None:
        service.closed = True

    async def health(request: HttpRequest) -> None:
        await respond_json(request, {"status": "ok"})

    async def boom(request: HttpRequest) -> None:
        raise RuntimeError("the sealed answer is 42")

    episode, still = Toy(), Toy()
    sessions = Sessions(open_service, close_service, limit=8)
    served = Endpoint(episode, call_deadline_s=call_deadline_s)
    quiet = Endpoint(still, list_changed=False, call_deadline_s=call_deadline_s)
    envs = Endpoint(sessions=sessions, eras=frozenset({"2025"}))

    async def resolve(request: HttpRequest) -> Route | None:
        match request.segments:
            case ("episodes", token, "mcp") if token == TOKEN:
                return served
            case ("still", "mcp"):
                return quiet
            case ("envs", "toy", "mcp"):
                return envs
            case ("healthz",):
                return Plain(health)
            case ("boom",):
                return Plain(boom)
            case ("control", "mcp"):
                if bearer_token(request.headers) != "control":
                    raise AuthError("The token is not valid here.", "Send the right one.")
                return quiet
        return None

    router = Router(resolve)
    stop, ready = anyio.Event(), anyio.Event()
    infos: list[ServerInfo] = []

    def on_ready(info: ServerInfo) -> None:
        infos.append(info)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            lambda: serve(
                router,
                ready=on_ready,
                shutdown=stop,
                drain_s=drain_s,
                catch_signals=False,
                limits=limits or Limits(),
            )
        )
        with anyio.fail_after(10):
            await ready.wait()
        try:
            yield World(
                infos[0].url, episode, still, sessions, made, router.transport, stop, router
            )
        finally:
            stop.set()
