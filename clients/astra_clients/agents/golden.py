"""Agents that know the sealed plan: the golden one, a noisy one, and one that repeats itself.

The golden agent proves that a task can be solved: it binds each step's arguments to the results it
really got, asks for what is missing in the task's own words, ends turns by messages, and derives
its answer from live results, never from the sealed value where the plan says how it follows. It
retries transient failures and nothing else; a step that fails otherwise ends the attempt with an
empty answer, which is graded. For gates, tests and baselines; sealed data stay in this process.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from astra_clients.agents.answers import phrase
from astra_clients.agents.base import ANSWER, AgentContext
from astra_clients.agents.draw import ValuePool, draw_arguments
from astra_clients.mcp_client import ToolResponse
from astra_mcp.bundle import Bundle
from astra_mcp.errors import TIMEOUT, UNAVAILABLE, ClientError
from astra_mcp.expr import bind_args, compile_expr
from astra_mcp.task import Step, Task, Turn

Json = Any
TRANSIENT: Final = frozenset({UNAVAILABLE, TIMEOUT})
DONE: Final = "done"

_ASK: Final = {
    "en": "Before I go on I need one more detail from you: {}?",
    "zh": "在继续之前，我还需要向您确认一点：{}？",
}
_HAND_BACK: Final = {
    "en": "That is all that I can do for now. Is there anything else?",
    "zh": "目前我能做的就是这些。还有别的需要吗？",
}


class _GaveUp(Exception):
    """A step failed in a way that a retry cannot mend."""


@dataclass
class GoldenAgent:
    """Plays the plan of one task.

    Attributes:
        task: The sealed task.
        retries: How often one step may be repeated after a transient failure.
    """

    task: Task
    retries: int = 5
    results: dict[str, Json] = field(default_factory=dict)

    async def run(self, ctx: AgentContext) -> str | None:
        """Play the plan; see the module."""
        try:
            for turn in self.task.turns:
                if turn.opens != "start":
                    await self._open(ctx, turn)
                await ctx.tools()
                for step in (step for step in self.task.plan if step.turn == turn.id):
                    await self._before(ctx, step)
                    self.results[step.id] = await self._step(ctx, step)
        except _GaveUp:
            return None
        return f"{ANSWER} {self._answer(ctx)}"

    async def _before(self, ctx: AgentContext, step: Step) -> None:
        """What happens before a step; nothing here."""

    async def _step(self, ctx: AgentContext, step: Step) -> Json:
        args = bind_args(step.args, self.results)
        for _ in range(self.retries + 1):
            response = await ctx.call(step.tool, args)
            if not response.is_error:
                return response.structured
            if response.code not in TRANSIENT:
                break
        raise _GaveUp

    async def _open(self, ctx: AgentContext, turn: Turn) -> None:
        """End the turn before, or ask for what `turn` gives."""
        table = _HAND_BACK if turn.opens == "next" else _ASK
        template = table.get(ctx.opened.language[:2], table["en"])
        for word in turn.ask_words[:2] or [""]:
            reply = await ctx.say(template.format(word))
            if reply.kind == "user":
                return
        raise ClientError(
            f"The user did not open turn {turn.id} of task {self.task.id}.",
            "Check the task's ask_words and the order of its turns.",
        )

    def _answer(self, ctx: AgentContext) -> str:
        expect = self.task.answer
        if expect is None:
            return DONE
        value = expect.value
        if expect.expr is not None:
            value = compile_expr(expect.expr).evaluate(self.results)
        return phrase(expect, value, ctx.opened.language)


@dataclass(kw_only=True)
class NoisyAgent(GoldenAgent):
    """Golden, with needless calls in between: repeats of reads, and idle reads of any tool.

    Attributes:
        bundle: Says which tools only read; writes are never added.
        rate: Chance of a needless call before a step.
        seed: Seeds the choice.
    """

    bundle: Bundle
    rate: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(f"noisy:{self.seed}:{self.task.id}")
        tools = self.bundle.manifest.tools
        self._reads = {tool.name for tool in tools if tool.effects == "read"}
        self._last: tuple[str, Mapping[str, Json]] | None = None
        self._pool: ValuePool | None = None

    async def _before(self, ctx: AgentContext, step: Step) -> None:
        # What is left must still do for the plan.
        rest = len(self.task.plan) - len(self.results)
        if self._rng.random() >= self.rate or ctx.calls_left <= rest:
            return
        if self._last is not None and self._rng.random() < 0.5:
            await ctx.call(*self._last)
            return
        pool = self._pool = self._pool or ValuePool(ctx.first_message)
        tools = [tool for tool in await ctx.tools() if tool["name"] in self._reads]
        if tools:
            tool = self._rng.choice(tools)
            args = draw_arguments(self._rng, tool["inputSchema"], pool)
            if args is not None:
                pool.see((await ctx.call(tool["name"], args)).structured)

    async def _step(self, ctx: AgentContext, step: Step) -> Json:
        result = await super()._step(ctx, step)
        if step.tool in self._reads:
            self._last = (step.tool, bind_args(step.args, self.results))
        return result


@dataclass
class RepeatAgent:
    """Makes the plan's first call until no call is left, and answers nothing."""

    task: Task

    async def run(self, ctx: AgentContext) -> str | None:
        """Repeat; see the class."""
        await ctx.tools()
        if not self.task.plan:
            return None
        first = self.task.plan[0]
        args = bind_args(first.args, {})
        response: ToolResponse | None = None
        while ctx.calls_left and (response is None or not ctx.out_of_calls):
            response = await ctx.call(first.tool, args)
        return None
