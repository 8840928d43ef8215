"""What the sandbox is worth on this machine: its layers and its contract, as data to print.

`doctor_report` starts the sandbox as leniently as possible, so that it can say everything that is
missing at once, and judges afterwards. It prints nothing.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from astra_mcp.errors import SandboxError
from astra_mcp.sandbox.contract import Behaviour, run_contract
from astra_mcp.sandbox.pool import MANDATORY, Sandbox, SandboxSettings


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """State of the sandbox on this machine.

    Attributes:
        system: Kernel, machine, Python and user kind in one line.
        layers: Layer name -> "on" or "off: why"; empty when it did not start.
        missing: Mandatory layers that are off.
        behaviours: Outcome of the contract; empty when it did not start.
        problem: Why it did not start; empty otherwise.
    """

    system: str
    layers: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    behaviours: tuple[Behaviour, ...] = ()
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether unaudited code may run here with default settings."""
        return not (self.problem or self.missing) and all(b.passed for b in self.behaviours)


async def doctor_report(settings: SandboxSettings | None = None) -> DoctorReport:
    """Start a sandbox, look at its layers and run its contract; takes some seconds."""
    system = _system()
    lenient = replace(settings or SandboxSettings(), allow_missing=frozenset(MANDATORY))
    try:
        sandbox = await Sandbox.start(lenient)
    except SandboxError as error:
        return DoctorReport(system, problem=str(error))
    try:
        behaviours = await run_contract(sandbox)
    finally:
        await sandbox.aclose()
    missing = tuple(name for name in MANDATORY if sandbox.layers.get(name) != "on")
    return DoctorReport(system, sandbox.layers, missing, tuple(behaviours))


def _system() -> str:
    user = "root" if hasattr(os, "geteuid") and os.geteuid() == 0 else "ordinary user"
    return (
        f"{platform.system()} {platform.release()}, {platform.machine()},"
        f" Python {platform.python_version()}, {user}"
    )
