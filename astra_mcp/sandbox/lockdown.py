"""The kernel's share of the sandbox: seccomp, Landlock, limits, other user, empty network.

Called only inside the zygote and its children, which it can lock but never unlock: each step
narrows what the process and all its descendants may do. Raw system calls through ctypes, so nothing
but the kernel is needed. It decides nothing: zygote.py says in which order, pool.py what is
mandatory. The self-test at the end believes no return code; it tries what must fail.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import resource
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Final

libc = ctypes.CDLL(None, use_errno=True)
_COLUMN: Final = {"x86_64": 0, "aarch64": 1}
_AUDIT_ARCH: Final = (0xC000003E, 0xC00000B7)
NOBODY: Final = 65534

#: System call numbers on (x86_64, aarch64); None where the architecture has no such call.
_NUMBERS: Final[dict[str, tuple[int, int | None]]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "mmap": (9, 222), "munmap": (11, 215),
    "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "mremap": (25, 216), "madvise": (28, 233), "setitimer": (38, 103),
    "getpid": (39, 172), "exit": (60, 93), "exit_group": (231, 94), "futex": (202, 98),
    "clock_gettime": (228, 113), "gettimeofday": (96, 169), "restart_syscall": (219, 128),
    "sched_yield": (24, 124), "gettid": (186, 178), "recvmsg": (47, 212), "clone": (56, 220),
    "fork": (57, None), "wait4": (61, 260), "set_robust_list": (273, 99), "setrlimit": (160, 164),
    "prctl": (157, 167), "setsid": (112, 157), "getppid": (110, 173),
}  # fmt: skip
WORKER: Final = frozenset(
    "read write close mmap munmap brk rt_sigaction rt_sigprocmask rt_sigreturn mremap madvise"
    " setitimer getpid exit exit_group futex clock_gettime gettimeofday restart_syscall sched_yield"
    " gettid".split()
)
TEMPLATE: Final = WORKER | frozenset(
    "recvmsg clone fork wait4 set_robust_list setrlimit prctl getppid".split()
)
ZYGOTE: Final = TEMPLATE | {"setsid"}

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 36, 38, 39
_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWNET = 0x08000000, 0x10000000, 0x40000000
_PLAIN_FORKS = (0x1200011, 0x11)  # how glibc and musl spell fork() as clone flags
_LOAD, _ALLOW, _KILL = 0x20, 0x7FFF0000, 0x80000000
_EQ, _GE, _SET, _RETURN = 0x15, 0x35, 0x45, 0x06
_DENY = 0x00050000 | errno.EPERM
_NUMBER, _ARCH = 0, 4


def _argument(index: int) -> int:
    """Offset of the low half of a system call's argument (both architectures: little endian)."""
    return 16 + 8 * index


class Filter:
    """A compiled seccomp program, built before the lock so that installing it allocates nothing."""

    def __init__(self, allowed: Iterable[str]) -> None:
        code = b"".join(_program(frozenset(allowed)))
        self._code = ctypes.create_string_buffer(code, len(code))
        address = ctypes.addressof(self._code)
        self._program = struct.pack("=H6xQ", len(code) // 8, address)

    def install(self) -> None:
        """Lock this process and all its descendants for good.

        Raises:
            OSError: the kernel refused.
        """
        _check("seccomp", libc.prctl(_PR_SET_SECCOMP, 2, self._program, 0, 0))


def _program(allowed: frozenset[str]) -> list[bytes]:
    column = _COLUMN[platform.machine()]
    code: list[bytes] = []

    def emit(op: int, yes: int, no: int, value: int) -> None:
        code.append(struct.pack("=HBBI", op, yes, no, value))

    emit(_LOAD, 0, 0, _ARCH)
    emit(_EQ, 1, 0, _AUDIT_ARCH[column])
    emit(_RETURN, 0, 0, _KILL)
    emit(_LOAD, 0, 0, _NUMBER)
    if column == 0:  # the x32 numbers are a second door to the same calls
        emit(_GE, 0, 1, 0x40000000)
        emit(_RETURN, 0, 0, _KILL)
    looked_at = {"mmap", "clone", "prctl"}
    plain = sorted(allowed - looked_at, key=lambda name: (name not in ("read", "write"), name))
    for name in plain:
        number = _NUMBERS[name][column]
        if number is not None:
            emit(_EQ, 0, 1, number)
            emit(_RETURN, 0, 0, _ALLOW)
    for name in sorted(allowed & looked_at):
        rules = _argument_rules(name)
        emit(_EQ, 0, len(rules), _NUMBERS[name][column] or 0)
        for rule in rules:
            emit(*rule)
    emit(_RETURN, 0, 0, _DENY)
    return code


def _argument_rules(name: str) -> list[tuple[int, int, int, int]]:
    if name == "mmap":  # anonymous memory only, and never executable
        return [
            (_LOAD, 0, 0, _argument(2)),
            (_SET, 2, 0, mmap.PROT_EXEC),
            (_LOAD, 0, 0, _argument(3)),
            (_SET, 1, 0, mmap.MAP_ANONYMOUS),
            (_RETURN, 0, 0, _DENY),
            (_RETURN, 0, 0, _ALLOW),
        ]
    if name == "clone":  # fork, but no thread and no namespace
        return [
            (_LOAD, 0, 0, _argument(0)),
            (_EQ, 2, 0, _PLAIN_FORKS[0]),
            (_EQ, 1, 0, _PLAIN_FORKS[1]),
            (_RETURN, 0, 0, _DENY),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return [  # prctl: a narrower filter, or to die with the parent; nothing that could undo either
        (_LOAD, 0, 0, _argument(0)),
        (_EQ, 4, 0, _PR_SET_SECCOMP),
        (_EQ, 0, 2, _PR_SET_PDEATHSIG),
        (_LOAD, 0, 0, _argument(1)),
        (_EQ, 1, 0, 9),
        (_RETURN, 0, 0, _DENY),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _check(what: str, result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def no_new_privs() -> None:
    """Nothing executed from here on can gain rights; also no core dumps, no tracing by our user."""
    _check("dumpable", libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    _check("no_new_privs", libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        raise OSError(errno.EPERM, "no_new_privs did not stay set")


def landlock_deny_all() -> None:
    """No path of the file system, no TCP port, no foreign abstract socket or signal target."""
    create, restrict, version = 444, 446, 1
    abi = libc.syscall(create, None, ctypes.c_size_t(0), version)
    _check("landlock", abi)
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    attributes = struct.pack("=QQQ", files, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = libc.syscall(create, attributes[:size], ctypes.c_size_t(size), 0)
    _check("landlock", ruleset)
    try:
        _check("landlock", libc.syscall(restrict, ruleset, 0))
    finally:
        os.close(ruleset)


def empty_network() -> None:
    """Own network and IPC namespaces; an ordinary user gets them inside an own user namespace."""
    if libc.unshare(_CLONE_NEWNET | _CLONE_NEWIPC) != 0:
        _check("unshare", libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC))


def become_nobody() -> None:
    """Root becomes an unprivileged user for good.

    Raises:
        OSError: not root, or the user id does not exist in this namespace.
    """
    if os.geteuid() != 0:
        raise PermissionError(errno.EPERM, "not root")
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def drop_capabilities() -> None:
    """No capability left, neither root's nor those that a new user namespace hands out."""
    header = struct.pack("=II", 0x20080522, 0)
    _check("capset", libc.capset(header, bytes(24)))


def limit(which: int, value: int, hard: int | None = None) -> None:
    """Set a resource limit of this process (setrlimit, which unlike prlimit reaches nobody else).

    Raises:
        OSError: the kernel refused.
    """
    number = _NUMBERS["setrlimit"][_COLUMN[platform.machine()]]
    pair = struct.pack("=QQ", value, value if hard is None else hard)
    _check("setrlimit", libc.syscall(number, which, pair))


def zygote_limits() -> None:
    """Limits that hold for every jailed process; never above what was allowed before."""
    for which, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_NPROC, 32768),
    ):
        hard = resource.getrlimit(which)[1]
        limit(which, value if hard == resource.RLIM_INFINITY else min(value, hard))


def die_with_parent() -> None:
    """SIGKILL when the parent ends."""
    _check("pdeathsig", libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0))


def adopt_orphans() -> None:
    """Descendants whose parent ends become ours, so that no zombie outlives the sandbox."""
    _check("subreaper", libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def close_others(keep: int) -> None:
    """Point 0, 1, 2 at /dev/null and close every other descriptor except `keep`."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, keep)
    os.closerange(keep + 1, 65536)


def _fork_probe() -> None:
    if os.fork() == 0:
        os._exit(0)


#: What a locked worker must not be able to do; each must end in EPERM (or EACCES by Landlock).
_FORBIDDEN: Final[tuple[tuple[str, Callable[[], object]], ...]] = (
    ("open", lambda: os.open("/proc/self/status", os.O_RDONLY)),
    ("socket", socket.socket),
    ("fork", _fork_probe),
    ("execve", lambda: os.execv("/no/such/program", ["x"])),
    ("kill", lambda: os.kill(os.getpid(), 0)),
    ("executable memory", lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_EXEC | mmap.PROT_READ)),
)


def self_test() -> str:
    """Try what must be impossible in a worker: "on", or "off: what was allowed"."""
    for name, attempt in _FORBIDDEN:
        try:
            attempt()
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES):
                continue
            return f"off: {name} failed with {error.strerror}, not by the lock"
        return f"off: {name} is allowed"
    return "on"
