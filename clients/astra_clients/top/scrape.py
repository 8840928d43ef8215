"""One look at a host's /metrics: fetched with a deadline and a largest size, and parsed.

Reads the text format that Prometheus reads, as far as hosts write it: no timestamps, no exemplars.
Errors name the host's origin and never the token.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from yarl import URL

from astra_clients.exchange import UNREACHABLE
from astra_mcp.errors import AuthError, ClientError

MAX_BYTES: Final = 32 << 20
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Scrape:
    """Every sample of one page.

    Attributes:
        at: Monotonic seconds when it was read.
        samples: Metric name -> (labels, value) in the page's order.
    """

    at: float
    samples: Mapping[str, list[tuple[Labels, float]]] = field(repr=False)

    def value(self, name: str, of: Callable[[Iterable[float]], float] = sum) -> float | None:
        """What the host's processes say together, `of` their values; None when none does."""
        found = self.samples.get(name)
        return of([value for _, value in found]) if found else None

    def each(self, name: str) -> Iterator[tuple[Labels, float]]:
        """All samples of a name."""
        yield from self.samples.get(name, ())


def parse(text: str, at: float) -> Scrape:
    """Read a page.

    Raises:
        ClientError: a line is no sample.
    """
    samples: dict[str, list[tuple[Labels, float]]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        try:
            if match is None:
                raise ValueError(line)
            name, inside, value = match.groups()
            samples.setdefault(name, []).append((_labels(inside or ""), float(value)))
        except ValueError:
            raise ClientError(
                "What the host shows at /metrics is not in the text format of Prometheus.",
                "Give the URL of a host of astra serve.",
            ) from None
    return Scrape(at, samples)


def _labels(inside: str) -> Labels:
    return {key: _ESCAPED.sub(_unescape, value) for key, value in _LABEL.findall(inside)}


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


async def fetch(pool: aiohttp.ClientSession, url: str, token: str, request_s: float) -> Scrape:
    """Read the metrics of the host at `url`, its base URL or any URL of it.

    Raises:
        AuthError: the token does not open them.
        ClientError: no answer in time, or another one than metrics.
    """
    origin = URL(url).origin()
    headers = {"authorization": f"Bearer {token}"}
    limits = aiohttp.ClientTimeout(total=request_s)
    try:
        async with pool.get(
            origin / "metrics", headers=headers, timeout=limits, allow_redirects=False
        ) as response:
            if response.status == 401:
                raise AuthError(
                    f"The token does not open the metrics of {origin}.",
                    "Use the control token, or the one that the host was given for metrics.",
                )
            if response.status != 200:
                raise ClientError(
                    f"{origin} answers /metrics with HTTP {response.status}.",
                    "Give the URL of a host of astra serve that is not stopping.",
                )
            body = await _read(response)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        failure = ClientError(
            f"{origin} does not answer: {type(error).__name__}.",
            "Check the URL, and that the host runs.",
        )
        failure.code = UNREACHABLE
        raise failure from error
    return parse(body.decode("utf-8", "replace"), time.monotonic())


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise ClientError(
                f"The metrics are larger than {MAX_BYTES} bytes.", "Is this a host of astra serve?"
            )
    return bytes(body)
