"""The official conformance suite, its stable version and its latest alpha, in both eras.

Two ways to be served are measured: this host's own transport (one service for all clients, and a
service per session) and an SDK server behind this host's checks. What fails is listed in
expected_failures.toml, each with its reason; an unlisted failure and a listed pass both fail here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.suites import ALPHA, HERE, STABLE, Leg, expected, run_leg

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]

OLD, NEW = "2025-11-25", "2026-07-28"
LEGS = [
    Leg("both/mcp", STABLE, None, 32, ("lean-2025",)),
    Leg("both/mcp", ALPHA, OLD, 33, ("lean-2025", "both-2025")),
    Leg("both/mcp", ALPHA, NEW, 40, ("both-2026",)),
    Leg("sessions/mcp", STABLE, None, 32, ("lean-2025",)),
    Leg("sessions/mcp", ALPHA, OLD, 33, ("lean-2025",)),
    Leg("sdk/everything/mcp", STABLE, None, 32, ("sdk-stable",)),
    Leg("sdk/everything/mcp", ALPHA, OLD, 33),
    Leg("sdk/everything/mcp", ALPHA, NEW, 40),
]
#: How a reason may begin: a failure that nobody meant has none.
KINDS = ("not offered: ", "untestable: ", "an episode is ", "the suite's mistake: ")
DOCS = HERE.parents[1] / "docs" / "protocol.md"


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running fixture; it ends when its standard input closes."""
    errors = tmp_path_factory.mktemp("fixture") / "stderr"
    command = [sys.executable, str(HERE / "fixture.py")]
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            url = process.stdout.readline().decode().strip()
            assert url.startswith("http://"), errors.read_text()[-3000:]
            yield url
        finally:
            process.stdin.close()
            assert process.wait(20) == 0, errors.read_text()[-3000:]


@pytest.mark.parametrize("leg", LEGS, ids=[leg.name for leg in LEGS])
async def test_exactly_what_is_expected_fails(leg: Leg, base_url: str, tmp_path: Path) -> None:
    found = await run_leg(leg, base_url, tmp_path, "first")
    if found.code != 0:
        # The suite waits half a second for some frames, and a busy machine may need longer; what
        # is wrong fails again.
        found = await run_leg(leg, base_url, tmp_path, "second")
    assert found.code == 0, found.text[-6000:]
    assert found.scenarios == leg.scenarios, found.text[-3000:]
    assert f"| {leg.name} | {found.row} |" in DOCS.read_text("utf-8"), found.row


@pytest.mark.parametrize(
    ("entry", "said"),
    [("ping:ping", "Stale"), (None, "Unexpected")],
    ids=["a pass that is listed", "a failure that is not"],
)
async def test_a_list_that_is_wrong_either_way_is_told(
    entry: str | None,
    said: str,
    base_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leg = Leg("both/mcp", ALPHA, OLD, 33, ("lean-2025", "both-2025"))
    wrong = dict(expected(leg))
    if entry is None:
        del wrong["prompts-list:prompts-list"]
    else:
        wrong[entry] = "wrong"
    monkeypatch.setattr("tests.conformance.suites.expected", lambda leg: wrong)
    found = await run_leg(leg, base_url, tmp_path)
    assert found.code == 1
    assert said in found.text


def test_every_expected_failure_has_its_reason_and_its_leg() -> None:
    for leg in LEGS:
        for check, why in expected(leg).items():
            assert check.count(":") == 1, check
            assert why.startswith(KINDS), check
