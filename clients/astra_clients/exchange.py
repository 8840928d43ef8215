"""One JSON-RPC exchange over HTTP: send, wait no longer than the deadline, read the answer.

Promises: every wait ends, an answer has a largest size, and a request is sent a second time only
when the caller says that this does no harm, after a failed connection or 503 with Retry-After.
Messages name the server's origin and never its path, which may hold an episode's token. Knows
neither protocol eras nor tools.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import anyio
import orjson
from yarl import URL

from astra_clients.wire import SseDecoder
from astra_mcp.errors import AuthError, BusyError, ClientError

Json = Any
OnNotification = Callable[[dict[str, Json]], Awaitable[None]]

#: `code` of a ClientError that says: no server took the request within the retries.
UNREACHABLE: Final = "unreachable"

_BACKOFF_S: Final = 0.1
_BUSY_STATUS: Final = (429, 503)
#: The request reached nobody, or nobody can say that it did.
_CONNECTION_ERRORS: Final = (
    aiohttp.ClientConnectionError,
    aiohttp.ClientPayloadError,
    ConnectionError,
)


@dataclass(frozen=True, slots=True)
class McpSettings:
    """How patient a client is."""

    request_s: float = 60.0
    """Longest time for one request with its retries, in seconds."""
    connect_s: float = 10.0
    """Longest time to connect, in seconds."""
    retries: int = 3
    """How many times a request may be sent again."""
    max_bytes: int = 32 * 1024 * 1024
    """Largest answer accepted, in bytes."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One encoded request."""

    request_id: int
    method: str
    body: bytes
    headers: Mapping[str, str]
    repeatable: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON-RPC response object and the session that the server assigned with it, if any."""

    message: dict[str, Json]
    session_id: str | None


def new_pool(limit: int = 0) -> aiohttp.ClientSession:
    """A connection pool for many clients; `limit` bounds its connections (0: no bound).

    It keeps no cookies and knows no proxies, so that the clients of several episodes share nothing
    but sockets. Close it with `async with` or `await pool.close()`.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=30),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


class Exchange:
    """Sends requests to one URL through a shared pool.

    Args:
        pool: Made by `new_pool`; never closed here.
        url: The endpoint.
        settings: Deadlines, retries and sizes.
        on_notification: Awaited with each message of a stream that is not the answer.
    """

    def __init__(
        self,
        pool: aiohttp.ClientSession,
        url: str,
        settings: McpSettings,
        on_notification: OnNotification,
    ) -> None:
        self._pool = pool
        self._url = URL(url)
        self._settings = settings
        self._on_notification = on_notification
        self.where = str(self._url.origin())

    async def send(self, out: Outgoing) -> Answer:
        """One request, sent again where that is allowed, until an answer or the deadline.

        Raises:
            AuthError: HTTP 401.
            BusyError: HTTP 503 or 429, after the retries.
            ClientError: too late, too large, or no JSON-RPC; with code UNREACHABLE: no connection,
                after the retries.
        """
        deadline = time.monotonic() + self._settings.request_s
        attempt = 0
        while True:
            try:
                return await self._post(out, deadline)
            except BusyError as busy:
                failure: ClientError | BusyError = busy
                wait_s = busy.retry_after_s
            except TimeoutError:
                raise self._too_late(out.method) from None
            except _CONNECTION_ERRORS as error:
                failure = self._unreachable(out.method, error)
                wait_s = _BACKOFF_S * 2**attempt
            attempt += 1
            late = time.monotonic() + wait_s >= deadline
            if not out.repeatable or attempt > self._settings.retries or late:
                raise failure
            await anyio.sleep(wait_s)

    async def notify(self, method: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a notification.

        Raises:
            ClientError: it was refused or did not arrive.
        """
        try:
            async with self._pool.post(
                self._url, data=body, headers=headers, timeout=self._timeout()
            ) as response:
                if response.status < 400:
                    return
                why = f"HTTP {response.status}"
        except (*_CONNECTION_ERRORS, TimeoutError) as error:
            why = type(error).__name__
        raise ClientError(
            f"{self.where} did not accept {method}: {why}.",
            "Check that the host runs and speaks this protocol era.",
        )

    async def delete(self, headers: Mapping[str, str]) -> None:
        """Ask the server to end a session; a server that is gone or refuses is no error."""
        timeout = aiohttp.ClientTimeout(total=min(2.0, self._settings.request_s))
        try:
            async with self._pool.delete(self._url, headers=headers, timeout=timeout):
                return
        except (*_CONNECTION_ERRORS, TimeoutError):
            return

    async def _post(self, out: Outgoing, deadline: float) -> Answer:
        async with self._pool.post(
            self._url,
            data=out.body,
            headers=out.headers,
            timeout=self._timeout(deadline - time.monotonic()),
            allow_redirects=False,
        ) as response:
            self._check_status(response)
            if response.content_type == "text/event-stream":
                message = await self._from_stream(out, response)
            else:
                message = self._decode(out.method, response.status, await self._read(response))
            return Answer(message, response.headers.get("mcp-session-id"))

    def _timeout(self, total_s: float | None = None) -> aiohttp.ClientTimeout:
        total = self._settings.request_s if total_s is None else max(0.001, total_s)
        return aiohttp.ClientTimeout(total=total, sock_connect=self._settings.connect_s)

    def _check_status(self, response: aiohttp.ClientResponse) -> None:
        if response.status == 401:
            raise AuthError(
                f"{self.where} does not accept this token.",
                "Use the token that belongs to this URL; an episode's token dies with it.",
            )
        if response.status in _BUSY_STATUS:
            raise BusyError(f"{self.where} is busy.", "Try again later.", _retry_after(response))

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        limit = self._settings.max_bytes
        length = response.content_length
        if length is not None and length <= limit:
            return await response.read()
        chunks = bytearray()
        async for chunk in response.content.iter_any():
            chunks += chunk
            if len(chunks) > limit:
                raise ClientError(
                    f"An answer of {self.where} is larger than {limit} bytes.",
                    "Raise McpSettings.max_bytes if that is expected.",
                )
        return bytes(chunks)

    def _decode(self, method: str, status: int, raw: bytes) -> dict[str, Json]:
        try:
            reply = orjson.loads(raw)
        except ValueError:
            reply = None
        if isinstance(reply, dict) and ("result" in reply or "error" in reply):
            return reply
        raise ClientError(
            f"{self.where} answered {method} with HTTP {status} and no JSON-RPC response.",
            "Check that the URL is an MCP endpoint.",
        )

    async def _from_stream(
        self, out: Outgoing, response: aiohttp.ClientResponse
    ) -> dict[str, Json]:
        decoder = SseDecoder(self._settings.max_bytes)
        async for chunk in response.content.iter_any():
            for message in self._events(out.method, decoder, chunk):
                if message.get("id") == out.request_id and "method" not in message:
                    return message
                await self._on_notification(message)
        raise ClientError(
            f"The stream of {self.where} ended without an answer to {out.method}.",
            "Repeat the call if that does no harm.",
        )

    def _events(self, method: str, decoder: SseDecoder, chunk: bytes) -> list[dict[str, Json]]:
        try:
            messages = [orjson.loads(data) for data in decoder.feed(chunk)]
        except ValueError as error:
            raise ClientError(
                f"The stream of {self.where} for {method} is broken: {error}.",
                "Report it to the server's owner.",
            ) from error
        return [message for message in messages if isinstance(message, dict)]

    def _unreachable(self, method: str, cause: BaseException) -> ClientError:
        error = ClientError(
            f"No connection to {self.where} for {method}: {type(cause).__name__}.",
            "Check that the host runs and that the URL is right.",
        )
        error.code = UNREACHABLE
        return error

    def _too_late(self, method: str) -> ClientError:
        return ClientError(
            f"{self.where} gave no answer to {method} within {self._settings.request_s:g} s.",
            "Raise the time limit or look at the host's load.",
        )


def _retry_after(response: aiohttp.ClientResponse) -> float:
    """Seconds of a Retry-After header; 1 when it is missing or a date."""
    try:
        return max(0.0, float(response.headers.get("retry-after", "1")))
    except ValueError:
        return 1.0
