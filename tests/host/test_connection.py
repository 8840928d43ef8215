"""The HTTP/1.1 connection by itself: bodies, bounds, order, and how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from astra_mcp.host.connection import BUFFER
from astra_mcp.host.http import Receive, Scope, Send
from astra_mcp.host.server import ServerInfo, serve

Json = Any
Serve = Callable[[Scope, Receive, Send], Awaitable[None]]


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


class App:
    """An application made of one coroutine function."""

    def __init__(self, serve_one: Serve) -> None:
        self._serve_one = serve_one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve_one(scope, receive, send)

    def drain(self) -> None:
        """Nothing to end."""


@asynccontextmanager
async def connected(serve_one: Serve) -> AsyncIterator[SocketStream]:
    """One connection to a server of that application."""
    stop, listening = anyio.Event(), anyio.Event()
    found: list[ServerInfo] = []

    def ready(info: ServerInfo) -> None:
        found.append(info)
        listening.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                lambda: serve(
                    App(serve_one), ready=ready, shutdown=stop, catch_signals=False, drain_s=1
                )
            )
            await listening.wait()
            async with await anyio.connect_tcp("127.0.0.1", found[0].port) as stream:
                yield stream
            stop.set()


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body and what it was asked for."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message["body"])
        more = message["more_body"]
    await answer(send, b"%d %s" % (size, scope["path"].encode()))


async def answer(send: Send, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def to_the_end(stream: SocketStream) -> bytes:
    data = b""
    try:
        while True:
            data += await stream.receive()
    except anyio.EndOfStream:
        return data


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def test_a_client_that_closes_its_half_still_gets_its_answer() -> None:
    async with connected(echo) as stream:
        await stream.send(post("/a", b"xyz"))
        await stream.send_eof()
        assert (await to_the_end(stream)).endswith(b"\r\n\r\n3 /a")


async def test_a_large_body_arrives_whole_and_the_connection_goes_on() -> None:
    async with connected(echo) as stream:
        size = 40 * BUFFER
        await stream.send(post("/a", b"x" * size) + post("/b", b"", "connection: close"))
        data = await to_the_end(stream)
        assert b"%d /a" % size in data
        assert data.endswith(b"0 /b")


async def test_a_client_that_waits_to_be_told_is_told() -> None:
    async with connected(echo) as stream:
        await stream.send(post("/a", b"xyz", "expect: 100-continue", "connection: close")[:-3])
        assert await stream.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await stream.send(b"xyz")
        assert (await to_the_end(stream)).endswith(b"3 /a")


async def test_http_1_0_is_answered_without_chunks_and_hung_up_on() -> None:
    async def in_parts(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async with connected(in_parts) as stream:
        await stream.send(b"GET / HTTP/1.0\r\n\r\n")
        data = await to_the_end(stream)
        assert data.endswith(b"\r\n\r\none two")
        assert b"transfer-encoding" not in data


async def test_parts_are_chunks() -> None:
    async def in_parts(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with connected(in_parts) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert (await to_the_end(stream)).endswith(b"\r\n\r\n3\r\none\r\n0\r\n\r\n")


async def test_the_answer_to_head_has_no_body() -> None:
    async with connected(echo) as stream:
        await stream.send(b"HEAD /a HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert (await to_the_end(stream)).endswith(b"\r\n\r\n")


async def test_nothing_follows_the_answer_that_closes() -> None:
    async with connected(echo) as stream:
        await stream.send(post("/a", b"", "connection: close") + post("/b", b""))
        data = await to_the_end(stream)
        assert data.count(b"HTTP/1.1") == 1
        assert data.endswith(b"0 /a")


@pytest.mark.parametrize(
    "header", [(b"x", b"a\r\nset-cookie: b"), (b"x", b"a\nb: c"), (b"x\r\ny", b"z")]
)
async def test_a_header_with_a_line_break_never_goes_out(header: tuple[bytes, bytes]) -> None:
    async def split(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, b"ok", (header,))

    async with connected(split) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        data = await to_the_end(stream)
        assert data.startswith(b"HTTP/1.1 500")
        assert b"set-cookie" not in data


@pytest.mark.parametrize("early", [True, False], ids=["unanswered", "half answered"])
async def test_an_application_that_stops_short_is_told_apart_from_one_that_ends(
    early: bool,
) -> None:
    async def short(scope: Scope, receive: Receive, send: Send) -> None:
        if early:
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async with connected(short) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        data = await to_the_end(stream)
        assert data.startswith(b"HTTP/1.1 500") if early else not data.endswith(b"0\r\n\r\n")


async def test_a_waiting_application_is_told_that_its_client_has_gone() -> None:
    told: list[str] = []
    heard = anyio.Event()

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        message: Mapping[str, Json] = await receive()
        while message["type"] != "http.disconnect":
            message = await receive()
        told.append(message["type"])
        heard.set()

    async with connected(wait) as stream:
        await stream.send(post("/a", b"x"))
        await stream.aclose()
        with anyio.fail_after(5):
            await heard.wait()
    assert told == ["http.disconnect"]
