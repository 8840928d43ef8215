"""One tools/call: from a checked request to its answer, as JSON or as a stream of progress events.

The answer is JSON unless the tool reports progress, the client gave a progress token, and it takes
text/event-stream; then the first report turns the answer into a stream whose last event is the
result. A call that its client cancels or leaves runs to its end all the same, because it may be
half-way through a write; only its deadline stops it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Any, Final

import anyio

from astra_mcp.errors import AstraError, UnknownTool
from astra_mcp.host.http import HttpRequest, accepts
from astra_mcp.host.metrics import INTERNAL, STOPPED, TOOL_ERROR
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


class Watch:
    """The one timer of an event loop for all deadlines on it: a timer each would cost more."""

    __slots__ = ("_open", "_timer", "_wakes", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._open: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wakes = math.inf

    def add(self, deadline: Deadline) -> None:
        """Wake in time for it."""
        self._open[deadline] = None
        if deadline.due < self._wakes:
            self._wake_at(deadline.due)

    def remove(self, deadline: Deadline) -> None:
        """It was kept."""
        self._open.pop(deadline, None)

    def _wake_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes = due
        self._timer = self.loop.call_at(due, self._wake)

    def _wake(self) -> None:
        now = self.loop.time()
        for deadline in [one for one in self._open if one.due <= now]:
            del self._open[deadline]
            deadline.expire()
        self._timer, self._wakes = None, math.inf
        if self._open:
            self._wake_at(min(one.due for one in self._open))


class Deadline:
    """Stops what runs inside after `seconds` with TimeoutError, as `asyncio.timeout` does.

    For the hot path alone: a small part of that one's cost, because all share one timer, and
    because the running loop, which costs a system call to find, is known to the watch.

    Args:
        seconds: How long it may take.
        watch: The timer that it shares; of the running loop.
    """

    __slots__ = ("_cancelling", "_task", "_watch", "due", "expired", "seconds")

    def __init__(self, seconds: float, watch: Watch | None = None) -> None:
        watch = watch or Watch(asyncio.get_running_loop())
        task = asyncio.current_task(watch.loop)
        if task is None:
            raise RuntimeError("A deadline needs a task. Call it from a coroutine.")
        self._task = task
        self._cancelling = task.cancelling()
        self.expired = False
        self.seconds = seconds
        self.due = watch.loop.time() + seconds
        self._watch = watch
        watch.add(self)

    def expire(self) -> None:
        """Stop what runs inside now."""
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
        if not self.expired:
            self._watch.remove(self)
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


#: Told of each call that has ended: its service, the tool's name, a code or "", and seconds.
Called = Callable[[McpService, str, str, float], None]


def nobody(service: McpService, tool: str, code: str, seconds: float) -> None:
    """Count nothing."""


class Calls:
    """Calls in flight, so that a client can tell us that it no longer waits for one.

    Args:
        called: Told of each call once it has ended.
    """

    def __init__(self, called: Called = nobody) -> None:
        self._called = called
        self._watch: Watch | None = None
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
        if self._watch is None:  # not made with the host, which there may be no loop for yet
            self._watch = Watch(asyncio.get_running_loop())
        deadline = Deadline(deadline_s, self._watch)
        run = _outcome(caller.service, message, name, arguments, context, deadline, self._called)
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
    deadline: Deadline,
    called: Called,
) -> Answer:
    """Run the call and put whatever comes of it on the wire."""
    code = STOPPED
    started = perf_counter()
    try:
        with deadline:
            result = await service.call_tool(name, arguments, context)
        code = result.code or (TOOL_ERROR if result.is_error else "")
        if context.cancelled and context.era == "2025":
            raise RpcError(REQUEST_CANCELLED, "Request cancelled")
        return _success(service, message, context, result)
    except RpcError as error:
        failure = error
    except UnknownTool as error:
        code = error.code
        failure = RpcError(INVALID_PARAMS, error.message)
    except AstraError as error:
        code = error.code
        return _success(service, message, context, ToolResult.error(error.code, str(error)))
    except Exception:
        code = STOPPED if deadline.expired else INTERNAL
        logger.exception("a service failed in call_tool, or did not end in time")
        stopped = f"The call was stopped after {deadline.seconds:g} seconds."
        failure = RpcError(INTERNAL_ERROR, stopped if deadline.expired else "Internal server error")
    finally:
        called(service, name, code, perf_counter() - started)
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
