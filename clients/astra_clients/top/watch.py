"""The loop of `astra top`: look, compare, show, until q, Ctrl-C or the end of the pipe.

A host that does not answer is said so and asked again; a token that does not open is an error at
once. A terminal gets a screen that is given back at the end, anything else one line a look.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import aiohttp
import anyio
from rich.console import Console
from rich.live import Live
from yarl import URL

from astra_clients.exchange import new_pool
from astra_clients.top.scrape import Scrape, fetch
from astra_clients.top.screen import HEAD, layout, line
from astra_clients.top.snapshot import Snapshot, compare
from astra_mcp.concurrency import task_group
from astra_mcp.errors import ClientError

REQUEST_S: Final = 10.0
HEAD_EVERY: Final = 20
_QUIT: Final = (b"q", b"Q", b"\x04")


async def first_snapshot(url: str, token: str, interval_s: float) -> Snapshot:
    """One snapshot of the next `interval_s` seconds.

    Raises:
        AuthError: the token does not open the metrics.
        ClientError: the host does not answer, or not with metrics.
    """
    async with new_pool() as pool:
        before = await fetch(pool, url, token, REQUEST_S)
        await anyio.sleep(interval_s)
        after = await fetch(pool, url, token, REQUEST_S)
    return compare(before, after, time.time())


async def watch(
    url: str,
    token: str,
    interval_s: float,
    console: Console,
    say: Callable[[str], None],
) -> None:
    """Show snapshots until somebody stops it.

    Args:
        console: Where the screen goes when it is a terminal.
        say: Prints one line when it is not; a BrokenPipeError from it ends the watching.

    Raises:
        AuthError: the token does not open the metrics.
        ClientError: the host does not answer at the start, or not with metrics.
    """
    looks = _Looks(url, token)
    async with new_pool() as pool, task_group() as tasks:
        await looks.first(pool)
        tasks.start_soon(_stop_on_signal, tasks.cancel_scope)
        if console.is_terminal:
            with _keys() as keyboard:
                if keyboard is not None:
                    tasks.start_soon(_stop_on_key, keyboard, tasks.cancel_scope)
                await _screen(looks, pool, interval_s, console)
        else:
            await _lines(looks, pool, interval_s, say)
        tasks.cancel_scope.cancel()


class _Looks:
    """The last look, and what has changed since."""

    def __init__(self, url: str, token: str) -> None:
        self.origin = str(URL(url).origin())
        self.problem = ""
        self._url = url
        self._token = token
        self._last: Scrape | None = None
        self._shown: Snapshot | None = None

    async def first(self, pool: aiohttp.ClientSession) -> None:
        self._last = await fetch(pool, self._url, self._token, REQUEST_S)

    async def next(self, pool: aiohttp.ClientSession) -> Snapshot | None:
        """What happened since the last look; the old snapshot while the host does not answer."""
        assert self._last is not None  # `first` comes first
        try:
            seen = await fetch(pool, self._url, self._token, REQUEST_S)
        except ClientError as error:
            self.problem = error.message.removeprefix(f"{self.origin} ")
            return self._shown
        self.problem = ""
        self._shown, self._last = compare(self._last, seen, time.time()), seen
        return self._shown


async def _screen(
    looks: _Looks, pool: aiohttp.ClientSession, interval_s: float, console: Console
) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        live.update(f"{looks.origin}: looking for {interval_s:g} s, q quits", refresh=True)
        while True:
            await anyio.sleep(interval_s)
            seen = await looks.next(pool)
            if seen is not None:
                width, height = console.size
                screen = layout(seen, looks.origin, looks.problem, width, height)
                live.update(screen, refresh=True)


async def _lines(
    looks: _Looks, pool: aiohttp.ClientSession, interval_s: float, say: Callable[[str], None]
) -> None:
    count = 0
    while True:
        await anyio.sleep(interval_s)
        seen = await looks.next(pool)
        try:
            if looks.problem:
                say(f"{looks.origin} {looks.problem}")
            elif seen is not None:
                if count % HEAD_EVERY == 0:
                    say(HEAD)
                say(line(seen))
                count += 1
        except BrokenPipeError:
            return


@contextmanager
def _keys() -> Iterator[int | None]:
    """Standard input key by key while the block runs; None when it is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


async def _stop_on_key(keyboard: int, scope: anyio.CancelScope) -> None:
    while True:
        await anyio.wait_readable(keyboard)
        key = os.read(keyboard, 1)
        if not key or key in _QUIT:
            scope.cancel()
            return


async def _stop_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return
