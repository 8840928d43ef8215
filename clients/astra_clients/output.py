"""The output file of a collection: appended line by line, resumed after a kill, never mixed.

Each line is one record and is written by one write. Beside `FILE.jsonl` stands
`FILE.jsonl.meta.json` with the configuration and its hash: the same configuration resumes, another
one is refused. A torn last line is dropped; a broken line elsewhere is an error, since nobody may
guess what it held. A lock keeps two collections off one file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson

from astra_clients.plan import Key, configuration_hash
from astra_mcp.errors import UsageError

Json = Any
SCHEMA: Final = "astra-mcp/trajectory@1"
META_SCHEMA: Final = "astra-mcp/collection@1"


def meta_path(out: Path) -> Path:
    """Where the configuration of an output file stands."""
    return out.with_name(out.name + ".meta.json")


def read_records(path: Path) -> Iterator[dict[str, Json]]:
    """The records of a file; a torn last line is left out.

    Raises:
        UsageError: there is no such file, or another line is no record.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _record(path, number, line)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", "Give a file that a collection wrote."
        ) from error


class RecordFile:
    """An open output file; use it as a context manager.

    Args:
        path: The JSONL file.
        configuration: What decides the records.
        overwrite: Start anew.
        retry_failed: Drop records without a reward, so that their episodes are played again.

    Attributes:
        done: Keys of the records that are there.

    Raises:
        UsageError: the file belongs to another configuration or is in use.
    """

    def __init__(
        self,
        path: Path,
        configuration: dict[str, Json],
        *,
        overwrite: bool = False,
        retry_failed: bool = False,
    ) -> None:
        self.path = path
        self.done: set[Key] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock()
            if overwrite:
                os.ftruncate(self._fd, 0)
            self._check_meta(configuration)
            self._load(retry_failed)
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def append(self, record: dict[str, Json]) -> None:
        """Write one record as one line; a failed write leaves the file as it was."""
        end = os.fstat(self._fd).st_size
        line = memoryview(orjson.dumps(record) + b"\n")
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError:
            os.ftruncate(self._fd, end)
            raise
        self.done.add(key_of(record))

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{self.path} is in use by another collection.",
                "Wait for it, or name another file.",
            ) from error

    def _check_meta(self, configuration: dict[str, Json]) -> None:
        meta = meta_path(self.path)
        wanted = configuration_hash(configuration)
        if os.fstat(self._fd).st_size:
            found = _meta_hash(meta)
            if found != wanted:
                what = "no configuration lies beside it"
                if found is not None:
                    what = "they were made with another configuration"
                raise UsageError(
                    f"{self.path} holds records, and {what}.",
                    "Name another file, repeat the old configuration, or use --overwrite.",
                )
            return
        content = {"schema": META_SCHEMA, "hash": wanted, "configuration": configuration}
        _write_atomically(meta, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")

    def _load(self, retry_failed: bool) -> None:
        """Drop a torn last line and, when asked, records without a reward; note the rest."""
        whole = 0
        kept: list[bytes] = []
        dropped = False
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                record = _record(self.path, number, line)
                if retry_failed and record["reward"]["value"] is None:
                    dropped = True
                    continue
                self.done.add(key_of(record))
                if retry_failed:
                    kept.append(line)
        os.ftruncate(self._fd, whole)
        if dropped:
            self._replace(b"".join(kept))

    def _replace(self, content: bytes) -> None:
        """Swap the file for another content; a kill leaves the old one or the new one."""
        _write_atomically(self.path, content)
        old = self._fd
        self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        os.close(old)
        self._lock()


def key_of(record: dict[str, Json]) -> Key:
    """(agent, task, digest, seed) of a record."""
    return (record["agent"], record["task"], record["digest"], record["seed"])


def _record(path: Path, number: int, line: bytes) -> dict[str, Json]:
    try:
        record = orjson.loads(line)
        key_of(record)
        known = record["schema"] == SCHEMA and "value" in record["reward"]
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise UsageError(
            f"{path}, line {number} is no record of an episode.",
            "Remove the line or start anew with --overwrite.",
        )
    return dict(record)


def _meta_hash(meta: Path) -> str | None:
    try:
        return str(orjson.loads(meta.read_bytes())["hash"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_atomically(path: Path, content: bytes) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.write_bytes(content)
    os.replace(draft, path)
