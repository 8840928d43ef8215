"""A thin MCP client over HTTP for rollouts: many small clients on one connection pool.

Promises: both protocol eras, JSON and SSE answers, a deadline on every wait, errors as
`ClientError`, `AuthError` or `BusyError`. A failing tool is no exception but a `ToolResponse` with
`is_error`. `tools/call` is repeated after a lost connection only when a call id is given, by which
the host answers a repeated call from memory. Does not: negotiate eras, hold a stream open, validate
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import anyio

from astra_clients.exchange import Exchange, McpSettings, Outgoing
from astra_clients.wire import (
    CALL_ID_KEY,
    CLIENT_INFO,
    LEGACY_VERSION,
    LEGACY_VERSIONS,
    Era,
    base_headers,
    envelope,
    modern_headers,
    notification_bytes,
    request_bytes,
)
from astra_mcp.errors import INVALID_ARGUMENTS, UNKNOWN_TOOL, ClientError

Json = Any
OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]

_CODE = re.compile(r"([a-z][a-z0-9_]{0,63}): ")
_UNKNOWN: Final = "Unknown tool"
_INVALID_PARAMS: Final = -32602
_MAX_PAGES: Final = 100


@dataclass(frozen=True, slots=True)
class ToolResponse:
    """What one tool call gave.

    Attributes:
        structured: `structuredContent`, when there is any; a failure seldom has some.
        text: The text parts, joined by newlines; for an error `code: message`.
        is_error: Whether the call failed.
        code: The failure's code where the text names one, else "error"; None on success.
    """

    structured: dict[str, Json] | None
    text: str
    is_error: bool
    code: str | None = None


class McpClient:
    """One MCP endpoint, seen through a shared connection pool.

    Args:
        pool: A session made by `new_pool`; the client never closes it.
        url: The endpoint, such as `http://127.0.0.1:8000/episodes/<token>/mcp`.
        era: "2026" needs no opening; "2025" sends `initialize` on entering the context.
        token: Sent as `Authorization: Bearer`.
        session_id: Era 2025: join this session instead of opening one.
        settings: Deadlines, retries and sizes.
        client_info: Name and version that the server is told.
        on_progress: Awaited with (progress, total, message) for each progress notification.
    """

    def __init__(
        self,
        pool: aiohttp.ClientSession,
        url: str,
        *,
        era: Era = "2026",
        token: str | None = None,
        session_id: str | None = None,
        settings: McpSettings | None = None,
        client_info: Mapping[str, str] = CLIENT_INFO,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.era: Era = era
        self.session_id = session_id
        self.server_info: dict[str, Json] = {}
        self.tools_changed = False
        """Set when a stream said so; `list_tools` clears it."""
        self._exchange = Exchange(pool, url, settings or McpSettings(), self._on_notification)
        self._client_info = dict(client_info)
        self._headers = base_headers(token)
        self._envelope = envelope(client_info)
        self._on_progress = on_progress
        self._next_id = 0
        self._owns_session = False
        if era == "2025" and session_id is not None:
            self._join(LEGACY_VERSION, session_id)

    async def __aenter__(self) -> Self:
        if self.era == "2025" and self.session_id is None:
            await self.initialize()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()

    async def initialize(self) -> dict[str, Json]:
        """Open a session of era 2025.

        Returns:
            The server's `initialize` result.

        Raises:
            ClientError: the server answers with a version that is not of that era.
        """
        params = {
            "protocolVersion": LEGACY_VERSION,
            "capabilities": {},
            "clientInfo": self._client_info,
        }
        answer = await self._exchange.send(self._encode("initialize", params, repeatable=True))
        result = self._result("initialize", answer.message)
        version = result.get("protocolVersion")
        if version not in LEGACY_VERSIONS:
            raise ClientError(
                f"The server at {self._exchange.where} speaks protocol {version!r}.",
                'Use era="2026" for it.',
            )
        self.server_info = result.get("serverInfo") or {}
        self._join(version, answer.session_id)
        self._owns_session = answer.session_id is not None
        method = "notifications/initialized"
        await self._exchange.notify(method, notification_bytes(method), self._headers)
        return result

    async def list_tools(self) -> list[dict[str, Json]]:
        """All tools as MCP `Tool` objects, whatever the number of pages.

        Raises:
            ClientError, AuthError, BusyError: see the module.
        """
        self.tools_changed = False
        tools: list[dict[str, Json]] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            page = await self.request("tools/list", params, repeatable=True)
            tools += page.get("tools", [])
            cursor = page.get("nextCursor")
            if cursor is None:
                return tools
        raise ClientError(
            f"The tool list of {self._exchange.where} does not end after {_MAX_PAGES} pages.",
            "Ask the server's owner to mend its pagination.",
        )

    async def call_tool(
        self, name: str, args: Mapping[str, Json], call_id: str | None = None
    ) -> ToolResponse:
        """Call one tool.

        Args:
            name: The tool.
            args: Its arguments, JSON.
            call_id: The call's identity for the host; with it a lost answer is asked for again.

        Raises:
            ClientError, AuthError, BusyError: the exchange failed; a failing tool raises nothing.
        """
        params: dict[str, Json] = {"name": name, "arguments": dict(args)}
        if call_id is not None:
            params["_meta"] = {CALL_ID_KEY: call_id}
        out = self._encode("tools/call", params, repeatable=call_id is not None)
        reply = (await self._exchange.send(out)).message
        error = reply.get("error")
        if error and error.get("code") == _INVALID_PARAMS:
            # What a model got wrong is its own to see; it must not look like a failing server.
            message = str(error.get("message", ""))
            code = UNKNOWN_TOOL if message.startswith(_UNKNOWN) else INVALID_ARGUMENTS
            return ToolResponse(None, f"{code}: {message}", True, code)
        return _tool_response(self._result("tools/call", reply))

    async def read_resource(self, uri: str) -> list[dict[str, Json]]:
        """The `contents` of one resource.

        Raises:
            ClientError, AuthError, BusyError: see the module.
        """
        result = await self.request("resources/read", {"uri": uri}, repeatable=True)
        return list(result.get("contents", []))

    async def request(
        self, method: str, params: Mapping[str, Json], *, repeatable: bool = False
    ) -> dict[str, Json]:
        """Any request; `repeatable` says that sending it twice does no harm.

        Returns:
            The result object.

        Raises:
            ClientError, AuthError, BusyError: see the module; JSON-RPC errors are `ClientError`s.
        """
        answer = await self._exchange.send(self._encode(method, params, repeatable=repeatable))
        return self._result(method, answer.message)

    async def aclose(self) -> None:
        """End a session that this client opened; a server that is gone is no error."""
        if self._owns_session:
            self._owns_session = False
            await self._exchange.delete(self._headers)

    def _encode(self, method: str, params: Mapping[str, Json], *, repeatable: bool) -> Outgoing:
        self._next_id += 1
        headers = self._headers
        meta: dict[str, Json] = dict(params.get("_meta") or {})
        if self.era == "2026":
            headers = headers | modern_headers(method, params)
            meta = self._envelope | meta
        if self._on_progress is not None:
            meta["progressToken"] = self._next_id
        if meta:
            params = {**params, "_meta": meta}
        try:
            body = request_bytes(self._next_id, method, params)
        except TypeError as error:
            raise ClientError(
                f"The parameters of {method} are no JSON: {error}.", "Send JSON values only."
            ) from error
        return Outgoing(self._next_id, method, body, headers, repeatable)

    def _join(self, version: str, session_id: str | None) -> None:
        self._headers = {**self._headers, "mcp-protocol-version": version}
        if session_id is not None:
            self.session_id = session_id
            self._headers["mcp-session-id"] = session_id

    def _result(self, method: str, reply: Mapping[str, Json]) -> dict[str, Json]:
        where = self._exchange.where
        if (error := reply.get("error")) is not None:
            raise ClientError(
                f"{where} refused {method}: {error.get('message')} (code {error.get('code')}).",
                "Check the request and the protocol era.",
            )
        result = reply.get("result")
        if not isinstance(result, dict) or result.get("resultType", "complete") != "complete":
            raise ClientError(
                f"{where} answered {method} with a result this client cannot use.",
                "Only complete results are supported; no input can be given during a call.",
            )
        return result

    async def _on_notification(self, message: dict[str, Json]) -> None:
        method = message.get("method")
        if method == "notifications/tools/list_changed":
            self.tools_changed = True
        elif method == "notifications/progress" and self._on_progress is not None:
            params = message.get("params") or {}
            await self._on_progress(
                float(params.get("progress", 0.0)), params.get("total"), params.get("message")
            )


def _tool_response(result: Mapping[str, Json]) -> ToolResponse:
    parts = result.get("content") or []
    text = "\n".join(part["text"] for part in parts if part.get("type") == "text")
    structured = result.get("structuredContent")
    if not result.get("isError", False):
        return ToolResponse(structured, text, False)
    if text.startswith(_UNKNOWN):
        return ToolResponse(None, text, True, UNKNOWN_TOOL)
    match = _CODE.match(text)
    return ToolResponse(structured, text, True, match[1] if match else "error")
