"""The soak of soak.py: a short form for every commit, the long one in make test-full."""

from __future__ import annotations

import pytest

from tests.soak.soak import Options, soak


async def test_no_grade_is_lost_or_invented_while_clients_workers_and_the_host_are_killed() -> None:
    options = Options(
        episodes=260, warm_up=40, killed_clients=0.3, worker_kills_s=0.03, idle_s=4.0, host_kills=2
    )
    summary = await soak(options)
    assert summary["problems"] == []
    assert summary["episodes"] == 300
    assert summary["hosts_killed"] == 2
    assert summary["workers_killed"] > 0
    assert sum(summary["clients_killed"].values()) > 40


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_ten_thousand_episodes() -> None:
    assert (await soak(Options()))["problems"] == []
