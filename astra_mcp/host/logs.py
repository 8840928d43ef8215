"""Structured logs that cannot tell a secret: JSON lines on stderr.

The finished line is searched for what could be a token and each find is replaced, whoever logged it
and however it got there: path segments after /episodes/ and /agent/, bearer values, values of keys
that name secrets, and every long run of URL-safe characters but a `sha256:` digest. Of an exception
only its type and the places of its frames are logged, because its text may hold data of a sealed
task; an `AstraError` is written by us and keeps its text.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO

import orjson

from astra_mcp.errors import AstraError

Json = Any
HIDDEN: Final = "***"
_SECRETS: Final = (
    (
        re.compile(r"(/(?:episodes|agent)/)(?!mcp\b)[^/\s\"'\\?#]+", re.IGNORECASE),
        rf"\g<1>{HIDDEN}",
    ),
    (re.compile(r"\b(bearer\s+)[^\s\"',;\\]+", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    (
        re.compile(
            r"((?:token|secret|password|api_?key|authorization)\\?[\"']?\s*[=:]\s*\\?[\"']?)"
            r"(?!bearer\b)[^\s\"'&,;\\}]+",
            re.IGNORECASE,
        ),
        rf"\g<1>{HIDDEN}",
    ),
    (re.compile(r"(?<!sha256:)(?<![\w-])[\w-]{32,}", re.ASCII), HIDDEN),
)
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def redact(text: str) -> str:
    """The text with everything that could be a token replaced by `***`."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the `extra` fields, and the error."""

    def format(self, record: logging.LogRecord) -> str:
        """The redacted line."""
        line: dict[str, Json] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}"
            f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = {k: v for k, v in record.__dict__.items() if k not in _STANDARD}
        line.update({key: value for key, value in extra.items() if key not in line})
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = describe(record.exc_info[1])
            line["frames"] = _frames(record.exc_info[2])
        return redact(orjson.dumps(line, default=_kind).decode())


def describe(error: BaseException) -> str:
    """An exception's type, and its text where we wrote it ourselves."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, AstraError) else name


def _kind(value: object) -> str:
    return type(value).__name__


def _frames(trace: TracebackType | None) -> list[str]:
    """Where it happened, outermost first: `file:line function`, without sources or values."""
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return frames


def configure(level: int | str = logging.INFO, stream: TextIO | None = None) -> None:
    """Send all logs of this process, and nothing else, to one stream as redacted JSON lines.

    The HTTP server's access log stays off: it would repeat paths.

    Args:
        level: Least level that is logged.
        stream: Where to; stderr by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = False
    for name in ("uvicorn", "uvicorn.error"):
        inner = logging.getLogger(name)
        inner.handlers.clear()
        inner.propagate = True
        inner.setLevel(
            max(logging.WARNING, logging.getLevelName(level) if isinstance(level, str) else level)
        )
