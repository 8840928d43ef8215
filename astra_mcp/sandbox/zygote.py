"""Entry of the zygote: prepare the interpreter, lock the process, fork templates on request.

Started by pool.py with a near-empty environment and one socket. Everything that any tool could need
is loaded and made deterministic first; then come the layers from the outside in, seccomp last. What
each layer did is reported to the host, which decides what it insists on. Ends when the host does.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from astra_mcp.sandbox import determinism, facades, jail, lockdown, policy, wire
from astra_mcp.sandbox.forkserver import ForkServer

_PAGE = 4096
_WATCH = struct.pack("@ll", 2, 0)  # how often to look whether the host still lives
_REFUSED = "def f(x):\n    return x.__globals__\n"


def main(control_fd: int) -> None:
    """Run the zygote on that socket; never returns.

    Args:
        control_fd: Descriptor of the stream socket to the host.
    """
    parent = os.getppid()
    _default_signals()
    lockdown.close_others(control_fd)
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, control_fd)
    order = json.loads(wire.FrameReader(control_fd).read()[1])
    simulated = frozenset(order["simulate_missing"])
    modules = facades.build()
    determinism.freeze(modules)
    layers: dict[str, str] = {}
    _apply(layers, "language", _language_works, simulated)
    mapped = _mapped_bytes()
    control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _WATCH)
    filters = _lock(layers, simulated)
    if "selftest" in simulated:
        layers["selftest"] = "off: simulated"
    base = jail.Base(layers, filters, facades.Namespace(modules), mapped)
    gc.collect()
    gc.freeze()
    wire.write_frame(control_fd, wire.NO_TAG, wire.encode({"layers": layers}))
    ForkServer(control, lambda fd: jail.template(fd, base), parent).serve()


def _lock(layers: dict[str, str], simulated: Iterable[str]) -> dict[str, lockdown.Filter]:
    """Apply every layer of the operating system; the seccomp filters for the children."""
    filters: dict[str, lockdown.Filter] = {}

    def compile_filters() -> None:
        filters["zygote"] = lockdown.Filter(lockdown.ZYGOTE)
        filters["template"] = lockdown.Filter(lockdown.TEMPLATE)
        filters["worker"] = lockdown.Filter(lockdown.WORKER)

    def seccomp() -> None:
        compile_filters()
        filters.pop("zygote").install()

    lockdown.adopt_orphans()
    for name, step in (
        ("rlimits", lockdown.zygote_limits),
        ("netns", lockdown.empty_network),
        ("setuid", lockdown.become_nobody),
        ("capabilities", lockdown.drop_capabilities),
        ("no_new_privs", lockdown.no_new_privs),
        ("landlock", lockdown.landlock_deny_all),
        ("seccomp", seccomp),
    ):
        _apply(layers, name, step, simulated)
    return filters if layers["seccomp"] == "on" else {}


def _apply(
    layers: dict[str, str], name: str, step: Callable[[], None], simulated: Iterable[str]
) -> None:
    if name in simulated:
        layers[name] = "off: simulated"
        return
    try:
        step()
        layers[name] = "on"
    except (OSError, KeyError, RuntimeError) as error:  # KeyError: a machine with no numbers
        layers[name] = f"off: {error}"


def _default_signals() -> None:
    """Forget what the host blocks or ignores: the timers of a call depend on signals."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGPROF, signal.SIGVTALRM, signal.SIGXCPU, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)


def _language_works() -> None:
    try:
        policy.compile_source(_REFUSED)
    except policy.PolicyError:
        return
    raise RuntimeError("the policy let a forbidden attribute through")


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
