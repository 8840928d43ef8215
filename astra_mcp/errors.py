"""The whole error model: the only module that defines errors.

Two families and no third. An `AstraError` stops an operation of a person or a program: it has a
`code`, one sentence on what is wrong and one on what to do (`remedy`), and an exit code. A
`ToolFailure` is data, not an exception: what an agent sees when its call did not succeed. Tool
failures never carry a traceback, a path, or a value that the agent did not send.

Private signals that never leave their module (a line that closed, a journal that does not fold) are
defined where they are used.

Invariant: nothing here is ever turned into a reward. A reward that cannot be computed is null with
a reason (grade.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


class AstraError(Exception):
    """Base of every error that this project raises on purpose.

    Args:
        message: One sentence: what is wrong, naming the place.
        remedy: One sentence: what to do about it.
    """

    code: str = "error"
    exit_code: int = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class UsageError(AstraError):
    """Command line or API used wrongly (cli, settings)."""

    code, exit_code = "usage", 2


class BundleError(AstraError):
    """A bundle, task or expected value does not have its form (bundle, task, store)."""

    code = "bundle"


class ExpressionError(AstraError):
    """An expression does not parse or cannot be evaluated on these results (expr)."""

    code = "expression"


class SchemaError(AstraError):
    """A tool's JSON Schema is outside the closed profile (schema)."""

    code = "schema"


class SandboxError(AstraError):
    """The sandbox cannot start, or lost a process without the tool's doing (sandbox)."""

    code, exit_code = "sandbox", 3


class SandboxUnavailable(SandboxError):
    """A mandatory layer is missing on this machine; the message names it (sandbox)."""

    code = "sandbox_layer_missing"


class WorkerLost(SandboxError):
    """A worker, its template or the zygote went away without the tool's doing (sandbox)."""

    code = "worker_lost"


class LoadError(SandboxError):
    """The code of a bundle cannot be loaded in the sandbox (sandbox)."""

    code, exit_code = "load", 1


class ReplayError(AstraError):
    """The golden plan does not give what the task declares (world)."""

    code = "replay"


class EpisodeError(AstraError):
    """A control operation does not fit the episode's state (episode, host)."""

    code = "episode"


class AuthError(AstraError):
    """Missing, unknown, dead or misplaced token: always the same words (host)."""

    code, exit_code = "unauthorized", 3


class BusyError(AstraError):
    """The host has no room now; `retry_after_s` says when to try again (host)."""

    code = "busy"

    def __init__(self, message: str, remedy: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message, remedy)
        self.retry_after_s = retry_after_s


class JournalError(AstraError):
    """An event cannot be written down, so what it tells of has not happened (host, episode)."""

    code, exit_code = "journal", 3


class ClientError(AstraError):
    """An MCP or HTTP exchange failed on the client's side (astra_clients)."""

    code = "client"


class UnknownTool(AstraError):
    """The service offers no tool of this name now; answered as JSON-RPC error -32602."""

    code = "unknown_tool"

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown tool: {name[:100]}", "Call a tool that tools/list names.")
        self.name = name


class UnknownResource(AstraError):
    """The service has no resource at this URI, or none that this caller may read."""

    code = "unknown_resource"

    def __init__(self, uri: str) -> None:
        super().__init__(f"Resource not found: {uri}", "Read a URI that resources/list names.")
        self.uri = uri


class HttpError(AstraError):
    """A request that is refused before it becomes a JSON-RPC message, with its HTTP status.

    Args:
        status: HTTP status of the answer.
        message: One sentence: what is wrong. It must not repeat the path or a header.
        remedy: One sentence: what to do.
        headers: Further response headers, such as `allow`.
        rpc_code: JSON-RPC error code of the body.
    """

    code = "http"

    def __init__(
        self,
        status: int,
        message: str,
        remedy: str = "",
        headers: Sequence[tuple[bytes, bytes]] = (),
        rpc_code: int = -32600,
    ) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.headers = headers
        self.rpc_code = rpc_code


class ListenError(AstraError):
    """The address cannot be listened on."""

    code, exit_code = "listen", 3


class HostStartError(AstraError):
    """The host process ended or did not listen in time."""

    code, exit_code = "host_start", 3


class BenchError(AstraError):
    """A server under measurement answered wrongly, ended or took too long (astra_clients.bench)."""

    code = "bench"


class RecordingError(AstraError):
    """A recording was changed or does not hold what a replay needs (host.tape, astra_clients)."""

    code = "recording"


# ---- what an agent sees --------------------------------------------------------------------

#: Codes that the host itself gives to a failed call; a tool's own codes come from its ToolError.
INVALID_ARGUMENTS: Final = "invalid_arguments"
UNKNOWN_TOOL: Final = "unknown_tool"
TIMEOUT: Final = "timeout"
MEMORY_LIMIT: Final = "memory_limit"
OUTPUT_LIMIT: Final = "output_limit"
CRASH: Final = "crash"
CONTRACT: Final = "contract_violation"
UNAVAILABLE: Final = "unavailable"
TOO_MANY_CALLS: Final = "too_many_calls"
BUSY: Final = BusyError.code
HOST_CODES: Final = frozenset(
    {
        INVALID_ARGUMENTS,
        UNKNOWN_TOOL,
        TIMEOUT,
        MEMORY_LIMIT,
        OUTPUT_LIMIT,
        CRASH,
        CONTRACT,
        UNAVAILABLE,
        TOO_MANY_CALLS,
        BUSY,
    }
)


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A call that did not succeed, as the agent sees it.

    Attributes:
        code: One of `HOST_CODES`, or the code of the tool's own `ToolError`.
        message: One short sentence; at most 500 characters.
    """

    code: str
    message: str
