"""Servers that the clients are tested against, on loopback ports that the kernel gives."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import orjson
import uvicorn

Json = Any
Send = Callable[[dict[str, Any]], Awaitable[None]]
#: (JSON body, headers and ":path") -> (status, headers, chunks of the body)
Handler = Callable[[Json, dict[str, str]], tuple[int, dict[str, str], list[bytes]]]


@contextlib.contextmanager
def serve(app: Any) -> Iterator[str]:
    """Run an ASGI app in a thread; yields its base URL."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)
    config = uvicorn.Config(app, log_level="critical", lifespan="auto", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()

    def stop() -> None:
        server.should_exit = server.force_exit = True
        thread.join(timeout=10)
        sock.close()

    if isinstance(app, ScriptedServer):
        app.stop = stop
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        stop()


class ScriptedServer:
    """A plain HTTP server whose answers a test writes; `requests` holds what came in."""

    def __init__(self) -> None:
        self.requests: list[tuple[Json, dict[str, str]]] = []
        self.handler: Handler = lambda body, headers: (500, {}, [])
        self.url = ""
        self.stop: Callable[[], None] = lambda: None

    def answers(self, *replies: tuple[int, dict[str, str], list[bytes]]) -> None:
        """Give these answers one after the other, the last one for ever."""
        queue = list(replies)
        self.handler = lambda body, headers: queue.pop(0) if len(queue) > 1 else queue[0]

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {k.decode(): v.decode("latin-1") for k, v in scope["headers"]}
        headers[":path"] = scope["path"]
        parsed = orjson.loads(body) if body else None
        self.requests.append((parsed, headers))
        status, extra, chunks = self.handler(parsed, headers)
        raw = [(k.encode(), v.encode()) for k, v in extra.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def json_reply(message: Json, status: int = 200) -> tuple[int, dict[str, str], list[bytes]]:
    """An answer with a JSON body."""
    return status, {"content-type": "application/json"}, [orjson.dumps(message)]


def rpc_result(request: Json, result: Json) -> tuple[int, dict[str, str], list[bytes]]:
    """The JSON-RPC answer to a request."""
    return json_reply({"jsonrpc": "2.0", "id": request["id"], "result": result})
