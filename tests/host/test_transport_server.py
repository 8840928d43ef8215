"""The listening process: the port it binds, the limits on a connection, and how it stops."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from transport_toy import TOKEN, World, running

from astra_mcp.errors import ListenError
from astra_mcp.host.connection import HEAD_LIMIT
from astra_mcp.host.http import HttpRequest
from astra_mcp.host.router import Router
from astra_mcp.host.server import Limits, serve


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both loops: limits on a connection hang on how a loop buffers and pauses."""
    return "asyncio", {"use_uvloop": request.param}


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
QUICK = Limits(request_s=0.05, stalled_s=0.05, sweep_s=0.01)


def request(world: World, extra: bytes = b"", body: bytes = PING) -> bytes:
    """A whole request as bytes."""
    path = world.episode_url.removeprefix(world.url).encode()
    return (
        b"POST " + path + b" HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n"
        b"content-type: application/json\r\n" + extra + b"content-length: %d\r\n\r\n" % len(body)
    ) + body


async def connect(world: World) -> SocketStream:
    return await anyio.connect_tcp("127.0.0.1", int(world.url.rsplit(":", 1)[1]))


async def answer(stream: SocketStream) -> tuple[int, bytes]:
    """Status and body of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += await stream.receive()
    return int(head.split()[1]), body


async def hung_up(stream: SocketStream) -> bool:
    """Whether the server closes the connection without a further word, within five seconds."""
    with anyio.fail_after(5):
        try:
            return await stream.receive() == b""
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True


async def test_requests_in_one_segment_are_answered_in_order() -> None:
    async with running() as world, await connect(world) as stream:
        bodies = [b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % n for n in range(3)]
        await stream.send(b"".join(request(world, body=body) for body in bodies))
        received = b""
        with anyio.fail_after(5):
            while received.count(b'"result"') < 3:
                received += await stream.receive()
        assert [received.find(b'"id":%d' % n) for n in range(3)] == sorted(
            received.find(b'"id":%d' % n) for n in range(3)
        )


async def test_a_request_that_comes_byte_by_byte_is_answered() -> None:
    async with running() as world, await connect(world) as stream:
        for byte in request(world):
            await stream.send(bytes([byte]))
        assert (await answer(stream))[0] == 200


async def test_white_space_around_a_header_is_no_part_of_its_value() -> None:
    """RFC 9110, 5.5; the parser keeps what follows the value."""
    head = b"mcp-method:\t tools/list \t\r\nmcp-protocol-version: 2026-07-28  \r\n"
    meta = {"protocolVersion": "2026-07-28", "clientCapabilities": {}}
    prefixed = {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": prefixed}}
    async with running() as world, await connect(world) as stream:
        await stream.send(request(world, head, json.dumps(message).encode()))
        status, body = await answer(stream)
    assert status == 200, body


@pytest.mark.parametrize(
    "extra",
    [b"x: " + b"a" * HEAD_LIMIT + b"\r\n", b"".join(b"x%d: a\r\n" % n for n in range(HEAD_LIMIT))],
    ids=["one long header", "many headers"],
)
async def test_too_long_a_head_gets_431(extra: bytes) -> None:
    async with running() as world, await connect(world) as stream:
        await stream.send(request(world, extra))
        status, body = await answer(stream)
        assert status == 431
        assert json.loads(body)["error"]["data"]["remedy"]


async def send_for_ever(stream: SocketStream, data: bytes) -> None:
    """Send the same bytes until the server cuts the connection, at most for five seconds."""
    with anyio.fail_after(5):
        while True:
            await stream.send(data)


async def test_a_head_that_never_ends_is_cut_off() -> None:
    async with running() as world, await connect(world) as stream:
        await stream.send(b"POST / HTTP/1.1\r\nx: ")
        with pytest.raises(anyio.BrokenResourceError):
            await send_for_ever(stream, b"a" * 1024)


@pytest.mark.parametrize("sent", [b"\x00\x01\x02\r\n\r\n", b"GARBAGE\r\n\r\n", b"GET\r\n\r\n"])
async def test_what_is_no_http_gets_400_in_the_hosts_shape(sent: bytes) -> None:
    async with running() as world, await connect(world) as stream:
        await stream.send(sent)
        status, body = await answer(stream)
        assert status == 400
        assert json.loads(body)["error"]["message"]


@pytest.mark.parametrize("cut", [0, 20, -10], ids=["nothing", "half a head", "half a body"])
async def test_a_client_that_takes_too_long_to_ask_is_hung_up_on(cut: int) -> None:
    async with running(limits=QUICK) as world, await connect(world) as stream:
        await stream.send(request(world)[:cut])
        assert await hung_up(stream)


async def test_an_idle_connection_is_not_a_slow_request() -> None:
    async with running(limits=QUICK) as world, await connect(world) as stream:
        for _ in range(2):
            await stream.send(request(world))
            assert (await answer(stream))[0] == 200
            await anyio.sleep(0.1)  # longer than request_s: the limit is what is tested


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    async with running(limits=QUICK) as world, await connect(world) as stream:
        raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        text = "x" * 500_000
        body = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "echo", "arguments": {"text": text}},
            }
        ).encode()
        with pytest.raises(anyio.BrokenResourceError):
            await send_for_ever(stream, request(world, body=body))


async def test_a_client_that_goes_in_the_middle_of_its_request_troubles_nobody() -> None:
    async with running() as world:
        for cut in (30, -10):
            async with await connect(world) as stream:
                await stream.send(request(world)[:cut])
        async with await connect(world) as stream:
            await stream.send(request(world))
            assert (await answer(stream))[0] == 200
        assert world.episode.contexts == []


async def test_the_application_takes_part_in_a_lifespan_and_refuses_websockets() -> None:
    async def resolve(_: HttpRequest) -> None:
        return None

    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[str] = []

    async def receive() -> Mapping[str, Any]:
        return next(events)

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message["type"])

    await Router(resolve)({"type": "lifespan"}, receive, send)
    await Router(resolve)({"type": "websocket"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


async def test_two_servers_cannot_have_one_port() -> None:
    async with running() as world:
        port = int(world.url.rsplit(":", 1)[1])
        with pytest.raises(ListenError, match="--port 0"):
            await serve(world.router, port=port)


async def test_a_name_that_is_no_address_is_an_error_with_a_remedy() -> None:
    async with running() as world:
        with pytest.raises(ListenError) as caught:
            await serve(world.router, "host.invalid")
        assert caught.value.remedy


async def test_while_it_stops_new_requests_get_503() -> None:
    call = PING.replace(b'"ping"', b'"tools/call","params":{"name":"slow"}')
    async with (
        running(drain_s=5) as world,
        await connect(world) as slow,
        await connect(world) as other,
    ):
        await slow.send(request(world, body=call))
        await world.episode.started.wait()
        world.router.drain()
        await other.send(request(world))
        assert (await answer(other))[0] == 503
        world.episode.release.set()
        assert (await answer(slow))[0] == 200


async def test_a_server_that_is_cancelled_leaves_nothing_listening() -> None:
    with anyio.CancelScope() as scope:
        async with running() as world, await connect(world) as stream:
            await stream.send(request(world))
            assert (await answer(stream))[0] == 200
            scope.cancel()
            await anyio.sleep_forever()
    with pytest.raises(OSError, match="connect"):
        await connect(world)


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from transport_toy import Toy
from astra_mcp.host import logs
from astra_mcp.host.router import Router
from astra_mcp.host.server import run, serve
from astra_mcp.host.transport import Endpoint

endpoint = Endpoint(Toy())

async def resolve(request):
    if request.segments[0] == "episodes":
        return endpoint

def ready(info):
    print(info.url, flush=True)

logs.configure("DEBUG")
run(lambda: serve(Router(resolve), ready=ready, drain_s=1))
print("drained", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly_and_no_token_is_logged(number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(tests=str(Path(__file__).parent))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().decode().strip().rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        for name in ("count", "crash"):
            headers = {
                "accept": "application/json",
                "content-type": "application/json",
                "authorization": f"Bearer {TOKEN}",
            }
            params = {"name": name}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            connection.request("POST", f"/episodes/{TOKEN}/mcp", json.dumps(message), headers)
            assert connection.getresponse().read()
        process.send_signal(number)  # with the connection still open
        out, err = process.communicate(timeout=10)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out.strip()) == (0, b"drained")
    lines = [json.loads(line) for line in err.splitlines()]
    assert any(line.get("error") == "RuntimeError" for line in lines)
    assert TOKEN.encode() not in err
    assert b"sealed answer" not in err
