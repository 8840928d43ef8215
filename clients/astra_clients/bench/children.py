"""Processes of a benchmark: servers, load, probes; and what a tree of processes has used.

Every wait has a deadline, every child ends when its standard input closes, and what a child wrote
to standard error is kept in a file and quoted when it fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import orjson
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from astra_mcp.errors import BenchError

Json = Any
READY_S: Final = 60.0
STOP_S: Final = 20.0
_POLL_S: Final = 0.002
_MAX_LINE: Final = 1 << 20
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Served:
    """A server that listens.

    Attributes:
        url: `http://host:port`.
        path: Where its tool is called; "" for hosts that give out a URL per world.
        pid: Its process.
        ready_s: Seconds from its start until it listened.
        token: Control token of `astra serve`, else "".
    """

    url: str
    path: str
    pid: int
    ready_s: float
    token: str = ""

    @property
    def host(self) -> str:
        """Its address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Its port."""
        return urlsplit(self.url).port or 0


@asynccontextmanager
async def serving(command: Sequence[str], folder: Path, name: str) -> AsyncIterator[Served]:
    """A server while the block runs.

    Args:
        command: A module and its arguments; `{ready}` stands for the file that it writes.
        folder: Where that file and its log are put.

    Raises:
        BenchError: it ended, or did not listen in time.
    """
    ready, log = folder / f"{name}.ready", folder / f"{name}.log"
    ready.unlink(missing_ok=True)
    words = [str(ready) if word == "{ready}" else word for word in command]
    began = time.perf_counter()
    async with _process(words, log, name, stdout=subprocess.DEVNULL) as process:
        info = await _ready(process, ready, log, name)
        taken = time.perf_counter() - began
        token = _token(info)
        yield Served(info["url"], info.get("path", ""), process.pid, taken, token)


def _token(info: Mapping[str, Json]) -> str:
    return Path(info["token_file"]).read_text().strip() if info.get("token_file") else ""


async def _ready(process: Process, ready: Path, log: Path, name: str) -> dict[str, Json]:
    with anyio.move_on_after(READY_S):
        while not await anyio.Path(ready).exists():
            if process.returncode is not None:
                raise _ended(name, log)
            await anyio.sleep(_POLL_S)
        info: dict[str, Json] = orjson.loads(await anyio.Path(ready).read_bytes())
        return info
    raise BenchError(f"The server {name} did not listen within {READY_S:g} s.", _said(log))


class Child:
    """A child that answers lines of JSON with lines of JSON."""

    def __init__(self, process: Process, name: str, log: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._stdin = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._name = name
        self._log = log

    async def tell(self, value: Json) -> None:
        """Send one line."""
        await self._stdin.send(orjson.dumps(value) + b"\n")

    async def hear(self, seconds: float) -> dict[str, Json]:
        """The next line.

        Raises:
            BenchError: none came within `seconds`, or the child ended.
        """
        try:
            with anyio.fail_after(seconds):
                line = await self._lines.receive_until(b"\n", _MAX_LINE)
        except TimeoutError:
            what = f"{self._name} gave no result within {seconds:g} s."
            raise BenchError(what, _said(self._log)) from None
        except (anyio.EndOfStream, anyio.IncompleteRead):
            raise _ended(self._name, self._log) from None
        value: dict[str, Json] = orjson.loads(line)
        return value

    async def ask(self, value: Json, seconds: float) -> dict[str, Json]:
        """Send one line and wait for the next one."""
        await self.tell(value)
        return await self.hear(seconds)


@asynccontextmanager
async def child(module: str, folder: Path, *arguments: str) -> AsyncIterator[Child]:
    """A module as a process that is asked over its standard streams while the block runs."""
    name = module.rpartition(".")[2]
    log = folder / f"{name}.log"
    words = [module, *arguments]
    async with _process(words, log, name, stdout=subprocess.PIPE) as process:
        yield Child(process, name, log)


@asynccontextmanager
async def _process(
    words: Sequence[str], log: Path, name: str, *, stdout: int
) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", *words]
    with log.open("wb") as stderr:
        process = await anyio.open_process(
            command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr
        )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)


async def _stop(process: Process) -> None:
    assert process.stdin is not None
    await process.stdin.aclose()
    with anyio.move_on_after(STOP_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    if process.stdout is not None:
        await process.stdout.aclose()


def _ended(name: str, log: Path) -> BenchError:
    return BenchError(f"{name} ended before it was done.", _said(log))


def _said(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()[-3:] if log.exists() else []
    return f"It said last: {' | '.join(lines)}" if lines else "It said nothing."


# ---- what a tree of processes has used ------------------------------------------------------


def tree(pid: int) -> list[int]:
    """A process and every process below it."""
    below: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            below.setdefault(int(fields[1]), []).append(int(entry.name))
    found, at = [pid], 0
    while at < len(found):
        found += below.get(found[at], [])
        at += 1
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """User and system seconds of these processes and of their children that have ended.

    The kernel's CPU clock of a process has nanoseconds; /proc has ticks of 10 ms, which would hide
    what a worker of many uses in one window. Ended children are in /proc alone.
    """
    total = 0.0
    for pid in pids:
        try:
            total += time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3) of Linux
        except OSError:
            continue
        if fields := _stat(pid):
            total += (int(fields[13]) + int(fields[14])) * _TICK_S
    return total


def rss_bytes(pid: int) -> int:
    """Resident memory of one process."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError) as error:
        raise BenchError("A measured server has ended.", "Run the benchmark again.") from error
    return pages * os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the third one on; [] when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
