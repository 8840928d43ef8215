"""Raw bytes to a host and whatever comes back, judged: no client library, nothing corrected.

`exchange` sends bytes as they are and reads until every request that it was told of is answered or
the host hangs up; `judge` says what no answer may ever be. An event stream counts as answered with
its head. Nothing here knows what was asked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

#: Every request is answered, or its connection closed, within so many seconds.
DEADLINE_S: Final = 30.0
#: Statuses of an answer that may begin with 5, and what they must carry.
DOCUMENTED_5XX: Final = frozenset({503, 504})
LEAKS: Final = re.compile(
    rb"Traceback|File \\?\"|site-packages|\.py\b|/(?:tmp|root|home|proc|usr)/|astra_mcp/|"
    rb"0x[0-9a-f]{8}"
)


@dataclass
class Response:
    """One HTTP response; `body` is what came of it."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def streams(self) -> bool:
        """Whether it is an event stream."""
        return self.headers.get(b"content-type", b"").startswith(b"text/event-stream")

    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)


@dataclass
class Exchange:
    """What came back: responses, whether the host closed, what could not be read."""

    responses: list[Response] = field(default_factory=list)
    closed: bool = False
    late: bool = False
    rest: bytes = b""


def _dechunk(data: bytes) -> tuple[bytes, bytes] | None:
    """Body and rest; None when it has not all come."""
    body = b""
    while True:
        line, found, rest = data.partition(b"\r\n")
        if not found:
            return None
        size = int(line, 16)
        if len(rest) < size + 2:
            return None
        body, data = body + rest[:size], rest[size + 2 :]
        if size == 0:
            return body, data


def split_responses(data: bytes, heads: Sequence[bool] = ()) -> tuple[list[Response], bytes]:
    """Whole responses at the start of `data`, and what is left.

    Args:
        heads: Whether the request of each response was a HEAD, which has no body.

    Raises:
        ValueError: It is no HTTP.
    """
    found: list[Response] = []
    while b"\r\n\r\n" in data:
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        version, _, after = first.partition(b" ")
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise ValueError(f"no status line: {first[:80]!r}")
        status = int(after[:3])
        headers = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon:
                raise ValueError(f"no header: {line[:80]!r}")
            headers[name.lower()] = value.strip()
        if status == 100:
            data = rest
            continue
        is_head = len(found) < len(heads) and heads[len(found)]
        # What cannot be read as HTTP is refused with a body, whatever its first word was.
        if status in (204, 304) or (is_head and not rest.startswith(b'{"jsonrpc"')):
            body = b""
        elif b"content-length" in headers:
            size = int(headers[b"content-length"])
            if len(rest) < size:
                break
            body, rest = rest[:size], rest[size:]
        elif headers.get(b"transfer-encoding") == b"chunked":
            if (whole := _dechunk(rest)) is None:
                if headers.get(b"content-type", b"").startswith(b"text/event-stream"):
                    found.append(Response(status, headers, rest))
                    return found, b""
                break
            body, rest = whole
        else:
            body, rest = rest, b""
        found.append(Response(status, headers, body))
        data = rest
    return found, data


async def exchange(
    port: int,
    pieces: Sequence[bytes],
    expected: int = 1,
    *,
    heads: Sequence[bool] = (),
    half_close: bool = False,
    pause_s: float = 0.0,
    deadline_s: float = DEADLINE_S,
) -> Exchange:
    """Send pieces and read until `expected` responses are whole or the host has closed.

    Args:
        pieces: Bytes, each sent by itself.
        half_close: Say after the last of them that no more will come.
        pause_s: Wait between two pieces.
    """
    found = Exchange()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    data = b""

    async def send() -> None:
        try:
            for index, piece in enumerate(pieces):
                writer.write(piece)
                await writer.drain()
                if index + 1 < len(pieces):
                    await asyncio.sleep(pause_s)
            if half_close and writer.can_write_eof():
                writer.write_eof()
        except (ConnectionError, RuntimeError, OSError):
            return  # the host has closed: what it said is read below

    sender = asyncio.ensure_future(send())
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                try:
                    part = await reader.read(1 << 20)
                except (ConnectionError, OSError):
                    part = b""
                data += part
                found.responses, found.rest = split_responses(data, heads)
                found.closed = not part
                if found.closed or len(found.responses) >= expected:
                    return found
    except TimeoutError:
        found.late = True
        return found
    finally:
        sender.cancel()
        writer.transport.abort()


def judge(found: Exchange, secrets: Sequence[bytes] = ()) -> list[str]:
    """What is wrong with what came back; nothing, normally."""
    wrong = ["nothing came in time, and the connection is open"] if found.late else []
    for response in found.responses:
        wrong += judge_response(response, secrets)
    if found.rest and not b"HTTP/1.1 ".startswith(found.rest[:9]):
        wrong.append(f"bytes that belong to no response: {found.rest[:80]!r}")
    return wrong


def judge_response(response: Response, secrets: Sequence[bytes] = ()) -> list[str]:
    """What no answer may be."""
    wrong = []
    status, body = response.status, response.body
    whole = body + b"\n".join(response.headers.values())
    if status >= 500 and status not in DOCUMENTED_5XX:
        wrong.append(f"status {status}")
    if status in DOCUMENTED_5XX and b"retry-after" not in response.headers:
        wrong.append(f"status {status} without Retry-After")
    if found := LEAKS.search(whole):
        wrong.append(f"an answer says {whole[max(0, found.start() - 60) : found.end() + 60]!r}")
    wrong += ["an answer holds a token" for secret in secrets if secret in whole]
    if response.headers.get(b"content-type", b"").startswith(b"application/json"):
        try:
            answer = response.json() if body else None
        except orjson.JSONDecodeError as error:
            return [*wrong, f"a body is not the JSON that it says: {error}"]
        wrong += judge_message(answer, status)
    return wrong


def judge_message(answer: Any, status: int) -> list[str]:
    """What no JSON-RPC answer may be; what is no JSON-RPC (health, play) is let through."""
    if type(answer) is not dict or answer.get("jsonrpc") != "2.0":
        return []
    error = answer.get("error")
    if error is None:
        return [] if type(answer.get("result")) is dict else ["an answer without result or error"]
    if type(error.get("code")) is not int or not error.get("message"):
        return ["an error without code or message"]
    if "Internal server error" in error["message"]:
        return [f"an error that nobody foresaw, with status {status}"]
    return []
