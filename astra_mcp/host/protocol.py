"""MCP messages of both eras as pure functions: what is well-formed, and the bytes of each answer.

Two eras. "2025" is every revision with the `initialize` handshake, 2024-11-05 to 2025-11-25;
"2026" is 2026-07-28: stateless, an envelope in `params._meta` of each request, repeated in headers.
The checks of the 2026 era run in the order that the official SDK has, so that a request with two
faults is told the same one. Nothing here touches the network or a service.

Source: the specification at modelcontextprotocol.io (revisions 2025-11-25 and 2026-07-28), and the
Python SDK `mcp` 2.3 where the text leaves a choice; tests compare with the SDK.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from astra_mcp.canonical import deeper_than
from astra_mcp.host.service import Era, McpService
from astra_mcp.host.wire import encode
from astra_mcp.settings import MAX_JSON_DEPTH

Json = Any
RequestId = int | str

VERSIONS: Final[Mapping[Era, tuple[str, ...]]] = {
    "2025": ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"),
    "2026": ("2026-07-28",),
}
_LEGACY_HEADERS: Final = frozenset(version.encode() for version in VERSIONS["2025"])

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002  # handshake era only; 2026-07-28 uses INVALID_PARAMS
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022
REQUEST_CANCELLED: Final = -32800
#: HTTP status of an error of the 2026 era; any other code, and every one of the 2025 era, is 200.
MODERN_STATUS: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
CALL_ID_KEY: Final = "astra/callId"

VERSION_HEADER: Final = b"mcp-protocol-version"
SESSION_HEADER: Final = b"mcp-session-id"
METHOD_HEADER: Final = b"mcp-method"
NAME_HEADER: Final = b"mcp-name"
#: Parameter that `Mcp-Name` repeats, by method.
_NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
}


class RpcError(Exception):
    """A request that is answered with a JSON-RPC error.

    Args:
        code: JSON-RPC code.
        message: One sentence.
        data: Further facts for programs.
        status: HTTP status; None means the one that the era gives to the code.
    """

    def __init__(
        self, code: int, message: str, data: Json = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status

    def http_status(self, era: Era) -> int:
        """The HTTP status of this error in an era."""
        if self.status is not None:
            return self.status
        return MODERN_STATUS.get(self.code, 200) if era == "2026" else 200


def invalid_params(what: str) -> RpcError:
    """The parameters of a request have a wrong shape; `what` names the field."""
    return RpcError(INVALID_PARAMS, "Invalid request parameters", what)


def unsupported_version(requested: Json, supported: Iterable[str]) -> RpcError:
    """This endpoint does not serve the revision; `data` says which it serves."""
    data = {"supported": list(supported), "requested": requested}
    return RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data, 400)


# ---- messages in ----------------------------------------------------------------------------


@dataclass(slots=True)
class Request:
    """A well-formed JSON-RPC request: it is owed an answer with its id."""

    id: RequestId
    method: str
    params: dict[str, Json] | None


@dataclass(slots=True)
class Notification:
    """A well-formed JSON-RPC notification: it is never answered."""

    method: str
    params: dict[str, Json] | None


@dataclass(slots=True)
class Response:
    """A client's answer to a request of ours. We send none, so it is taken and dropped."""


Message = Request | Notification | Response


def parse(body: bytes) -> Message:
    """One JSON-RPC message from a request body.

    Integers beyond 64 bits arrive as floats; nesting beyond 1024 levels is a parse error.

    Raises:
        RpcError: -32700 for what is no JSON, -32600 for a batch, a malformed message, or one that
            is nested deeper than `MAX_JSON_DEPTH`; status 400.
    """
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RpcError(PARSE_ERROR, "Parse error: the body is not JSON.", status=400) from error
    if body.count(b"[") + body.count(b"{") > MAX_JSON_DEPTH and deeper_than(
        message, MAX_JSON_DEPTH
    ):
        raise _malformed(f"The message is nested deeper than {MAX_JSON_DEPTH} levels.")
    if type(message) is not dict or message.get("jsonrpc") != "2.0":
        raise _malformed("Body must be a single JSON-RPC 2.0 message; batches are not taken.")
    method = message.get("method")
    if type(method) is not str:
        if "method" not in message and ("result" in message or "error" in message):
            return Response()
        raise _malformed("A JSON-RPC message needs a method.")
    params = message.get("params")
    if params is not None and type(params) is not dict:
        raise _malformed("The params of a JSON-RPC message must be an object.")
    if "id" not in message:
        return Notification(method, params)
    request_id = message["id"]
    if type(request_id) is not int and type(request_id) is not str:
        raise _malformed("The id of a JSON-RPC request must be a string or an integer.")
    return Request(request_id, method, params)


def _malformed(message: str) -> RpcError:
    return RpcError(INVALID_REQUEST, message, status=400)


def era_of(version_header: bytes | None) -> Era:
    """The era that a request claims: known handshake versions and no version are "2025"."""
    return "2025" if version_header is None or version_header in _LEGACY_HEADERS else "2026"


def meta_of(params: Mapping[str, Json] | None) -> Mapping[str, Json]:
    """`params._meta`, {} when absent.

    Raises:
        RpcError: It is there and no object.
    """
    meta = None if params is None else params.get("_meta")
    if meta is None:
        return {}
    if type(meta) is not dict:
        raise invalid_params("_meta must be an object")
    return meta


def progress_token(meta: Mapping[str, Json]) -> int | str | None:
    """`_meta.progressToken`, a string or an integer, or None."""
    token = meta.get("progressToken")
    if token is None or type(token) is str or type(token) is int:
        return token
    raise invalid_params("_meta.progressToken must be a string or an integer")


def string_param(params: Mapping[str, Json] | None, key: str) -> str:
    """A required string parameter."""
    value = None if params is None else params.get(key)
    if type(value) is not str:
        raise invalid_params(f"{key} must be a string")
    return value


def check_modern(
    request: Request, headers: Mapping[bytes, bytes], raw: Sequence[tuple[bytes, bytes]]
) -> Mapping[str, Json]:
    """The envelope of a 2026-era request, once it and its headers agree.

    Args:
        request: The message.
        headers: Lower-case names to values.
        raw: The same with repetitions: a routing header that comes twice is refused.

    Raises:
        RpcError: The first fault, in the SDK's order.
    """
    if len(raw) != len(headers) and (name := _repeated(raw)) is not None:
        raise RpcError(HEADER_MISMATCH, f"{name} header appears more than once")
    meta = None if request.params is None else request.params.get("_meta")
    if type(meta) is not dict:
        need = f"the required {VERSION_KEY!r} and {CAPABILITIES_KEY!r} envelope keys"
        raise RpcError(INVALID_PARAMS, f"params._meta must be an object carrying {need}")
    if VERSION_KEY not in meta or CAPABILITIES_KEY not in meta:
        listed = ", ".join(key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta)
        message = f"params._meta is missing the required envelope key(s): {listed}"
        raise RpcError(INVALID_PARAMS, message)
    _check_headers(request, meta, headers)
    if meta[VERSION_KEY] not in VERSIONS["2026"]:
        raise unsupported_version(meta[VERSION_KEY], VERSIONS["2026"])
    if type(meta[CAPABILITIES_KEY]) is not dict:
        raise invalid_params(f"{CAPABILITIES_KEY} must be an object")
    if meta.get(CLIENT_KEY) is not None:
        check_implementation(meta[CLIENT_KEY])
    return meta


def _repeated(raw: Sequence[tuple[bytes, bytes]]) -> str | None:
    seen = set()
    for name, _ in raw:
        if name in seen:
            return name.decode()
        if name in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER):
            seen.add(name)
    return None


def _check_headers(
    request: Request, meta: Mapping[str, Json], headers: Mapping[bytes, bytes]
) -> None:
    version = headers.get(VERSION_HEADER)
    if version is None or version.decode("latin-1") != meta[VERSION_KEY]:
        what = "mcp-protocol-version header does not match the request envelope's protocol version"
        raise RpcError(HEADER_MISMATCH, what)
    method = headers.get(METHOD_HEADER)
    if method is None or method.decode("latin-1") != request.method:
        what = "mcp-method header does not match the request body's method"
        raise RpcError(HEADER_MISMATCH, what)
    key = _NAMED.get(request.method)
    if key is None or request.params is None or (value := request.params.get(key)) is None:
        return
    if _header_text(headers.get(NAME_HEADER)) != value:
        what = f"mcp-name header does not match the request body's {key!r} parameter"
        raise RpcError(HEADER_MISMATCH, what)


def _header_text(value: bytes | None) -> str | None:
    """A header's text, decoded where it is wrapped as `=?base64?...?=`; None when it is broken."""
    if value is None:
        return None
    if not (value.startswith(b"=?base64?") and value.endswith(b"?=") and len(value) >= 11):
        return value.decode("latin-1")
    payload = value[9:-2]
    try:
        decoded = base64.b64decode(payload, validate=True)
        return decoded.decode() if base64.b64encode(decoded) == payload else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def check_implementation(info: Json) -> Mapping[str, Json]:
    """A client's name and version; raises RpcError when it is no such object."""
    if (
        type(info) is not dict
        or type(info.get("name")) is not str
        or type(info.get("version")) is not str
    ):
        raise invalid_params("clientInfo must be an object with name and version")
    return info


# ---- messages out ---------------------------------------------------------------------------


def server_info(service: McpService) -> dict[str, Json]:
    """Name, version and title of a service as both eras show them."""
    info: dict[str, Json] = {"name": service.name, "version": service.version}
    if service.title is not None:
        info["title"] = service.title
    return info


def modern(service: McpService, result: dict[str, Json], **meta: Json) -> dict[str, Json]:
    """A result with what each result of the 2026 era carries."""
    result["resultType"] = "complete"
    result["_meta"] = {**meta, SERVER_KEY: server_info(service)}
    return result


def result_bytes(request_id: RequestId, result: Json) -> bytes:
    """A successful answer."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def error_bytes(request_id: RequestId | None, error: RpcError) -> bytes:
    """A failed answer."""
    body: dict[str, Json] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def notification_bytes(method: str, params: Mapping[str, Json] | None = None) -> bytes:
    """A notification to the client."""
    message: dict[str, Json] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return encode(message)


def progress_params(
    token: int | str, progress: float, total: float | None, message: str | None
) -> dict[str, Json]:
    """Parameters of notifications/progress.

    Raises:
        ValueError: `progress` or `total` is not finite.
    """
    if not math.isfinite(progress) or (total is not None and not math.isfinite(total)):
        raise ValueError("Progress is not a finite number. Report finite progress and total.")
    params: dict[str, Json] = {"progressToken": token, "progress": progress}
    if total is not None:
        params["total"] = total
    if message is not None:
        params["message"] = message
    return params


def event(message: bytes) -> bytes:
    """A message as one event of a text/event-stream; JSON bytes hold no line break."""
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"
