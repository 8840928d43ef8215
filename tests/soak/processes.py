"""A host in a process of its own that can be killed and started again on the same port and journal.

Also what can be seen of it from outside: its descendants, descriptors and memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from astra_mcp.settings import CONTROL_TOKEN_ENV

TOKEN = "control-token-of-the-soak-0123456789"
READY_S = 60.0
STOP_S = 30.0


@dataclass
class HostProcess:
    """`astra serve`, restartable."""

    folder: Path
    paths: Sequence[Path]
    options: Sequence[str] = ()
    program: Sequence[str] = ("-m", "astra_mcp.cli")
    port: int = 0
    journaled: bool = True
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    url: str = ""
    start_s: float = 0.0

    @property
    def journal(self) -> Path:
        """The folder of journals."""
        return self.folder / "journal"

    @property
    def pid(self) -> int:
        """Process id of the host that runs now."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start it and wait until it listens; the port stays the same from the first start on."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [
            sys.executable, *self.program, "serve", *map(str, self.paths), "--unaudited",
            "--port", str(self.port), "--ready-file", str(ready), *self.options,
            *(("--journal", str(self.journal)) if self.journaled else ()),
        ]  # fmt: skip
        began = time.monotonic()
        with (self.folder / "stderr").open("ab") as stderr:
            self.process = subprocess.Popen(
                command, stderr=stderr, env=os.environ | {CONTROL_TOKEN_ENV: TOKEN}
            )
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() - began > READY_S:
                said = (self.folder / "stderr").read_text(errors="replace")
                raise RuntimeError(f"the host does not start: {said[-2000:]}")
            time.sleep(0.01)
        self.start_s = time.monotonic() - began
        info: dict[str, Any] = orjson.loads(ready.read_bytes())
        self.url = info["url"]
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """SIGKILL it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM it, and wait; gives its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def health(self) -> dict[str, Any]:
        """What /healthz says."""
        with urllib.request.urlopen(f"{self.url}/healthz", timeout=30) as response:
            found: dict[str, Any] = orjson.loads(response.read())
        return found

    def resources(self) -> dict[str, int]:
        """Descendants, the host's own descriptors, and its memory in KiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        rss = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return {
            "processes": len(descendants(self.pid)),
            "fds": len(list(Path(f"/proc/{self.pid}/fd").iterdir())),
            "rss_kib": int(rss.split()[1]),
        }

    def workers(self) -> list[int]:
        """Process ids of the workers: three levels below the host."""
        return [pid for pid, depth in descendants(self.pid).items() if depth == 3]


def descendants(root: int) -> dict[int, int]:
    """Live processes below `root`, with their depth."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: dict[int, int] = {}
    level, depth = [root], 0
    while level:
        depth += 1
        level = [child for pid in level for child in children.get(pid, [])]
        found |= dict.fromkeys(level, depth)
    return found
