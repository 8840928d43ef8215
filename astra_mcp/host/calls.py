"""One tools/call: from a checked request to its answer, as JSON or as a stream of progress events.

The answer is JSON unless the tool reports progress, the client gave a progress token, and it takes
text/event-stream; then the first report turns the answer into a stream whose last event is the
result. A call that its client cancels or leaves runs to its end all the same, because it may be
half-way through a write; only its deadline stops it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Hashable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import anyio

from astra_mcp.errors import AstraError, UnknownTool
from astra_mcp.host.http import HttpRequest, accepts
from astra_mcp.host.protocol import (
    CALL_ID_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    REQUEST_CANCELLED,
    Request,
    RequestId,
    RpcError,
    error_bytes,
    event,
    invalid_params,
    modern,
    notification_bytes,
    progress_params,
    progress_token,
    result_bytes,
    string_param,
)
from astra_mcp.host.service import CallContext, Era, McpService, ToolResult
from astra_mcp.host.streams import SSE_HEADERS

Json = Any
logger: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Answer:
    """A whole answer: HTTP status and JSON body."""

    status: int
    body: bytes


@dataclass(slots=True)
class Caller:
    """What is known of a request besides its message.

    Attributes:
        service: Whom the call is for.
        era: Protocol era.
        client_info: What the client says it is, or None.
        owner: Whose request ids these are: the session, or the service where there is none.
        meta: `params._meta`.
    """

    service: McpService
    era: Era
    client_info: Mapping[str, Json] | None
    owner: Hashable
    meta: Mapping[str, Json]


class Deadline:
    """Stops what runs inside after `seconds` with TimeoutError, as `asyncio.timeout` does.

    For the hot path alone: half of that one's cost, a quarter of a cancel scope's.
    """

    __slots__ = ("_cancelling", "_handle", "_task", "expired")

    def __init__(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A deadline needs a task. Call it from a coroutine.")
        self._task = task
        self._cancelling = task.cancelling()
        self.expired = False
        self._handle = loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def __enter__(self) -> Deadline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.cancel()
        if not self.expired:
            return
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error


class _Exchange:
    """The way back to the client while its call runs."""

    __slots__ = ("_request", "_token", "done", "streaming")

    def __init__(self, request: HttpRequest, token: int | str | None) -> None:
        self._request = request
        self._token = token
        self.streaming = False
        self.done = False

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """CallContext.progress; nothing without a token, and nothing after the call's end."""
        if self._token is None or self.done:
            return
        params = progress_params(self._token, progress, total, message)
        if not self.streaming:
            self.streaming = True
            await self._request.start(200, SSE_HEADERS)
        await self._request.chunk(event(notification_bytes("notifications/progress", params)))


class Calls:
    """Calls in flight, so that a client can tell us that it no longer waits for one."""

    def __init__(self) -> None:
        self._open: dict[tuple[Hashable, RequestId], list[CallContext]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def cancel(self, owner: Hashable, request_id: Json) -> None:
        """Mark a call cancelled; without effect when none, or more than one, goes by this id.

        Clients without a session may use the same ids side by side, and one must not cancel
        another's call.
        """
        if type(request_id) not in (int, str):
            return
        found = self._open.get((owner, request_id), ())
        if len(found) == 1:
            found[0].cancelled = True

    async def run(
        self, request: HttpRequest, message: Request, caller: Caller, deadline_s: float
    ) -> Answer | None:
        """Answer a call; None when the answer went out as a stream.

        Raises:
            RpcError: The parameters are wrong; nothing was called.
        """
        name = string_param(message.params, "name")
        arguments = _arguments(message.params)
        token = progress_token(caller.meta)
        if token is not None and not accepts(request.headers.get(b"accept", b"")).sse:
            token = None
        exchange = _Exchange(request, token)
        call_id = _call_id(caller.meta)
        context = CallContext(caller.era, caller.client_info, call_id, exchange.progress)
        run = _outcome(caller.service, message, name, arguments, context, deadline_s)
        key = (caller.owner, message.id)
        peers = self._open.setdefault(key, [])
        peers.append(context)
        try:
            answer = await run if token is None else await _watched(request, context, run)
        finally:
            exchange.done = True
            peers[:] = [other for other in peers if other is not context]
            if not peers:
                self._open.pop(key, None)
        if not exchange.streaming:
            return answer
        await request.chunk(event(answer.body), last=True)
        return None


async def _watched(
    request: HttpRequest, context: CallContext, run: Coroutine[Any, Any, Answer]
) -> Answer:
    """Run a call that may stream, and note when its client goes."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_note_departure, request, context)
        answer = await run
        tasks.cancel_scope.cancel()
    return answer


async def _note_departure(request: HttpRequest, context: CallContext) -> None:
    await request.wait_disconnect()
    context.cancelled = True


async def _outcome(
    service: McpService,
    message: Request,
    name: str,
    arguments: dict[str, Json],
    context: CallContext,
    deadline_s: float,
) -> Answer:
    """Run the call and put whatever comes of it on the wire."""
    deadline = Deadline(deadline_s)
    try:
        with deadline:
            result = await service.call_tool(name, arguments, context)
        if context.cancelled and context.era == "2025":
            raise RpcError(REQUEST_CANCELLED, "Request cancelled")
        return _success(service, message, context, result)
    except RpcError as error:
        failure = error
    except UnknownTool as error:
        failure = RpcError(INVALID_PARAMS, error.message)
    except AstraError as error:
        return _success(service, message, context, ToolResult.error(error.code, str(error)))
    except Exception:
        logger.exception("a service failed in call_tool, or did not end in time")
        stopped = f"The call was stopped after {deadline_s:g} seconds."
        failure = RpcError(INTERNAL_ERROR, stopped if deadline.expired else "Internal server error")
    return Answer(failure.http_status(context.era), error_bytes(message.id, failure))


def _success(
    service: McpService, message: Request, context: CallContext, result: ToolResult
) -> Answer:
    body = _result_object(result)
    if context.era == "2026":
        modern(service, body)
    return Answer(200, result_bytes(message.id, body))


def _result_object(result: ToolResult) -> dict[str, Json]:
    body: dict[str, Json] = {"content": [{"type": "text", "text": result.text}]}
    if result.structured is not None:
        body["structuredContent"] = result.structured
    body["isError"] = result.is_error
    return body


def _arguments(params: Mapping[str, Json] | None) -> dict[str, Json]:
    arguments = None if params is None else params.get("arguments")
    if arguments is None:
        return {}
    if type(arguments) is not dict:
        raise invalid_params("arguments must be an object")
    return arguments


def _call_id(meta: Mapping[str, Json]) -> str | None:
    call_id = meta.get(CALL_ID_KEY)
    if call_id is None or (type(call_id) is str and 0 < len(call_id) <= 200):
        return call_id
    raise invalid_params(f"_meta[{CALL_ID_KEY!r}] must be a string of 1 to 200 characters")
