"""Gates: who may be inside, who waits in which order, and that every wait ends."""

from __future__ import annotations

import random

import anyio
import anyio.lowlevel
import pytest

from astra_mcp.concurrency import Gate, within
from astra_mcp.errors import BusyError

LONG = 60.0


async def pause() -> None:
    """Let every other task run until it waits."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def test_those_who_wait_come_in_one_after_the_other_in_their_order() -> None:
    gate, order = Gate(1, 10, LONG), []

    async def one(name: str) -> None:
        await gate.enter()
        order.append(name)
        await anyio.lowlevel.checkpoint()
        gate.leave()

    async with anyio.create_task_group() as tasks:
        await gate.enter()
        for name in "abc":
            tasks.start_soon(one, name)
            await pause()
        assert (gate.inside, gate.waiting, order) == (1, 3, [])
        gate.leave()
    assert order == ["a", "b", "c"]
    assert (gate.inside, gate.waiting) == (0, 0)


async def test_whoever_comes_in_first_overtakes_those_who_wait() -> None:
    gate, order = Gate(1, 10, LONG), []

    async def one(name: str, first: bool) -> None:
        await gate.enter(first=first)
        order.append(name)
        gate.leave()

    async with anyio.create_task_group() as tasks:
        await gate.enter()
        tasks.start_soon(one, "patient", False)
        await pause()
        tasks.start_soon(one, "urgent", True)
        await pause()
        gate.leave()
    assert order == ["urgent", "patient"]


async def test_more_than_may_wait_are_sent_away_at_once_unless_they_do_not_count() -> None:
    gate = Gate(1, 1, LONG)
    async with anyio.create_task_group() as tasks:
        await gate.enter()
        tasks.start_soon(gate.enter)
        await pause()
        with pytest.raises(BusyError):
            await gate.enter()
        tasks.start_soon(lambda: gate.enter(counted=False))
        await pause()
        assert gate.waiting == 2
        gate.leave()
        gate.leave()
    assert gate.inside == 1


async def test_a_wait_ends_with_its_deadline() -> None:
    gate = Gate(1, 10, 0.01)
    await gate.enter()
    with anyio.fail_after(20), pytest.raises(BusyError):
        await gate.enter()
    gate.leave()
    assert (gate.inside, gate.waiting) == (0, 0)
    await gate.enter()


async def test_a_closed_gate_sends_everybody_away() -> None:
    gate, refused = Gate(1, 10, LONG), []

    async def one() -> None:
        try:
            await gate.enter()
        except BusyError as error:
            refused.append(error)

    await gate.enter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one)
        await pause()
        gate.close()
    assert len(refused) == 1
    with pytest.raises(BusyError):
        await gate.enter()


@pytest.mark.parametrize("seed", range(20))
async def test_nobody_is_lost_when_waiters_are_cancelled_at_any_moment(seed: int) -> None:
    rng, gate, most = random.Random(seed), Gate(2, 50, LONG), 0

    async def one(after: int) -> None:
        nonlocal most
        await gate.enter(first=rng.random() < 0.2)
        try:
            most = max(most, gate.inside)
            for _ in range(after):
                await anyio.lowlevel.checkpoint()
        finally:
            gate.leave()

    async def killed(steps: int) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, rng.randrange(5))
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()

    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(one if rng.random() < 0.5 else killed, rng.randrange(12))
    assert (gate.inside, gate.waiting) == (0, 0)
    assert most == 2


async def test_a_block_that_takes_too_long_is_stopped_with_a_sentence() -> None:
    with pytest.raises(BusyError, match="Loading takes longer"), within(0.01, "Loading"):
        await anyio.sleep_forever()
