"""Agents without a plan and without a model: one that does nothing, one that acts at random.

Baselines: the reward of the first is what silence is worth, that of the second what luck is worth.
Neither sees a sealed byte.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from astra_clients.agents.answers import plain
from astra_clients.agents.base import ANSWER, AgentContext
from astra_clients.agents.draw import ValuePool, draw_arguments


@dataclass
class NullAgent:
    """Says nothing, calls nothing, submits the empty answer."""

    async def run(self, ctx: AgentContext) -> str | None:
        """Do nothing."""
        await ctx.tools()
        return None


@dataclass
class RandomAgent:
    """Random calls with schema-valid arguments, then a random value as the answer.

    Attributes:
        seed: Seeds every choice.
        calls: How many calls; None draws a number up to the episode's limit.
    """

    seed: int = 0
    calls: int | None = None

    async def run(self, ctx: AgentContext) -> str | None:
        """Act at random; see the class."""
        rng = random.Random(f"random:{self.seed}:{ctx.opened.task}")
        pool = ValuePool(ctx.first_message)
        tools = await ctx.tools()
        wanted = self.calls if self.calls is not None else rng.randint(1, ctx.opened.max_calls)
        for _ in range(min(wanted, ctx.calls_left) if tools else 0):
            tool = rng.choice(tools)
            args = draw_arguments(rng, tool["inputSchema"], pool)
            if args is not None:
                pool.see((await ctx.call(tool["name"], args)).structured)
        values = pool.seen or pool.literals
        return f"{ANSWER} {plain(rng.choice(values))}" if values else None
