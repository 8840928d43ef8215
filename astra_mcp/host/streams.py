"""Event streams that tell a client its list of tools has changed, in both eras.

2025: GET answers with a stream of notifications. 2026: `subscriptions/listen` is a request whose
answer is the stream; each frame carries the request's id, and the result is the last frame.
A change is a flag, not a queue: however many changes a slow client has not read yet, at most two
notifications are due, so a stream never grows. Streams end with their client, with their service,
or with the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from astra_mcp.errors import HttpError
from astra_mcp.host.http import HttpRequest
from astra_mcp.host.protocol import (
    SUBSCRIPTION_KEY,
    Request,
    event,
    invalid_params,
    modern,
    notification_bytes,
    result_bytes,
)
from astra_mcp.host.service import McpService

Json = Any
_CHANGED: Final = "notifications/tools/list_changed"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_HEARTBEAT: Final = b": ping\r\n\r\n"
SSE_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


@dataclass(frozen=True, slots=True)
class _Frames:
    """What one stream says: when it starts, at a change, and when it ends by our will."""

    first: bytes
    changed: bytes
    last: bytes


_LEGACY: Final = _Frames(_HEARTBEAT, event(notification_bytes(_CHANGED)), b"")


def _listen_frames(service: McpService, request: Request) -> _Frames:
    wanted = None if request.params is None else request.params.get("notifications")
    if type(wanted) is not dict:
        raise invalid_params("notifications must be an object")
    tools = wanted.get("toolsListChanged")
    if tools is not None and type(tools) is not bool:
        raise invalid_params("notifications.toolsListChanged must be a boolean")
    meta: dict[str, Json] = {SUBSCRIPTION_KEY: request.id}
    honoured = {"toolsListChanged": True} if tools else {}
    acknowledged = {"notifications": honoured, "_meta": meta}
    return _Frames(
        event(notification_bytes(_ACKNOWLEDGED, acknowledged)),
        event(notification_bytes(_CHANGED, {"_meta": meta})) if tools else b"",
        event(result_bytes(request.id, modern(service, {}, **meta))),
    )


@dataclass(eq=False, slots=True)
class _Stream:
    """One open stream: what is sent to `wake` wakes it, and closing `wake` ends it."""

    wake: MemoryObjectSendStream[None]
    woken: MemoryObjectReceiveStream[None]

    def on_change(self) -> None:
        try:
            self.wake.send_nowait(None)
        except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # a notification is already due, or the stream is ending


@dataclass(slots=True)
class Streams:
    """All open streams of a host.

    Attributes:
        heartbeat_s: A comment line goes out after this much silence, so that proxies keep the
            connection and a dead one is noticed.
        per_service: Most streams for one service; 409 beyond it.
        total: Most streams of the host; 503 beyond it.
    """

    heartbeat_s: float = 15.0
    per_service: int = 4
    total: int = 4096
    _open: dict[int, set[_Stream]] = field(default_factory=dict)
    _count: int = 0
    _closing: bool = False

    def __len__(self) -> int:
        return self._count

    async def serve_get(self, request: HttpRequest, service: McpService) -> None:
        """Answer a GET of the 2025 era until the client goes or the stream is ended."""
        await self._serve(request, service, _LEGACY)

    async def serve_listen(
        self, request: HttpRequest, service: McpService, message: Request
    ) -> None:
        """Answer `subscriptions/listen` of the 2026 era.

        Raises:
            RpcError: Its parameters are wrong.
        """
        await self._serve(request, service, _listen_frames(service, message))

    def close(self, service: McpService) -> None:
        """End a service's streams, each with its last frame."""
        for stream in self._open.get(id(service), ()):
            stream.wake.close()

    def close_all(self) -> None:
        """End all streams, and refuse new ones: the host is stopping."""
        self._closing = True
        for streams in self._open.values():
            for stream in streams:
                stream.wake.close()

    async def _serve(self, request: HttpRequest, service: McpService, frames: _Frames) -> None:
        self._check_room(service)
        with self._registered(service) as stream:
            await request.start(200, SSE_HEADERS)
            await request.chunk(frames.first)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_end_with_client, request, tasks.cancel_scope)
                await self._pump(request, stream, frames)
                tasks.cancel_scope.cancel()

    @contextmanager
    def _registered(self, service: McpService) -> Iterator[_Stream]:
        """A stream that its service wakes and `close` can end."""
        stream = _Stream(*anyio.create_memory_object_stream[None](1))
        with stream.wake, stream.woken:
            unsubscribe = service.subscribe(stream.on_change)
            siblings = self._open.setdefault(id(service), set())
            siblings.add(stream)
            self._count += 1
            try:
                yield stream
            finally:
                self._count -= 1
                siblings.discard(stream)
                if not siblings:
                    self._open.pop(id(service), None)
                unsubscribe()

    def _check_room(self, service: McpService) -> None:
        if self._closing or self._count >= self.total:
            raise HttpError(
                503,
                "The server takes no further event stream now.",
                "Try again later, or go on without one.",
                [(b"retry-after", b"5")],
            )
        if len(self._open.get(id(service), ())) >= self.per_service:
            raise HttpError(
                409,
                "As many event streams are open here as the server allows.",
                "Close one, or go on without a further one.",
            )

    async def _pump(self, request: HttpRequest, stream: _Stream, frames: _Frames) -> None:
        while True:
            frame = _HEARTBEAT
            try:
                with anyio.move_on_after(self.heartbeat_s):
                    await stream.woken.receive()
                    frame = frames.changed
            except anyio.EndOfStream:
                return await request.chunk(frames.last, last=True)
            if frame:
                await request.chunk(frame)


async def _end_with_client(request: HttpRequest, scope: anyio.CancelScope) -> None:
    await request.wait_disconnect()
    scope.cancel()
