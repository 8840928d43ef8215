"""Every MCP request but tools/call and the streams: what a service answers at once, as bytes.

A method that the service has nothing for (prompts, logging, completion, resources of a service
without any) is answered with -32601, and its capability is not announced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson

from astra_mcp.errors import UnknownResource
from astra_mcp.host.protocol import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    SERVER_KEY,
    VERSIONS,
    Request,
    RpcError,
    check_implementation,
    invalid_params,
    meta_of,
    modern,
    progress_token,
    result_bytes,
    server_info,
    string_param,
)
from astra_mcp.host.service import Era, McpService, ResourceContent, ResourceProvider
from astra_mcp.host.wire import encode

Json = Any
CacheScope = Literal["private", "public"]


def method_not_found(method: str) -> RpcError:
    """The service does not offer the method, or the era does not know it."""
    return RpcError(METHOD_NOT_FOUND, "Method not found", method)


def check_initialize(params: Mapping[str, Json] | None) -> tuple[str, Mapping[str, Json]]:
    """The revision to speak and the client's description of itself.

    Raises:
        RpcError: A required field is missing or has the wrong type.
    """
    requested = string_param(params, "protocolVersion")
    if params is None or type(params.get("capabilities")) is not dict:
        raise invalid_params("capabilities must be an object")
    info = check_implementation(params.get("clientInfo"))
    known = VERSIONS["2025"]
    return requested if requested in known else known[-1], info


def initialize_result(service: McpService, version: str, list_changed: bool) -> dict[str, Json]:
    """The answer to `initialize`."""
    result: dict[str, Json] = {
        "protocolVersion": version,
        "capabilities": _capabilities(service, list_changed),
        "serverInfo": server_info(service),
    }
    if service.instructions is not None:
        result["instructions"] = service.instructions
    return result


def _capabilities(service: McpService, list_changed: bool) -> dict[str, Json]:
    capabilities: dict[str, Json] = {"tools": {"listChanged": list_changed}}
    if service.resources is not None:
        capabilities["resources"] = {"subscribe": False, "listChanged": False}
    return capabilities


class Dispatcher:
    """Answers of one endpoint.

    Args:
        era: Protocol era of the request.
        list_changed: Whether the endpoint announces changes of its tool list.
        ttl_ms: How long a 2026-era client may reuse what it listed, in milliseconds.
        cache_scope: Whether it may share it with other clients.
    """

    __slots__ = ("_cache", "_era", "_list_changed")

    def __init__(
        self, era: Era, *, list_changed: bool, ttl_ms: int, cache_scope: CacheScope
    ) -> None:
        self._era = era
        self._list_changed = list_changed
        self._cache: dict[str, Json] = {"ttlMs": ttl_ms, "cacheScope": cache_scope}

    async def answer(self, service: McpService, request: Request) -> bytes:
        """The JSON-RPC answer as bytes.

        Raises:
            RpcError: The request fails.
        """
        method = request.method
        meta = meta_of(request.params)
        progress_token(meta)
        if method == "tools/list":
            _no_cursor(request)
            return self._tools(service, request)
        if method == "ping" and self._era == "2025":
            return result_bytes(request.id, {})
        if method == "server/discover" and self._era == "2026":
            return result_bytes(request.id, modern(service, self._discovery(service)))
        if method.startswith("resources/") and service.resources is not None:
            return await self._resources(service, service.resources, request)
        raise method_not_found(method)

    def _tools(self, service: McpService, request: Request) -> bytes:
        head = b'{"jsonrpc":"2.0","id":' + orjson.dumps(request.id) + b',"result":{"tools":'
        wire = service.tools().wire
        if self._era == "2025":
            return head + wire + b"}}"
        rest = {
            **self._cache,
            "resultType": "complete",
            "_meta": {SERVER_KEY: server_info(service)},
        }
        return head + wire + b"," + encode(rest)[1:] + b"}"

    def _discovery(self, service: McpService) -> dict[str, Json]:
        result: dict[str, Json] = {
            "supportedVersions": list(VERSIONS["2026"]),
            "capabilities": _capabilities(service, self._list_changed),
            **self._cache,
        }
        if service.instructions is not None:
            result["instructions"] = service.instructions
        return result

    async def _resources(
        self, service: McpService, resources: ResourceProvider, request: Request
    ) -> bytes:
        try:
            result = await _resource_result(resources, request)
        except ValueError as error:
            raise RpcError(INVALID_PARAMS, "Invalid cursor", "not a cursor of this list") from error
        except UnknownResource as error:
            code = INVALID_PARAMS if self._era == "2026" else RESOURCE_NOT_FOUND
            raise RpcError(code, error.message, {"uri": error.uri}) from error
        if self._era == "2026":
            result = modern(service, {**result, **self._cache})
        return result_bytes(request.id, result)


async def _resource_result(resources: ResourceProvider, request: Request) -> dict[str, Json]:
    match request.method:
        case "resources/list":
            page = resources.list_resources(_cursor(request))
            key = "resources"
        case "resources/templates/list":
            page = resources.list_templates(_cursor(request))
            key = "resourceTemplates"
        case "resources/read":
            contents = await resources.read(string_param(request.params, "uri"))
            return {"contents": [_content(content) for content in contents]}
        case _:
            raise method_not_found(request.method)
    result: dict[str, Json] = {key: list(page.items)}
    if page.next_cursor is not None:
        result["nextCursor"] = page.next_cursor
    return result


def _content(content: ResourceContent) -> dict[str, Json]:
    body: dict[str, Json] = {"uri": content.uri, "mimeType": content.mime_type}
    if content.blob is not None:
        body["blob"] = content.blob
    else:
        body["text"] = content.text or ""
    return body


def _cursor(request: Request) -> str | None:
    cursor = None if request.params is None else request.params.get("cursor")
    if cursor is not None and type(cursor) is not str:
        raise invalid_params("cursor must be a string")
    return cursor


def _no_cursor(request: Request) -> None:
    """Tool lists have one page, so that any cursor is foreign."""
    if _cursor(request) is not None:
        raise RpcError(INVALID_PARAMS, "Invalid cursor", "this list has one page")
