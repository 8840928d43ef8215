"""Clock and entropy that depend on nothing but what the host says: for the jailed interpreter only.

`freeze` replaces the sources of time and randomness of this whole process, below the standard
library, so that code which uses them through any module becomes a pure function of (code, state,
arguments, seed). Each clock read advances one microsecond: ordered, unique and reproducible. Never
call it in a process that does anything else. Addresses (`id`, default reprs) are not covered; the
audit's determinism check finds tools that leak them.
"""

from __future__ import annotations

import ctypes
import datetime
import decimal
import gc
import os
import random
import time
import types
import uuid
import warnings
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any, Final

#: Modules whose results depend on the seed; code that imports none of them needs no reseeding.
SEEDED: Final = frozenset({"random", "uuid", "secrets", "statistics"})
_CODECS: Final = """ascii latin-1 utf-8 utf-8-sig utf-16 utf-16-le utf-16-be utf-32 cp1252 idna
    punycode raw_unicode_escape unicode_escape hex base64 rot13 gbk gb2312 big5 shift_jis euc_jp
    euc_kr""".split()

_entropy = random.Random(0)
_clock_ns = [0]
_kept: list[Any] = []


def _now_ns() -> int:
    _clock_ns[0] += 1000
    return _clock_ns[0]


def _now_s() -> float:
    return _now_ns() / 1e9


def _sleep(seconds: float) -> None:
    _clock_ns[0] += max(0, int(seconds * 1e9))


def _random_bytes(size: int) -> bytes:
    return _entropy.randbytes(size)


def set_clock(now_s: float) -> None:
    """Every clock says `now_s` (POSIX seconds) from here on."""
    _clock_ns[0] = int(now_s * 1_000_000) * 1000


def reseed(seed: bytes) -> None:
    """All randomness follows from `seed` from here on."""
    _entropy.seed(seed)
    random.seed(_entropy.getrandbits(64))
    uuid._last_timestamp = None  # type: ignore[attr-defined]


def reset_context() -> None:
    """The default decimal context, whatever an earlier call set."""
    decimal.setcontext(decimal.Context())


def freeze(facades: Mapping[str, types.ModuleType]) -> None:
    """Replace clock and entropy of this process and load what the library loads lazily.

    Args:
        facades: The modules that tool code imports; `time` and `random` get the same functions.
    """
    _load_lazy_parts()
    for name, function in _clock_functions().items():
        setattr(time, name, function)
        setattr(facades["time"], name, function)
    _freeze_datetime()
    os.urandom = _random_bytes
    random._urandom = _random_bytes  # type: ignore[attr-defined]
    _freeze_default_seed(facades["random"])
    for name, value in (("_generate_time_safe", None), ("_UuidCreate", None), ("_node", 2 << 40)):
        setattr(uuid, name, value)


def _clock_functions() -> dict[str, Callable[..., Any]]:
    gmtime, localtime, strftime = time.gmtime, time.localtime, time.strftime
    ctime, asctime = time.ctime, time.asctime
    seconds = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    functions: dict[str, Callable[..., Any]] = dict.fromkeys(seconds, _now_s)
    functions |= {f"{name}_ns": _now_ns for name in seconds}
    functions |= {
        "sleep": _sleep,
        "gmtime": lambda s=None: gmtime(_now_s() if s is None else s),
        "localtime": lambda s=None: localtime(_now_s() if s is None else s),
        "strftime": lambda form, t=None: strftime(form, t or localtime(_now_s())),
        "ctime": lambda s=None: ctime(_now_s() if s is None else s),
        "asctime": lambda t=None: asctime(t or localtime(_now_s())),
    }
    return functions


def _freeze_datetime() -> None:
    def now(cls: Any, tz: Any = None) -> Any:
        at = _now_ns()
        moment = cls.fromtimestamp(at // 10**9, datetime.UTC if tz is None else tz)
        moment = moment.replace(microsecond=at // 1000 % 10**6)
        return moment.replace(tzinfo=None) if tz is None else moment

    # The C type's own dict: type identity and isinstance stay as they were.
    members = gc.get_referents(datetime.datetime.__dict__)[0]
    members["now"] = classmethod(now)
    members["utcnow"] = classmethod(lambda cls: now(cls))
    members["today"] = classmethod(lambda cls: now(cls))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))


def _freeze_default_seed(facade: types.ModuleType) -> None:
    original = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        """Without a seed, take it from our entropy instead of the kernel's."""
        original(self, _random_bytes(32) if a is None else a, version)

    random.Random.seed = seed  # type: ignore[method-assign]
    shared = random._inst
    random.seed = shared.seed
    facade.seed = shared.seed  # type: ignore[attr-defined]


def _load_lazy_parts() -> None:
    """Whatever the library imports or opens on first use must be there before the lock."""
    warnings.simplefilter("ignore")
    datetime.datetime.strptime("2020", "%Y")
    time.strptime("2020", "%Y")
    for name in _CODECS:
        try:
            "".encode(name)
        except LookupError:  # hex and friends are bytes-to-bytes; loading them was the point
            continue
    for name in sorted(zoneinfo.available_timezones()):
        try:
            _kept.append(zoneinfo.ZoneInfo(name))
        except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
            continue
