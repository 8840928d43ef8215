"""Missing layers are named, accepted only on request, and the sandbox works as any user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from astra_mcp.errors import SandboxUnavailable, UsageError
from astra_mcp.sandbox import MANDATORY, OPTIONAL, Sandbox, SandboxSettings, contract, doctor_report
from tests.sandbox.helpers import STATE, load

ROOT = Path(__file__).parents[2]
CODE = "def t(state):\n    return {}\n"


@pytest.mark.parametrize("layer", MANDATORY)
async def test_a_missing_mandatory_layer_is_named_with_its_flag(layer: str) -> None:
    with pytest.raises(SandboxUnavailable) as caught:
        await Sandbox.start(SandboxSettings(simulate_missing=frozenset({layer})))
    assert layer in caught.value.message
    assert f"--accept-missing-layer {layer}" in caught.value.remedy


@pytest.mark.parametrize("layer", MANDATORY)
async def test_an_accepted_missing_layer_is_reported_and_the_rest_works(layer: str) -> None:
    missing = frozenset({layer})
    follow = {"no_new_privs": {"seccomp", "selftest"}, "seccomp": {"selftest"}}  # by the kernel
    allowed = missing | follow.get(layer, set())
    sandbox = await Sandbox.start(SandboxSettings(allow_missing=allowed, simulate_missing=missing))
    try:
        assert sandbox.layers[layer] == "off: simulated"
        worker = await (await load(sandbox, CODE, {"t": "read"})).worker(STATE)
        assert (await worker.call("t", {}, b"")).result == {}
    finally:
        await sandbox.aclose()


async def test_the_self_test_finds_a_filter_that_blocks_nothing() -> None:
    with pytest.raises(SandboxUnavailable, match=r"selftest \(off: .* is allowed\)"):
        await Sandbox.start(
            SandboxSettings(
                allow_missing=frozenset({"seccomp"}),
                simulate_missing=frozenset({"seccomp", *OPTIONAL}),
            )
        )


async def test_optional_layers_may_be_missing() -> None:
    sandbox = await Sandbox.start(SandboxSettings(simulate_missing=frozenset(OPTIONAL)))
    try:
        assert {sandbox.layers[name] for name in OPTIONAL} == {"off: simulated"}
        assert {sandbox.layers[name] for name in MANDATORY} == {"on"}
        worker = await (await load(sandbox, CODE, {"t": "read"})).worker(STATE)
        assert (await worker.call("t", {}, b"")).result == {}
    finally:
        await sandbox.aclose()


async def test_only_mandatory_layers_can_be_accepted_as_missing() -> None:
    with pytest.raises(UsageError, match="no mandatory sandbox layer firewall"):
        await Sandbox.start(SandboxSettings(allow_missing=frozenset({"firewall"})))


async def test_elsewhere_than_on_linux_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailable, match="needs Linux, and this is darwin"):
        await Sandbox.start()


async def test_a_python_that_does_not_start_is_an_error_with_its_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no library here >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(SandboxUnavailable, match="no library here"):
        await Sandbox.start()


async def test_the_doctor_reports_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "BEHAVIOURS", contract.BEHAVIOURS[:2])
    report = await doctor_report(SandboxSettings(simulate_missing=frozenset({"language"})))
    assert report.missing == ("language",)
    assert not report.ok
    assert report.layers["language"] == "off: simulated"
    assert [b.passed for b in report.behaviours] == [True, True]


# ---- as an ordinary user ---------------------------------------------------------------------

NOBODY = 65534
DOCTOR = """
import asyncio, dataclasses, json
from astra_mcp.sandbox import doctor_report
print(json.dumps(dataclasses.asdict(asyncio.run(doctor_report()))))
"""


def _python_for_nobody() -> str | None:
    """A Python of this version that another user can start and that sees our packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        try:
            if python and _as_nobody(python, "import astra_mcp.sandbox.doctor").returncode == 0:
                return python
        except PermissionError:
            continue
    return None


def _environment() -> dict[str, str]:
    packages = Path(orjson.__file__).parents[1]
    return {"PYTHONPATH": f"{ROOT}:{packages}", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


def _as_nobody(python: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", code],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env=_environment(),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_an_ordinary_user_gets_the_whole_contract() -> None:
    python = _python_for_nobody()
    if python is None:
        pytest.skip("no Python of this version that an ordinary user can start sees our packages")
    done = _as_nobody(python, DOCTOR)
    assert done.returncode == 0, done.stderr[-500:]
    report = json.loads(done.stdout)
    assert "ordinary user" in report["system"]
    assert {report["layers"][name] for name in MANDATORY} == {"on"}
    assert report["layers"]["setuid"] == "off: [Errno 1] not root"
    assert [b for b in report["behaviours"] if not b["passed"]] == []
