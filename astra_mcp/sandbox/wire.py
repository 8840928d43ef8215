"""Frames between host and jail, and what counts as JSON on that line.

A frame is a little-endian u32 length, an 8-byte tag and a JSON body. The host draws a fresh tag for
every request and a reply must carry it, so bytes left over from one call can never be taken for the
answer to another. Used on both sides; imports nothing but the standard library. It does not decide
what a broken frame means: the host (channel.py) kills the worker.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

Json = Any

HEADER: Final = struct.Struct("<I8s")
OP: Final = struct.Struct("<cI8s")  # to a fork server: what, process id, tag of the answer
TAG_BYTES: Final = 8
NO_TAG: Final = bytes(TAG_BYTES)
MAX_FRAME: Final = 64 << 20
MAX_CHANGES: Final = 1 << 20
MAX_DEPTH: Final = 64
MAX_INT: Final = 2**53 - 1
MAX_CODE: Final = 64
MAX_MESSAGE: Final = 500

# The same words as in astra_mcp.errors, which the jail does not import; a test keeps them equal.
TIMEOUT: Final = "timeout"
MEMORY_LIMIT: Final = "memory_limit"
OUTPUT_LIMIT: Final = "output_limit"
CRASH: Final = "crash"
CONTRACT: Final = "contract_violation"

Effect = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Order:
    """What the host wants of a template; its first frame.

    Attributes:
        code: Source of the bundle's module.
        tools: Tool name -> whether it may change the state.
        call_seconds: CPU seconds of one call.
        load_seconds: CPU seconds of parsing, and of the module level in each worker.
        life_seconds: CPU seconds of one worker in all.
        memory_mb: Memory of a worker beyond the bare interpreter.
        output_bytes: Largest result.
        now_s: What every clock says, POSIX seconds.
        guarded: Whether the language layer is on; off only in this package's own tests.
        explain: Whether a crash says which exception it was and where: for authors checking their
            own code, never where an agent hears it.
    """

    code: str
    tools: Mapping[str, Effect]
    call_seconds: float
    load_seconds: float
    life_seconds: int
    memory_mb: int
    output_bytes: int
    now_s: float
    guarded: bool = True
    explain: bool = False


_encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def frame(tag: bytes, body: bytes) -> bytes:
    """One frame as bytes."""
    return HEADER.pack(len(body), tag) + body


def encode(value: Json) -> bytes:
    """Compact UTF-8 JSON.

    Raises:
        ValueError: NaN, infinity, a cycle or a lone surrogate.
        TypeError: something that JSON has no form for.
        RecursionError: nested beyond what the encoder follows.
    """
    return _encoder.encode(value).encode()


def json_fault(value: Json) -> str | None:
    """Why `value` is no strict JSON although `encode` takes it; None when it is.

    Covers what encoders let pass: keys that are not strings, integers beyond 2**53, depth.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                try:
                    "".join(item)
                except TypeError:
                    return "a key that is not a string"
                inner: Any = item.values()
            elif isinstance(item, (list, tuple)):
                inner = item
            else:
                inner = (item,)
            for child in inner:
                kind = type(child)
                if kind is str or kind is float or kind is bool or child is None:
                    continue
                if isinstance(child, int):
                    if not -MAX_INT <= child <= MAX_INT:
                        return "an integer beyond 2**53"
                elif isinstance(child, (dict, list, tuple)):
                    below.append(child)
        if not below:
            return None
        level = below
    return f"more than {MAX_DEPTH} levels of nesting"


def too_deep(value: Json) -> bool:
    """Whether parsed JSON is nested deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is dict else item)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


class FrameReader:
    """Blocking frames from a descriptor; the process ends when the other side went away."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""

    def read(self) -> tuple[bytes, bytes]:
        """The next (tag, body)."""
        self._fill(HEADER.size)
        size, tag = HEADER.unpack_from(self._buffer)
        if size > MAX_FRAME:
            leave()
        end = HEADER.size + size
        self._fill(end)
        body, self._buffer = self._buffer[HEADER.size : end], self._buffer[end:]
        return tag, body

    def _fill(self, size: int) -> None:
        missing = size - len(self._buffer)
        if missing <= 0:
            return
        parts = [self._buffer]
        while missing > 0:
            part = os.read(self._fd, max(missing, 65536))
            if not part:
                leave()
            parts.append(part)
            missing -= len(part)
        self._buffer = b"".join(parts)


def write_frame(fd: int, tag: bytes, body: bytes) -> None:
    """Write one frame, blocking."""
    data = memoryview(frame(tag, body))
    while data:
        data = data[os.write(fd, data) :]


def leave() -> NoReturn:
    """End this jailed process at once: its host went away."""
    os._exit(0)
