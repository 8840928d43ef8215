"""Starting the zygote: one exec'd Python with a near-empty environment, no secret, one socket.

Only the interpreter, RestrictedPython and this package are on its path; the host's environment,
descriptors and working directory stay behind. It reports its layers once; what stands between is in
zygote.py. Nothing here waits without a deadline.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import RestrictedPython

from astra_mcp.errors import SandboxError, SandboxUnavailable
from astra_mcp.sandbox.channel import Line, LineBreach, LineClosed
from astra_mcp.sandbox.forker import Forker, Process

START_S: Final = 60.0
STOP_S: Final = 5.0
_REPORT_BYTES = 65536
_BOOT: Final = (
    "import sys; sys.path += sys.argv[2:]; "
    "from astra_mcp.sandbox.zygote import main; main(int(sys.argv[1]))"
)
_KEPT_VARIABLES: Final = ("LD_LIBRARY_PATH", "PYTHONHOME")  # without them Python may not start


class Zygote:
    """The running zygote: a fork server for templates.

    Attributes:
        forker: Its line.
        layers: What it said about the layers of the sandbox.
    """

    def __init__(self, process: subprocess.Popen[bytes], forker: Forker) -> None:
        self._process = process
        self.forker = forker
        self.layers: Mapping[str, str] = {}

    @classmethod
    async def launch(cls, order: Mapping[str, Any]) -> Zygote:
        """Start one and wait for its report.

        Args:
            order: {"simulate_missing": names of layers to leave out (tests)}.

        Raises:
            SandboxUnavailable: it did not start.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        raw = ours.dup()
        with theirs:
            process = _spawn(theirs.fileno())
        line = Line(_REPORT_BYTES, stale_ok=True)
        await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)
        zygote = cls(process, Forker(line, raw, Process(process.pid)))
        try:
            line.send(orjson.dumps(order))
            async with asyncio.timeout(START_S):
                zygote.layers = orjson.loads(await line.expect())["layers"]
        except (LineClosed, LineBreach, TimeoutError) as error:
            await zygote.stop()
            raise SandboxUnavailable(
                f"The sandbox's first process did not start: {_last_words(process)}",
                "Check that this Python can run and read its own library as this user.",
            ) from error
        except BaseException:
            zygote.forker.close()
            raise
        if process.stderr is not None:
            process.stderr.close()
        return zygote

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as is known."""
        return self.forker.alive and self._process.poll() is None

    async def stop(self) -> None:
        """End it, and wait until it and all its descendants are gone."""
        if self.forker.alive:
            await self.forker.wait_childless(STOP_S)
        self.forker.close()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, lambda: self._process.wait(STOP_S))
        except subprocess.TimeoutExpired as error:
            raise SandboxError(
                f"Process {self._process.pid} of the sandbox does not end.", "Kill it by hand."
            ) from error


def _spawn(fd: int) -> subprocess.Popen[bytes]:
    package = Path(__file__).parents[2]
    policy_library = Path(RestrictedPython.__file__).parents[1]
    environment = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    environment |= {k: os.environ[k] for k in _KEPT_VARIABLES if k in os.environ}
    arguments = [sys.executable, "-s", "-S", "-P", "-c", _BOOT, str(fd)]
    return subprocess.Popen(
        [*arguments, str(package), str(policy_library)],
        pass_fds=[fd],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _last_words(process: subprocess.Popen[bytes]) -> str:
    if process.stderr is None:
        return "no reason given."
    with process.stderr as pipe:
        lines = pipe.read().decode(errors="replace").strip().splitlines()
    return f"{lines[-1][:300]}." if lines else "it said nothing."
