"""What the suite's server needs, as an SDK server: all of it.

Names, texts and shapes are the suite's, from its scenarios and from the SDK's own server for it
(examples/servers/everything-server in modelcontextprotocol/python-sdk).
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from tests.conformance.input_required import add_input_required
from tests.conformance.lean import PNG, SCHEMA_2020_12, STATIC_TEXT, template_text

Json = Any
WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
KEY: Final = b"a fixture's key, the same in each run"


class Events(EventStore):
    """Events of all streams in memory, so that a stream can be taken up where it broke."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Keep one; its id is its place."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send: EventCallback) -> str | None:
        """What came on the same stream after that event."""
        place = int(last_event_id)
        if not 0 < place <= len(self._events):
            return None
        stream = self._events[place - 1][0]
        for number, (stream_id, message) in enumerate(self._events[place:], place + 1):
            if stream_id == stream and message is not None:
                await send(EventMessage(message, str(number)))
        return stream


def everything() -> MCPServer:
    """The suite's server."""
    security = RequestStateSecurity(keys=[KEY])
    server = MCPServer("everything", version="1.0.0", request_state_security=security)
    for add in (_contents, _reports, _questions, _changes, _resources, _prompts, _rarer):
        add(server)
    add_input_required(server)
    return server


def _embedded(uri: str, text: str, mime: str = "text/plain") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime, text=text)
    return types.EmbeddedResource(type="resource", resource=contents)


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


IMAGE: Final = types.ImageContent(type="image", data=PNG, mime_type="image/png")


def _contents(server: MCPServer) -> None:
    """Tools that differ in what they give."""

    @server.tool()
    def test_simple_text() -> str:
        """Text."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> list[types.ImageContent]:
        """An image."""
        return [IMAGE]

    @server.tool()
    def test_audio_content() -> list[types.AudioContent]:
        """Sound."""
        return [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")]

    @server.tool()
    def test_embedded_resource() -> list[types.EmbeddedResource]:
        """A resource."""
        return [_embedded("test://embedded-resource", "This is an embedded resource content.")]

    @server.tool()
    def test_multiple_content_types() -> list[
        types.TextContent | types.ImageContent | types.EmbeddedResource
    ]:
        """Three kinds."""
        data = '{"test": "data", "value": 123}'
        mixed = _embedded("test://mixed-content-resource", data, "application/json")
        return [_text("Multiple content types test:"), IMAGE, mixed]

    @server.tool()
    def test_error_handling() -> str:
        """A failure."""
        raise RuntimeError("This tool intentionally returns an error for testing")

    @server.tool()
    def json_schema_2020_12_tool() -> str:
        """Its schema is the point."""
        return "ok"

    # MCPServer makes schemas from signatures and takes none from outside.
    server._tool_manager._tools["json_schema_2020_12_tool"].parameters = SCHEMA_2020_12


def _reports(server: MCPServer) -> None:
    """Tools that say something while they run."""

    @server.tool()
    async def test_tool_with_logging(ctx: Context) -> str:
        """Three log messages."""
        for message in ("started", "processing data", "completed"):
            await ctx.info(f"Tool execution {message}")
        return "done"

    @server.tool()
    async def test_logging_tool(ctx: Context) -> str:
        """A message that only who asked for it may get."""
        await ctx.info("a message")
        return "done"

    @server.tool()
    async def test_tool_with_progress(ctx: Context) -> str:
        """Three reports."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100, f"Completed step {done} of 100")
        return "done"

    @server.tool()
    async def test_reconnection(ctx: Context) -> str:
        """Hangs up in the middle; the rest is there when the client comes back."""
        await ctx.info("Before disconnect")
        await ctx.close_sse_stream()
        await ctx.info("After reconnect")
        return "Reconnection test completed"

    @server.tool()
    def test_x_mcp_header(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "none",
    ) -> str:
        """A parameter that a header repeats."""
        return f"region={region}"

    @server.tool()
    async def test_missing_capability(ctx: Context) -> str:
        """Works only for clients that sample."""
        declared = ctx.session.client_capabilities
        if declared is None or declared.sampling is None:
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                "This tool requires the client's sampling capability",
                {"requiredCapabilities": {"sampling": {}}},
            )
        return "ok"


class Response(BaseModel):
    """One answer."""

    response: str = Field(description="User's response")


class Defaults(BaseModel):
    """A default for each primitive type (SEP-1034)."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: str = Field("active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
    verified: bool = True


def _titled(**options: str) -> list[Json]:
    return [{"const": value, "title": title} for value, title in options.items()]


class Enums(BaseModel):
    """Each way to say what may be chosen (SEP-1330)."""

    untitledSingle: str = Field(json_schema_extra={"enum": ["active", "inactive", "pending"]})
    titledSingle: str = Field(
        json_schema_extra={"oneOf": _titled(low="Low", medium="Medium", high="High")}
    )
    untitledMulti: list[str] = Field(
        json_schema_extra={"items": {"type": "string", "enum": ["read", "write", "execute"]}}
    )
    titledMulti: list[str] = Field(
        json_schema_extra={"items": {"anyOf": _titled(feature="New", bug="Bug", docs="Docs")}}
    )
    legacyEnum: str = Field(
        json_schema_extra={
            "enum": ["small", "medium", "large"],
            "enumNames": ["Small Size", "Medium Size", "Large Size"],
        }
    )


def _questions(server: MCPServer) -> None:
    """Tools of the 2025 era that ask the client something in the middle of a call."""

    async def ask(ctx: Context, message: str, schema: type[BaseModel]) -> str:
        result = await ctx.elicit(message=message, schema=schema)
        content = result.data.model_dump_json() if result.action == "accept" else "{}"
        return f"action={result.action}, content={content}"

    @server.tool()
    async def test_elicitation(message: str, ctx: Context) -> str:
        """A question."""
        return f"User response: {await ask(ctx, message, Response)}"

    @server.tool()
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        """A form with defaults."""
        return f"Elicitation completed: {await ask(ctx, 'Please check', Defaults)}"

    @server.tool()
    async def test_elicitation_sep1330_enums(ctx: Context) -> str:
        """A form with choices."""
        return f"Elicitation completed: {await ask(ctx, 'Please choose', Enums)}"

    @server.tool()
    async def test_sampling(prompt: str, ctx: Context) -> str:
        """The client's model answers."""
        result = await ctx.session.create_message(
            messages=[types.SamplingMessage(role="user", content=_text(prompt))],
            max_tokens=100,
            related_request_id=ctx.request_id,
        )
        assert result.content.type == "text"
        return f"LLM response: {result.content.text}"


def _changes(server: MCPServer) -> None:
    """Tools that change what is listed."""

    @server.tool()
    async def test_trigger_tool_change(ctx: Context) -> str:
        """Tells listeners that tools have changed."""
        await ctx.notify_tools_changed()
        return "tool list changed"

    @server.tool()
    async def test_trigger_prompt_change(ctx: Context) -> str:
        """Tells listeners that prompts have changed."""
        await ctx.notify_prompts_changed()
        return "prompt list changed"


def _resources(server: MCPServer) -> None:
    @server.resource("test://static-text")
    def static_text() -> str:
        """Text."""
        return STATIC_TEXT

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """An image."""
        return base64.b64decode(PNG)

    @server.resource("test://template/{id}/data")
    def template(id: str) -> str:
        """By its parameter."""
        return template_text(id)

    @server.resource("test://watched-resource")
    def watched() -> str:
        """One to subscribe to."""
        return "Watched resource content"


def _prompts(server: MCPServer) -> None:
    @server.prompt()
    def test_simple_prompt() -> list[UserMessage]:
        """Without arguments."""
        return [UserMessage(_text("This is a simple prompt for testing."))]

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
        """With two."""
        return [UserMessage(_text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
        """With a resource."""
        embedded = _embedded(resourceUri, "Embedded resource content for testing.")
        return [UserMessage(embedded), UserMessage(_text("Please process the resource above."))]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """With an image."""
        return [UserMessage(IMAGE), UserMessage(_text("Please analyze the image above."))]


def _rarer(server: MCPServer) -> None:
    """Methods that MCPServer has no decorator for, and completion."""

    async def agree(ctx: Any, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    low = server._lowlevel_server
    low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, agree)
    low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, agree)
    low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, agree)

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
        return types.Completion(values=[], total=0, has_more=False)
