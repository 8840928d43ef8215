"""The file that an episode's exchanges are recorded in: JSON lines, appended, chained.

Line one is a header: the episode's spec and digests, its canary, and what was replaced by
placeholders. Every further line is one exchange in the order in which the host completed them, or
a note that the recording was continued after a restart. Bodies are exact: text where they are
UTF-8, else base64. Each line ends with `check`, the sha256 of the line before it and its own bytes:
an edit or a lost line in the middle shows. It does not stop somebody who recomputes the chain; a
replay does. A torn last line is what a kill leaves, and is dropped.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from astra_mcp.errors import RecordingError, UsageError

Json = Any
Plane = Literal["agent", "control"]
Pair = tuple[str, str]
SCHEMA: Final = "astra-mcp/recording@1"
SUFFIX: Final = ".rec.jsonl"
_CHECK: Final = b',"check":"'
_TAIL: Final = len(_CHECK) + 64 + len(b'"}')


@dataclass(frozen=True, slots=True)
class Exchange:
    """One HTTP exchange; secrets are placeholders already.

    Attributes:
        plane: Whose it was.
        method, path: The request line; `path` with its query.
        headers: Request headers that matter, lower case.
        body: Request body, exact.
        status: HTTP status, or None when no answer went out.
        answer_headers: Response headers that matter.
        chunks: The response body in the parts in which it went out: (seconds, bytes).
        after: How many exchanges had been recorded when the answer began.
        ended: `host`: the answer is whole. `client`: the client left before its end.
        began_s, ended_s: Seconds since the recording began.
        cut: Why bodies are missing here, or None.
    """

    plane: Plane
    method: str
    path: str
    headers: Sequence[Pair]
    body: bytes
    status: int | None
    answer_headers: Sequence[Pair]
    chunks: Sequence[tuple[float, bytes]]
    after: int
    ended: Literal["host", "client"]
    began_s: float
    ended_s: float
    cut: str | None = None

    @property
    def answer(self) -> bytes:
        """The whole response body."""
        return b"".join(part for _, part in self.chunks)

    @property
    def streamed(self) -> bool:
        """Whether the answer was an event stream."""
        return ("content-type", "text/event-stream") in self.answer_headers

    def line(self) -> dict[str, Json]:
        """As it stands in the file."""
        answer: dict[str, Json] | None = None
        if self.status is not None:
            parts = [[round(at, 6), _pack(part)] for at, part in self.chunks]
            answer = {"status": self.status, "headers": self.answer_headers, "parts": parts}
        return {
            "kind": "exchange",
            "plane": self.plane,
            "after": self.after,
            "began_s": round(self.began_s, 6),
            "ended_s": round(self.ended_s, 6),
            "ended": self.ended,
            "cut": self.cut,
            "request": {
                "method": self.method,
                "path": self.path,
                "headers": self.headers,
                "body": _pack(self.body),
            },
            "response": answer,
        }

    @classmethod
    def of(cls, line: dict[str, Json]) -> Exchange:
        """From the file.

        Raises:
            KeyError, TypeError, ValueError: it has another form.
        """
        request, answer = line["request"], line["response"] or {}
        return cls(
            plane=line["plane"],
            method=request["method"],
            path=request["path"],
            headers=[(name, value) for name, value in request["headers"]],
            body=_unpack(request["body"]),
            status=answer.get("status"),
            answer_headers=[(name, value) for name, value in answer.get("headers", [])],
            chunks=[(float(at), _unpack(part)) for at, part in answer.get("parts", [])],
            after=int(line["after"]),
            ended=line["ended"],
            began_s=float(line["began_s"]),
            ended_s=float(line["ended_s"]),
            cut=line["cut"],
        )


def _pack(data: bytes) -> Json:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _unpack(value: Json) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"], validate=True)


class TapeFile:
    """An open end of one recording.

    Args:
        path: The file; it is made with mode 0600.
        check: `check` of its last line; "" writes a new file.

    Raises:
        OSError: it cannot be written, or a new one exists already.
    """

    def __init__(self, path: Path, check: str = "") -> None:
        self.path = path
        self._check = check
        if not check:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def append(self, line: dict[str, Json]) -> None:
        """Write one line; a write that fails leaves the file as it was.

        The file is opened for each line: a host has more episodes than descriptors to spare.
        """
        body = orjson.dumps(line)
        check = _chained(self._check, body)
        data = b'%b%b%b"}\n' % (body[:-1], _CHECK, check.encode())
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            end = os.fstat(fd).st_size
            try:
                while data:
                    data = data[os.write(fd, data) :]
            except OSError:
                os.ftruncate(fd, end)
                raise
        finally:
            os.close(fd)
        self._check = check


def _chained(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + body).hexdigest()


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording as read.

    Attributes:
        header: Its first line.
        exchanges: In order.
        check: `check` of the last whole line.
        size: Bytes of all whole lines; what follows them is torn.
        torn: Whether anything follows them.
    """

    header: dict[str, Json]
    exchanges: list[Exchange]
    check: str
    size: int
    torn: bool = False


def read_recording(path: Path) -> Recording:
    """Read and verify a recording.

    Raises:
        UsageError: there is no such file, or it is no recording.
        RecordingError: it was changed, or a line of it is missing.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", "Give files that --record wrote."
        ) from error
    whole = raw[: raw.rfind(b"\n") + 1]
    lines = whole.split(b"\n")[:-1]
    header = _header(path, lines)
    check = ""
    exchanges: list[Exchange] = []
    for number, line in enumerate(lines, 1):
        body = line[:-_TAIL] + b"}"
        check = _chained(check, body)
        if line[-_TAIL:] != b'%b%b"}' % (_CHECK, check.encode()):
            raise _damaged(path, number)
        try:
            value = orjson.loads(body)
            if value["kind"] == "exchange":
                exchanges.append(Exchange.of(value))
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, number) from error
    return Recording(header, exchanges, check, len(whole), len(whole) != len(raw))


def _header(path: Path, lines: list[bytes]) -> dict[str, Json]:
    try:
        header = orjson.loads(lines[0])
        if header["schema"] == SCHEMA:
            return dict(header)
    except (IndexError, KeyError, TypeError, ValueError):
        pass
    raise UsageError(f"{path} is no recording of an episode.", "Give files that --record wrote.")


def _damaged(path: Path, number: int) -> RecordingError:
    return RecordingError(
        f"{path}, line {number} is not what the host wrote.",
        "Record the episode again; a changed recording proves nothing.",
    )
