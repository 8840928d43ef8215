"""Several processes behind one port: starts them, starts again what dies, ends all together.

The supervisor serves nothing. It holds the port (bound, never listening), a private folder for the
sockets of the processes among themselves, and one pipe to each: orders and tokens go through it,
never over a command line, and its end tells a process to drain. So all of them end when the
supervisor does, however that one ends.

Invariant: when `supervise` returns, none of its processes is left.
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import orjson
from anyio.abc import Process, TaskStatus

from astra_mcp.concurrency import task_group
from astra_mcp.errors import HostStartError, HttpError, UsageError
from astra_mcp.host.logs import configure
from astra_mcp.host.peers import Peer, socket_path
from astra_mcp.host.run import stop_at_eof
from astra_mcp.host.server import bind, info_of
from astra_mcp.host.shards import share
from astra_mcp.settings import HostSettings

Json = Any
START_S: Final = 60.0
#: What a process may take to end after its drain, in seconds.
END_S: Final = 25.0
#: Pause before a process is started again, in seconds: doubled while it keeps dying.
PAUSE_S: Final = 0.1
PAUSE_MOST_S: Final = 5.0
#: One that lived so long was well, in seconds.
WELL_S: Final = 10.0
#: How often a process is asked whether it is well, in seconds, and after how many questions without
#: an answer it is killed. A question waits for ASK_S (peers.py).
LOOK_S: Final = 5.0
UNANSWERED: Final = 6
#: Says of a journal folder for how many processes it was made.
PROCESSES: Final = ".processes"
log = logging.getLogger("astra_mcp.host")


async def supervise(
    paths: Sequence[Path],
    settings: HostSettings,
    control_token: str,
    announce: Callable[[str], None],
    until_stdin_closes: bool = False,
    metrics_token: str | None = None,
) -> None:
    """Serve with `settings.processes` processes until SIGTERM or SIGINT; as `run_host` does.

    Raises:
        HostStartError: a process does not start, with what it said about it.
        ListenError: the address cannot be listened on.
    """
    configure()
    with held_port(settings) as (port, url), tempfile.TemporaryDirectory(prefix="astra-") as folder:
        stop = anyio.Event()
        order = {
            "paths": [str(path) for path in paths],
            "peers": folder,
            "control_token": control_token,
            "metrics_token": metrics_token,
        }
        bound = settings.model_copy(update={"port": port})
        shards = [Shard(order, share(bound, n), stop) for n in range(settings.processes)]
        async with task_group() as tasks:
            await tasks.start(_stop_on_signal, stop, shards)
            if until_stdin_closes:
                tasks.start_soon(stop_at_eof, stop)
            async with task_group() as keepers:
                for shard in shards:
                    keepers.start_soon(shard.keep)
                for shard in shards:
                    await shard.up.wait()
                if not stop.is_set():
                    announce(url)
            tasks.cancel_scope.cancel()
        for shard in shards:
            if shard.failure is not None:
                raise shard.failure


def claim(journal: Path | None, processes: int) -> None:
    """Take a journal folder for a number of processes, or refuse it.

    Ids and tokens say which process keeps an episode, so its journals belong to that many.

    Raises:
        UsageError: it was made for another number.
    """
    if journal is None:
        return
    made = _made_for(journal)
    if made not in (None, processes):
        raise UsageError(
            f"The journal folder {journal} was made by a host of {made} process(es).",
            f"Start with --processes {made}, or give another folder.",
        )
    if processes > 1 and made is None:
        try:
            journal.mkdir(parents=True, exist_ok=True, mode=0o700)
            (journal / PROCESSES).write_text(f"{processes}\n")
        except OSError as error:
            raise UsageError(
                f"The journal folder {journal} cannot be used: {error.strerror}.",
                "Give a folder that this user may write to.",
            ) from error


def _made_for(journal: Path) -> int | None:
    marker = journal / PROCESSES
    if marker.exists():
        text = marker.read_text().strip()
        return int(text) if re.fullmatch(r"[0-9]{1,3}", text) else 0
    return 1 if next(journal.glob("*.jsonl"), None) or (journal / "finished").exists() else None


@contextlib.contextmanager
def held_port(settings: HostSettings) -> Iterator[tuple[int, str]]:
    """Keep a port for the processes, each of which listens at it; gives it and the URL.

    Raises:
        ListenError: somebody else listens there.
    """
    with bind(settings.host, settings.port) as alone:  # would share it with nobody
        alone.listen(1)
        port = alone.getsockname()[1]
    with bind(settings.host, port, shared=True) as sock:
        yield port, info_of(sock).url


class Shard:
    """One process of the host, and its successors.

    Args:
        order: What all are told.
        settings: Its own settings.
        stop: Ends it.

    Attributes:
        up: Set once the first one listens, or will not.
        failure: Why the first one did not start; the others were stopped then.
    """

    def __init__(self, order: dict[str, Json], settings: HostSettings, stop: anyio.Event) -> None:
        self._order = order
        self._settings = settings
        self._stop = stop
        self._process: Process | None = None
        self.up = anyio.Event()
        self.failure: HostStartError | None = None

    def hurry(self) -> None:
        """End its drain at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def keep(self) -> None:
        """Have it run until `stop`."""
        pause = PAUSE_S
        number = self._settings.shard
        while not self._stop.is_set():
            began = anyio.current_time()
            try:
                code = await self._run()
            except HostStartError as error:
                if not self.up.is_set():
                    self.failure = None if self._stop.is_set() else error
                    self._stop.set()
                    break
                log.error("process %d does not start again: %s", number, error)
            else:
                if self._stop.is_set():
                    return
                log.error("process %d ended with code %s and is started again", number, code)
            lived = anyio.current_time() - began
            pause = PAUSE_S if lived > WELL_S else min(2 * pause, PAUSE_MOST_S)
            with anyio.move_on_after(pause):
                await self._stop.wait()
        self.up.set()

    async def _run(self) -> int:
        """Start one and wait for its end."""
        command = [sys.executable, "-m", "astra_mcp.host.shard"]
        process = await anyio.open_process(command, stderr=None, start_new_session=True)
        self._process = process
        try:
            await self._start(process)
            self.up.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_at_stop, process)
                tasks.start_soon(self._watch, process)
                code = await process.wait()
                tasks.cancel_scope.cancel()
            return code
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(process)

    async def _start(self, process: Process) -> None:
        """Give it its order and wait until it listens."""
        assert process.stdin is not None
        assert process.stdout is not None
        order = {**self._order, "settings": self._settings.model_dump(mode="json")}
        said = bytearray()
        try:
            with anyio.fail_after(START_S):
                await process.stdin.send(orjson.dumps(order) + b"\n")
                while not said.endswith(b"\n"):
                    said += await process.stdout.receive()
        except TimeoutError as error:
            raise HostStartError(
                f"A process of the host did not listen within {START_S:g} s.",
                "Run `astra doctor` to see why.",
            ) from error
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise HostStartError(
                "A process of the host ended before it listened.", "See what it said above."
            ) from error
        answer = orjson.loads(said)
        if "error" in answer:
            failure = HostStartError(answer["error"], answer["remedy"])
            failure.exit_code = answer["exit_code"]
            raise failure

    async def _watch(self, process: Process) -> None:
        """Kill it when it lives but answers no more."""
        number = self._settings.shard
        unanswered = 0
        while unanswered < UNANSWERED:
            await anyio.sleep(LOOK_S)
            peer = Peer(socket_path(Path(self._order["peers"]), number))
            try:
                await peer.ask("GET", b"/healthz", [])
                unanswered = 0
            except HttpError:
                unanswered += 1
            finally:
                peer.close()
        if not self._stop.is_set():
            log.error("process %d answers no more and is killed", number)
            process.kill()

    async def _end_at_stop(self, process: Process) -> None:
        await self._stop.wait()
        await self._end(process)

    async def _end(self, process: Process) -> None:
        """Have it drain, wait, and kill it when that takes too long; idempotent."""
        if process.returncode is None and process.stdin is not None:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await process.stdin.aclose()
            with anyio.move_on_after(self._settings.drain_s + END_S):
                await process.wait()
        if process.returncode is None:
            log.error("process %d does not end and is killed", self._settings.shard)
            process.kill()
            await process.wait()
        await process.aclose()


async def _stop_on_signal(
    stop: anyio.Event,
    shards: Sequence[Shard],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """The first signal drains, a second one ends the drain."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            log.warning("received %s", signal.Signals(number).name)
            if stop.is_set():
                for shard in shards:
                    shard.hurry()
            stop.set()
