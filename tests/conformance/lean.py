"""What the suite's server needs, as a service of the host's own transport.

Names and texts are the suite's. It has tools, resources, progress and a tool list that changes;
what the transport does not speak (prompts, logging, ...) is sdk_server.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from astra_mcp.errors import UnknownResource, UnknownTool
from astra_mcp.host.service import (
    CallContext,
    ResourceContent,
    ResourcePage,
    ResourceProvider,
    Subscribers,
    ToolListing,
    ToolResult,
)

Json = Any
#: One black pixel.
PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
STATIC_TEXT: Final = "This is the content of the static text resource."
SCHEMA_2020_12: Final[Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def template_text(key: str) -> str:
    """The content of test://template/{key}/data."""
    return f'{{"id": "{key}", "templateTest": true, "data": "Data for ID: {key}"}}'


def _tool(name: str, schema: Json = None) -> dict[str, Json]:
    return {
        "name": name,
        "description": f"The suite's {name}.",
        "inputSchema": schema or {"type": "object", "properties": {}},
    }


_TOOLS: Final = [
    _tool("test_simple_text"),
    _tool("test_error_handling"),
    _tool("test_tool_with_progress"),
    _tool("test_trigger_tool_change"),
    _tool("json_schema_2020_12_tool", SCHEMA_2020_12),
]


class LeanResources:
    """The suite's resources."""

    def list_resources(self, cursor: str | None) -> ResourcePage:
        """Two, on one page."""
        if cursor is not None:
            raise ValueError(cursor)
        text = {"uri": "test://static-text", "name": "text", "description": "Static text."}
        binary = {"uri": "test://static-binary", "name": "binary", "description": "A pixel."}
        return ResourcePage([text | {"mimeType": "text/plain"}, binary | {"mimeType": "image/png"}])

    def list_templates(self, cursor: str | None) -> ResourcePage:
        """One."""
        return ResourcePage([{"uriTemplate": "test://template/{id}/data", "name": "template"}])

    async def read(self, uri: str) -> Sequence[ResourceContent]:
        """By address."""
        match uri.removeprefix("test://").split("/"):
            case ["static-text"]:
                return [ResourceContent(uri, "text/plain", STATIC_TEXT)]
            case ["static-binary"]:
                return [ResourceContent(uri, "image/png", blob=PNG)]
            case ["template", key, "data"]:
                return [ResourceContent(uri, "application/json", template_text(key))]
        raise UnknownResource(uri)


class LeanService:
    """The suite's server as far as the host's own transport goes."""

    name = "lean"
    version = "1.0.0"
    title: str | None = "Conformance fixture"
    instructions: str | None = None

    def __init__(self) -> None:
        self.resources: ResourceProvider | None = LeanResources()
        self._listing = ToolListing(_TOOLS)
        self._subscribers = Subscribers()

    def tools(self) -> ToolListing:
        """What is offered now."""
        return self._listing

    def subscribe(self, on_tools_changed: Callable[[], None]) -> Callable[[], None]:
        """Called when a tool comes or goes."""
        return self._subscribers.add(on_tools_changed)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Json], ctx: CallContext
    ) -> ToolResult:
        """Run one of the suite's tools."""
        match name:
            case "test_simple_text":
                return ToolResult(None, "This is a simple text response for testing.")
            case "test_error_handling":
                return ToolResult(
                    None, "This tool intentionally returns an error for testing", True
                )
            case "test_tool_with_progress":
                for done in (0, 50, 100):
                    await ctx.progress(done, 100, f"Completed step {done} of 100")
                return ToolResult(None, "done")
            case "test_trigger_tool_change":
                self._toggle()
                return ToolResult(None, "tool list changed")
            case "json_schema_2020_12_tool":
                return ToolResult(None, "ok")
        raise UnknownTool(name)

    def _toggle(self) -> None:
        extra = [] if "test_dynamic" in self._listing.names else [_tool("test_dynamic")]
        self._listing = ToolListing([*_TOOLS, *extra])
        self._subscribers.notify()
