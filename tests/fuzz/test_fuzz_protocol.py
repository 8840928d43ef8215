"""The protocol front under bent requests: shortly for every commit, long in `make fuzz`."""

from __future__ import annotations

import pytest

from tests.fuzz.fuzz_protocol import fuzz


async def test_bent_requests_crash_nothing_hang_nothing_and_leave_nothing() -> None:
    summary = await fuzz(seconds=3.0, seed=20260728)
    assert summary["problems"] == []
    assert summary["cases"] > 300
    assert {"200", "400"} <= set(summary["statuses"])


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_ten_minutes_of_bent_requests() -> None:
    assert (await fuzz(seconds=600.0, seed=1))["problems"] == []
