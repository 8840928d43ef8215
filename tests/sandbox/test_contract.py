"""The contract that `astra doctor` runs holds here, and notices when it does not."""

from __future__ import annotations

import pytest

from astra_mcp.sandbox import Sandbox, run_contract
from astra_mcp.sandbox.contract import BEHAVIOURS, Bench, Check, Unmet, run_behaviour


@pytest.mark.parametrize(("name", "check"), BEHAVIOURS, ids=[name for name, _ in BEHAVIOURS])
async def test_a_behaviour_holds(sandbox: Sandbox, name: str, check: Check) -> None:
    outcome = await run_behaviour(sandbox, name, check)
    assert outcome.passed, outcome.detail


async def test_a_behaviour_that_does_not_hold_says_what_happened(sandbox: Sandbox) -> None:
    async def check(bench: Bench) -> None:
        await bench.failure("def tool(state):\n    return {'x': 1}\n")

    outcome = await run_behaviour(sandbox, "it fails", check)
    assert not outcome.passed
    assert outcome.detail == "it succeeded with {'x': 1}"


async def test_code_that_cannot_load_is_an_outcome_too(sandbox: Sandbox) -> None:
    async def check(bench: Bench) -> None:
        await bench.worker("import subprocess\ndef tool(state):\n    return {}\n")
        raise Unmet("it loaded")

    outcome = await run_behaviour(sandbox, "it loads", check)
    assert not outcome.passed
    assert "LoadError" in outcome.detail


def test_run_contract_runs_them_all() -> None:
    assert callable(run_contract)
    assert len({name for name, _ in BEHAVIOURS}) == len(BEHAVIOURS) >= 20
