"""The host's handle on jailed processes: killing one safely, asking a fork server for another.

A child's process id comes from the kernel (credentials on the first bytes it sends), never from
what anybody says. Fork servers (forkserver.py) are asked over their line; no wait is without end.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import select
import signal
import socket
import struct
from typing import Any

import orjson

from astra_mcp.errors import SandboxError
from astra_mcp.sandbox import wire
from astra_mcp.sandbox.channel import Line, LineBreach, LineClosed

ANSWER_S = 5.0
_POLL_S = 0.002
_HELLO_BYTES = wire.HEADER.size + 2
_CREDENTIALS = struct.Struct("3i")


class Process:
    """A jailed process as the host knows it: killable without hitting a successor of its id."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd: int | None = None
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.pid = 0
        except OSError as error:  # kernels before 5.3 and some emulated ones
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
                raise

    @property
    def exited(self) -> bool:
        """Whether it has ended; False while that is unknown."""
        if self.pid == 0:
            return True
        if self._fd is None:
            return False
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))

    def __del__(self) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def kill(self, *, group: bool = False) -> None:
        """SIGKILL it, with its process group if asked; nothing when it is gone.

        Raises:
            SandboxError: this host may not kill it.
        """
        pid, self.pid = self.pid, 0
        if not pid:
            return
        fd, self._fd = self._fd, None
        try:
            if fd is None:
                os.kill(pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(fd, 0)
            if group:
                os.killpg(pid, signal.SIGKILL)
            if fd is not None:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise SandboxError(
                "The host may not kill its own sandboxed processes.",
                "Run it with the KILL capability, or as an ordinary user.",
            ) from error
        finally:
            if fd is not None:
                os.close(fd)


class Forker:
    """The host's side of a fork server: asks for children, and how they ended."""

    def __init__(self, line: Line, raw: socket.socket, process: Process) -> None:
        self.line = line
        self.process = process
        self._raw = raw
        self._slots = asyncio.Semaphore(32)
        self._asking = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """Whether the fork server is there."""
        return not self.line.closed and not self.process.exited

    async def fork(self, limit: int, deadline_s: float) -> tuple[Line, Process]:
        """A new child: its line and its process.

        Raises:
            LineClosed: the fork server is gone, or the child before it said hello.
            TimeoutError: no child within `deadline_s`.
        """
        sock, pid = await self._child(deadline_s)
        return await _connect(sock, Line(limit)), Process(pid)

    async def fork_server(self, limit: int, deadline_s: float) -> Forker:
        """A new child that is itself a fork server; raises like `fork`."""
        sock, pid = await self._child(deadline_s)
        raw = sock.dup()
        try:
            line = await _connect(sock, Line(limit, stale_ok=True))
        except BaseException:
            raw.close()
            raise
        return Forker(line, raw, Process(pid))

    async def _child(self, deadline_s: float) -> tuple[socket.socket, int]:
        async with self._slots:
            ours, theirs = socket.socketpair()
            try:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                ours.setblocking(False)
                with theirs:
                    self._tell(b"F", 0, wire.NO_TAG, theirs)
                return ours, await _hello(ours, deadline_s)
            except BaseException:
                ours.close()
                raise

    async def ended(self, pid: int) -> int | None:
        """Wait status of a child; None while it runs or when it is unknown."""
        status = (await self._ask(b"S", pid)).get("ended")
        return status if isinstance(status, int) else None

    async def wait_end(self, pid: int, seconds: float) -> int | None:
        """Like `ended`, but gives a child some time to end; None when it did not, or is unknown."""
        try:
            async with asyncio.timeout(seconds):
                # Asked again and again, as the fork server must never block for one child.
                while (found := await self.ended(pid)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
                return found
        except (LineClosed, LineBreach, TimeoutError):
            return None

    async def wait_childless(self, seconds: float) -> bool:
        """Give its descendants some time to end; whether they all did."""
        try:
            async with asyncio.timeout(seconds):
                while (await self._ask(b"C", 0)).get("children"):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
                return True
        except (LineClosed, LineBreach, TimeoutError):
            return False

    async def _ask(self, op: bytes, pid: int) -> dict[str, Any]:
        async with self._asking, asyncio.timeout(ANSWER_S):
            tag = secrets.token_bytes(wire.TAG_BYTES)
            self._tell(op, pid, tag)
            found = orjson.loads(await self.line.expect(tag))
        return found if isinstance(found, dict) else {}

    def _tell(self, op: bytes, pid: int, tag: bytes, passed: socket.socket | None = None) -> None:
        message = [wire.OP.pack(op, pid, tag)]
        fds = [] if passed is None else [passed.fileno()]
        try:
            socket.send_fds(self._raw, message, fds)
        except OSError as error:
            self.line.close()
            raise LineClosed from error

    def close(self, *, group: bool = False) -> None:
        """Kill the fork server, with its process group if asked, and drop the line."""
        self.process.kill(group=group)
        self.line.close()
        self._raw.close()


async def _connect(sock: socket.socket, line: Line) -> Line:
    try:
        await asyncio.get_running_loop().create_connection(lambda: line, sock=sock)
    except BaseException:
        sock.close()
        raise
    return line


async def _hello(sock: socket.socket, deadline_s: float) -> int:
    """The process id at the other end: the kernel attaches it to the first bytes sent."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    fd = sock.fileno()
    loop.add_reader(fd, readable.set)
    try:
        async with asyncio.timeout(deadline_s):
            await readable.wait()
    finally:
        loop.remove_reader(fd)
    try:
        data, ancillary, _, _ = sock.recvmsg(_HELLO_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
    except ConnectionError as error:
        raise LineClosed from error
    if len(data) != _HELLO_BYTES or not ancillary:
        raise LineClosed
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    pid: int = _CREDENTIALS.unpack_from(ancillary[0][2])[0]
    return pid
