"""The counter bundle on disk, and a server process with its pipes and its offspring."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from astra_mcp.store import load_json, save_dir

COUNTER = Path(__file__).resolve().parents[1] / "data" / "counter.json"
END_S = 20.0


def changed(path: Path, **parts: Any) -> Path:
    """The counter with parts of its JSON replaced, as a directory."""
    save_dir(load_json(json.loads(COUNTER.read_text("utf-8")) | parts), path)
    return path


def alone(bundle: Path) -> list[str]:
    return [sys.executable, str(bundle / "server.py")]


def through_fastmcp(bundle: Path) -> list[str]:
    return [sys.executable, "-m", "fastmcp.cli", "run", str(bundle / "server.py"), "--no-banner"]


class Process:
    """A server process with its raw pipes, and every process that it has started."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self._offspring: list[int] = []

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One request and the next line of stdout."""
        self.send(method, 1, **params)
        return self.receive()

    def send(self, method: str, number: int | None, **params: Any) -> None:
        """One 2026-era request, or a notification when it has no number."""
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "pipe", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(message).encode() + b"\n")
        self.popen.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next line of stdout."""
        assert self.popen.stdout is not None
        line: dict[str, Any] = json.loads(self.popen.stdout.readline())
        return line

    def watch(self) -> int:
        """Hold on to every descendant alive now; how many there are."""
        self._offspring = [os.pidfd_open(pid) for pid in descendants(self.popen.pid)]
        return len(self._offspring)

    def end(self) -> tuple[int, bytes, bytes]:
        """Exit code, rest of stdout, stderr; asserts that every watched descendant ends, too."""
        out, err = self.popen.communicate(timeout=END_S)
        for pidfd in self._offspring:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            assert poll.poll(END_S * 1000), "a process was left behind"
            os.close(pidfd)
        return self.popen.returncode, out, err


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, from /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        found += (new := children.get(queue.pop(), []))
        queue += new
    return found
