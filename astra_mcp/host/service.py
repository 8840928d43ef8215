"""What the transport serves: one MCP server as a plain Python object.

The transport (transport.py) knows JSON-RPC, both protocol eras, sessions and streams, and nothing
about worlds; a service knows tools, resources and state, and nothing about HTTP. Tool arguments
reach the service unvalidated: checking them is the service's part. Tool lists are serialized once,
when a `ToolListing` is made, never per request.

Invariant: a service sees each call once. The transport never repeats a call and never interrupts
one before `Endpoint.call_deadline_s` has passed, because a call may be half-way through a write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from astra_mcp.host.wire import encode

Json = Any
Era = Literal["2025", "2026"]
Progress = Callable[[float, float | None, str | None], Awaitable[None]]

#: Keys of a tool that both protocol eras know; anything else never reaches a client.
TOOL_KEYS: Final = frozenset(
    {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"}
)


class ToolListing:
    """The tools that a service offers at one moment, with their bytes on the wire.

    Args:
        specs: Tools as MCP objects; each needs `name` and an `inputSchema` of type object.

    Attributes:
        specs: The same, as given.
        names: Their names.
        wire: UTF-8 bytes of the JSON array of tools, the same in both protocol eras.
        revision: Hex digest of `wire`; changes exactly when what a client sees changes.

    Raises:
        ValueError: A tool has a key that MCP does not know, no name, a name twice, no object
            schema, or a parameter that a header must repeat: such headers are not compared here.
    """

    __slots__ = ("names", "revision", "specs", "wire")

    def __init__(self, specs: Sequence[Mapping[str, Json]]) -> None:
        self.specs: tuple[Mapping[str, Json], ...] = tuple(specs)
        self.names: frozenset[str] = frozenset(_checked_name(spec) for spec in self.specs)
        if len(self.names) != len(self.specs):
            raise ValueError("Two tools have the same name. Rename one of them.")
        present = [{k: v for k, v in spec.items() if v is not None} for spec in self.specs]
        self.wire: bytes = encode(present)
        if b'"x-mcp-header":' in self.wire:
            raise ValueError("A tool's schema has x-mcp-header. Remove it: no header is compared.")
        self.revision: str = hashlib.sha256(self.wire).hexdigest()[:16]


def _checked_name(spec: Mapping[str, Json]) -> str:
    """The tool's name, once its shape is what the wire needs."""
    name = spec.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("A tool has no name. Give every tool a non-empty `name`.")
    if unknown := sorted(set(spec) - TOOL_KEYS):
        raise ValueError(f"Tool {name!r} has the unknown key {unknown[0]!r}. Remove it.")
    schema = spec.get("inputSchema")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ValueError(f"Tool {name!r} has no inputSchema of type object. Give it one.")
    return name


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave.

    Attributes:
        structured: The result as a JSON object; None for a failure and for text-only tools.
        text: The one text block of the answer; a failure's reads `code: message`.
        is_error: Whether the call failed.
        code: Why, in one word, for those who count; "" for a success. Never sent as it stands.
    """

    structured: Mapping[str, Json] | None
    text: str
    is_error: bool = False
    code: str = field(default="", compare=False)

    @classmethod
    def ok(cls, structured: Mapping[str, Json]) -> ToolResult:
        """A success whose text block is the same object as JSON."""
        return cls(structured, encode(structured).decode())

    @classmethod
    def error(cls, code: str, message: str) -> ToolResult:
        """A failure: `isError` true, text `code: message`, no structured content."""
        return cls(None, f"{code}: {message}", True, code)


@dataclass(slots=True)
class CallContext:
    """What a service may know about one call besides its name and arguments.

    Attributes:
        era: Protocol era of the request.
        client_info: The client's `{"name", "version", ...}` where it told us, else None (2025-era
            calls without a session never tell).
        call_id: `params._meta["astra/callId"]`: the same for a call and for its repetition by a
            client that never saw the first answer; None when absent.
        progress: `await progress(done, total, message)`. The first call turns the answer into a
            stream of events; without a progress token from the client it does nothing.
        cancelled: True once the client has cancelled the call or has gone. A hint for long calls:
            nothing interrupts them.
    """

    era: Era
    client_info: Mapping[str, Json] | None
    call_id: str | None
    progress: Progress
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class ResourceContent:
    """One resource's content as text, or as base64 in `blob`."""

    uri: str
    mime_type: str = "application/json"
    text: str | None = None
    blob: str | None = None


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """One page of a list of resources or templates, as MCP objects.

    Attributes:
        items: `{"uri", "name", "mimeType"?, ...}`, or `{"uriTemplate", "name", ...}` of templates.
        next_cursor: Where the next page starts; None on the last.
    """

    items: Sequence[Mapping[str, Json]]
    next_cursor: str | None = None


class ResourceProvider(Protocol):
    """Resources of a service; a cursor that is not one of its own raises ValueError."""

    def list_resources(self, cursor: str | None) -> ResourcePage:
        """Resources that exist now."""

    def list_templates(self, cursor: str | None) -> ResourcePage:
        """URI templates of resources."""

    async def read(self, uri: str) -> Sequence[ResourceContent]:
        """The resource's contents; raises UnknownResource."""


class McpService(Protocol):
    """One MCP server: an episode's world, a session's world, or the control plane.

    Attributes:
        name: Server name that clients show.
        version: Server version.
        title: Display name, or None.
        instructions: How to use the server, or None.
        resources: None for a service without resources.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102
    @property
    def title(self) -> str | None: ...  # noqa: D102
    @property
    def instructions(self) -> str | None: ...  # noqa: D102
    @property
    def resources(self) -> ResourceProvider | None: ...  # noqa: D102

    def tools(self) -> ToolListing:
        """What tools/list shows now; return the same object until the list changes."""

    async def call_tool(
        self, name: str, arguments: Mapping[str, Json], ctx: CallContext
    ) -> ToolResult:
        """Run one call to its end.

        Raises:
            UnknownTool: Nothing of that name is offered now.
        """

    def subscribe(self, on_tools_changed: Callable[[], None]) -> Callable[[], None]:
        """Call back, on the event loop, whenever `tools()` gives another list; returns the undo."""


@dataclass(slots=True)
class Subscribers:
    """Callbacks of `McpService.subscribe`: what a service whose list changes keeps and notifies."""

    _callbacks: dict[object, Callable[[], None]] = field(default_factory=dict)

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Register; the returned undo may be called any number of times."""
        key = object()
        self._callbacks[key] = callback
        return lambda: void(self._callbacks.pop(key, None))

    def notify(self) -> None:
        """Call every callback once."""
        for callback in list(self._callbacks.values()):
            callback()


def void(_: object) -> None:
    """Drop a value: a subscription's undo returns nothing."""
