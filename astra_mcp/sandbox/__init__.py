"""Running untrusted tool code: `Sandbox` -> `Template` (one bundle) -> `Worker` (one episode).

The boundary is the operating system; RestrictedPython is the first, cheap wall. docs/sandbox.md
says which layers there are and what was tested. The names below load on first use, because the
jailed processes import this package too and want nothing of the host's half.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from astra_mcp.sandbox.contract import Behaviour, run_contract
    from astra_mcp.sandbox.doctor import DoctorReport, doctor_report
    from astra_mcp.sandbox.pool import MANDATORY, OPTIONAL, Sandbox, SandboxSettings, Template
    from astra_mcp.sandbox.reply import Reply, WorkerLost
    from astra_mcp.sandbox.wire import Effect
    from astra_mcp.sandbox.worker import Worker

__all__ = [
    "MANDATORY",
    "OPTIONAL",
    "Behaviour",
    "DoctorReport",
    "Effect",
    "Reply",
    "Sandbox",
    "SandboxSettings",
    "Template",
    "Worker",
    "WorkerLost",
    "doctor_report",
    "run_contract",
]

_HOMES = dict.fromkeys(__all__, "pool") | {
    "Reply": "reply",
    "WorkerLost": "reply",
    "Effect": "wire",
    "Worker": "worker",
    "Behaviour": "contract",
    "run_contract": "contract",
    "DoctorReport": "doctor",
    "doctor_report": "doctor",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
