"""How far a collection is: a bar on a terminal, now and then a plain line elsewhere.

Writes to standard error only, so that data on standard output stay data.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_LINE_EVERY_S: Final = 5.0


class Reporter(Protocol):
    """Told how far it is."""

    def update(self, done: int, note: str) -> None:
        """`done` episodes are through; `note` is a short word on how it goes."""


class _Bar:
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("episodes", total=total, note="")

    def update(self, done: int, note: str) -> None:
        self._progress.update(self._task, completed=done, note=note)


class _Lines:
    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream = stream
        self._total = total
        self._last = time.monotonic()

    def update(self, done: int, note: str) -> None:
        now = time.monotonic()
        if done < self._total and now - self._last < _LINE_EVERY_S:
            return
        self._last = now
        print(f"episodes {done}/{self._total} {note}", file=self._stream, flush=True)


@contextlib.contextmanager
def reporting(total: int, stream: TextIO | None = None) -> Iterator[Reporter]:
    """A reporter for `total` episodes on `stream` (default: standard error)."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield _Lines(stream, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as progress:
        yield _Bar(progress, total)
