"""A process that forks on request: what zygote and template have in common. Runs inside only.

It obeys one-message orders of its host (an operation, and with "F" one descriptor for the child),
reads nothing else from anybody, reaps its children at once and remembers how they ended. It ends
when its host's socket closes or, for the zygote, when the host is no longer its parent.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from typing import Any, Final, NoReturn

from astra_mcp.sandbox import lockdown, wire

Json = Any
EXIT_FAULT: Final = 70
_REMEMBERED: Final = 4096


class ForkServer:
    """Forks a child per request, reaps it, and tells how it ended; obeys only its host's socket."""

    def __init__(
        self, control: socket.socket, child: Callable[[int], object], parent: int | None = None
    ) -> None:
        self._control = control
        self._child = child
        self._parent = parent
        self._ended: dict[int, int] = {}
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())

    def serve(self) -> NoReturn:
        """Serve until the host goes away."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._control, wire.OP.size, 1)
            except BlockingIOError:  # the socket's receive time-out, see zygote.py
                if self._parent is not None and os.getppid() != self._parent:
                    wire.leave()  # another process may still hold the host's end
                continue
            if len(data) != wire.OP.size:
                wire.leave()
            op, pid, tag = wire.OP.unpack(data)
            if op == b"F" and fds:
                self._fork(fds[0])
            elif op == b"S":
                self._answer(tag, {"ended": self._ended.get(pid)})
            elif op == b"C":
                self._answer(tag, {"children": self._reap()})
            else:
                wire.leave()

    def _fork(self, fd: int) -> None:
        me = os.getpid()
        try:
            child = os.fork()
        except OSError:  # no process to be had; the host sees the line close
            os.close(fd)
            return
        if child == 0:
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                self._control.close()
                lockdown.die_with_parent()
                if os.getppid() != me:  # it ended before the line above
                    wire.leave()
                wire.write_frame(fd, wire.NO_TAG, b"{}")  # tells the host our pid, by credentials
                self._child(fd)
            finally:
                os._exit(EXIT_FAULT)
        os.close(fd)

    def _reap(self) -> bool:
        """Collect ended children; whether any are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._ended[pid] = status
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]

    def _answer(self, tag: bytes, value: Json) -> None:
        wire.write_frame(self._control.fileno(), tag, wire.encode(value))
