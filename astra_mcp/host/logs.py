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
#: Safe to apply to rendered JSON, too: what they replace holds no quote and no backslash.
_TOKENS: Final = (
    (
        re.compile(r"(/(?:episodes|agent)/)(?!mcp\b)[^/\s\"'\\?#]+", re.IGNORECASE),
        rf"\g<1>{HIDDEN}",
    ),
    (re.compile(r"\b(bearer\s+)[^\s\"',;\\]+", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    (re.compile(r"(?<!sha256:)(?<![\w-])[\w-]{32,}", re.ASCII), HIDDEN),
)
_SECRET_NAME: Final = re.compile(r"token|secret|password|api_?key|authorization", re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    rf"((?:{_SECRET_NAME.pattern})[\"']?\s*[=:]\s*[\"']?)(?!bearer\b)[^\s\"'&,;}}]+", re.IGNORECASE
)
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def redact(text: str) -> str:
    """The text with everything that could be a token replaced by `***`."""
    return _hide_tokens(_ASSIGNED.sub(rf"\g<1>{HIDDEN}", text))


def _hide_tokens(text: str) -> str:
    for pattern, replacement in _TOKENS:
        text = pattern.sub(replacement, text)
    return text


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the `extra` fields, and the error."""

    def format(self, record: logging.LogRecord) -> str:
        """The redacted line; an `extra` field named like a secret is hidden whole."""
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Json] = {
            "time": f"{second}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for key, value in record.__dict__.items():
            if key not in _STANDARD and key not in line:
                line[key] = HIDDEN if _SECRET_NAME.search(key) else value
        error, frames = _failure(record)
        if error is not None:
            line["error"] = redact(error)
        text = _hide_tokens(_dump(line))
        return f'{text[:-1]},"frames":{_dump(frames)}}}' if frames else text


def _failure(record: logging.LogRecord) -> tuple[str | None, list[str]]:
    """What the record's exception is and where it happened."""
    if not record.exc_info or record.exc_info[1] is None:
        return None, []
    return describe(record.exc_info[1]), _frames(record.exc_info[2])


def _dump(value: Json) -> str:
    return orjson.dumps(value, default=_kind, option=orjson.OPT_NON_STR_KEYS).decode()


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
