"""What the operating system says about the host and the processes of its sandbox.

Reads /proc, so everything is None where there is none. Resident memory counts a page that several
processes share once for each of them: forked workers look ten times larger than they are. The
proportional figure shares such pages out, so it is the one that fits into a machine; the kernel
takes a while for it, so of many processes only `SAMPLE` are asked, and only a host that may look
into its workers gets it. Blocking for some milliseconds: call it in a thread.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PAGE: Final = resource.getpagesize()
#: Of so many processes the proportional memory is read; of more it is estimated.
SAMPLE: Final = 48


@dataclass(frozen=True, slots=True)
class Readings:
    """One look.

    Attributes:
        rss_bytes: Resident memory of this process.
        tree_rss_bytes: The same with every other process that was asked about.
        tree_pss_bytes: Proportional memory of all of them.
        open_fds: Open descriptors of this process.
        max_fds: How many it may have.
        cpu_s: CPU time of this process, user and system.
    """

    rss_bytes: int | None
    tree_rss_bytes: int | None
    tree_pss_bytes: int | None
    open_fds: int | None
    max_fds: int
    cpu_s: float


def look(others: Sequence[int]) -> Readings:
    """Read what there is to read of this process and of `others`; one that is gone counts 0."""
    own = _rss(os.getpid())
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Readings(
        rss_bytes=own,
        tree_rss_bytes=None if own is None else own + sum(_rss(pid) or 0 for pid in others),
        tree_pss_bytes=_tree_pss(others),
        open_fds=_descriptors(),
        max_fds=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        cpu_s=usage.ru_utime + usage.ru_stime,
    )


def _rss(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        return None


def _tree_pss(others: Sequence[int]) -> int | None:
    own = _pss(os.getpid())
    step = max(1, -(-len(others) // SAMPLE))
    asked = others[::step]
    found = [pss for pid in asked if (pss := _pss(pid)) is not None]
    if own is None or (others and not found):
        return None
    return own + (sum(found) * len(others) // len(found) if found else 0)


def _pss(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:")), None)


def _descriptors() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # one is that of the folder itself
    except OSError:
        return None
