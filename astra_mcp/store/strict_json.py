"""Files and JSON, read without guessing.

Promises: what is read is a regular file (no link, no pipe) within `MAX_FILE_BYTES`, UTF-8, and JSON
in which no key stands twice and every number is finite; all else is a `BundleError` that names the
place. What is written replaces the old file in one step or not at all. Knows nothing of bundles.
"""

from __future__ import annotations

import json
import math
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, Final, NoReturn

from astra_mcp.canonical import deeper_than
from astra_mcp.errors import BundleError
from astra_mcp.settings import MAX_JSON_DEPTH

Json = Any

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Largest file of a bundle, in bytes."""


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        BundleError: there is none, it is a link or no regular file, or it is too large.
    """
    try:
        # Non-blocking, so that opening a pipe cannot wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise BundleError(
            f"{path} does not exist.", "Check the path, or restore the file."
        ) from error
    except OSError as error:
        if path.is_symlink():
            raise BundleError(
                f"{path} is a symbolic link.", "Put the file itself into the bundle."
            ) from error
        raise BundleError(
            f"{path} cannot be read: {error.strerror}.", "Check its type and permissions."
        ) from error
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):  # asked first: a directory cannot even be wrapped
            raise BundleError(f"{path} is no regular file.", "A bundle holds regular files only.")
        # Not the bound itself: asking for 64 MiB costs more than all the rest of a small file.
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = b"" if info.st_size > MAX_FILE_BYTES else file.read(info.st_size + 1)
    finally:
        os.close(handle)
    if info.st_size > MAX_FILE_BYTES or len(data) > MAX_FILE_BYTES:
        raise BundleError(
            f"{path} is larger than {MAX_FILE_BYTES // 1024**2} MiB.", "Split or thin the data."
        )
    return data


def decode(data: bytes, place: str) -> str:
    """UTF-8 text.

    Raises:
        BundleError: the bytes are no UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BundleError(
            f"{place} is not UTF-8 at byte {error.start}.", "Save it as UTF-8."
        ) from error


def read_text(path: Path) -> str:
    """UTF-8 text of a file, line ends as they stand; raises as `read_bytes` and `decode` do."""
    return decode(read_bytes(path), str(path))


def parse(text: str, place: str) -> Json:
    """Parse JSON.

    Args:
        place: What error messages call the text.

    Raises:
        BundleError: no JSON, a key twice in one object, a number that is not finite, a text that
            is no Unicode, or nesting too deep to read.
    """

    def fail(what: str) -> NoReturn:
        raise BundleError(f"{place}: {what}.", "Correct the file, or write it anew with astra.")

    def pairs(items: list[tuple[str, Json]]) -> dict[str, Json]:
        found = dict(items)
        if len(found) != len(items):
            keys = [key for key, _ in items]
            fail(f"the key {next(k for k in keys if keys.count(k) > 1)!r} stands twice")
        return found

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            fail("a number is too large")
        return value

    try:
        value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_float=number,
            parse_constant=lambda name: fail(f"{name} is no JSON number"),
        )
        # A lone surrogate ("\ud800") is JSON but no Unicode: no digest could be taken over it.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        if text.count("[") + text.count("{") > MAX_JSON_DEPTH and deeper_than(
            value, MAX_JSON_DEPTH
        ):
            fail(f"it is nested deeper than {MAX_JSON_DEPTH} levels")
    except json.JSONDecodeError as error:
        fail(f"no JSON, line {error.lineno} column {error.colno}: {error.msg.lower()}")
    except RecursionError:
        fail("it is nested too deep")
    except UnicodeEncodeError:
        fail("a text holds half of a surrogate pair")
    except ValueError:
        fail("a number has too many digits")
    return value


def pretty(value: Json) -> str:
    """Indented JSON with a line end, in the order that the value has.

    Raises:
        BundleError: the value is no JSON or holds NaN or infinity.
    """
    return _dumps(value, indent=1) + "\n"


def one_line(value: Json) -> str:
    """JSON on one line, in the order that the value has; raises as `pretty` does."""
    return _dumps(value, indent=None)


def _dumps(value: Json, indent: int | None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except (TypeError, ValueError, RecursionError) as error:
        raise BundleError(
            f"A value has no JSON form: {error}.", "Use JSON values with finite numbers."
        ) from error


def first_difference(a: Json, b: Json, path: str = "") -> str | None:
    """Where two JSON values differ, as `a.0.b`; None when they are equal (1 equals 1.0)."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(k for k in b if k not in a)]:
            here = f"{path}.{key}" if path else str(key)
            if key not in a or key not in b:
                return here
            if (inner := first_difference(a[key], b[key], here)) is not None:
                return inner
        return None
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return path
        pairs = enumerate(zip(a, b, strict=True))
        found = (first_difference(x, y, f"{path}.{i}" if path else str(i)) for i, (x, y) in pairs)
        return next((place for place in found if place is not None), None)
    if isinstance(a, bool) or isinstance(b, bool):
        return None if a is b else path
    return None if a == b else path


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that at any moment it is the old one or the new one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
