"""Which calls solve which call sub-task.

Every solved sub-task names its evidence: of all ways to solve it the one that is complete first, so
that what is solved after n calls never changes with later ones. A pattern that cannot be evaluated
on a result is not met; only successful calls of the world's own tools can be evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product
from typing import Any, Final

from astra_mcp.attempt import Call, Golden, GoldenStep
from astra_mcp.errors import AstraError
from astra_mcp.expr import compile_expr
from astra_mcp.grade.equality import json_key, same
from astra_mcp.match import match_value
from astra_mcp.task import CallPattern, Expect, SubTask, Task

Json = Any
Positions = tuple[int, ...]

MAX_COMBINATIONS: Final = 1024
"""Ways to choose one call per step of a sub-task that are tried; the earliest come first."""


def find_evidence(task: Task, golden: Golden, calls: Sequence[Call]) -> dict[str, Positions]:
    """Positions in `calls` of the evidence of each solved call sub-task."""
    search = _Search(golden, calls)
    found: dict[str, Positions] = {}
    for sub in task.subtasks:
        if sub.kind != "call":
            continue
        positions = search.patterns(sub) if sub.evidence else search.golden_calls(sub)
        if positions is not None:
            found[sub.id] = tuple(sorted(set(positions)))
    return found


def usable(call: Call) -> bool:
    """Whether a call can be evidence at all."""
    return call.ok and call.fault is None and call.origin == "world"


def fits_where(pattern_args: Mapping[str, Json], call: Call) -> bool:
    """Whether the call has these arguments, whatever others it has."""
    args = _args(call)
    return all(name in args and same(args[name], want) for name, want in pattern_args.items())


def selected(pattern: CallPattern, call: Call) -> Json:
    """What `select` gives on the call; None when it gives nothing or cannot be evaluated."""
    assert pattern.select is not None
    try:
        data = {"result": call.result, "args": call.args}
        return compile_expr(pattern.select).evaluate(data)
    except AstraError:
        return None


class _Search:
    def __init__(self, golden: Golden, calls: Sequence[Call]) -> None:
        self.golden = {step.id: step for step in golden.steps}
        self.results = golden.results
        self.calls = calls
        self.usable = [i for i, call in enumerate(calls) if usable(call)]
        # A plan that makes the same call twice needs it twice: calls taken, by golden call.
        self.taken: dict[str, set[int]] = defaultdict(set)

    def patterns(self, sub: SubTask) -> Positions | None:
        """The first complete one of the conjunctions."""
        complete = []
        for conjunction in sub.evidence:
            firsts = [self._first(pattern, sub.expect) for pattern in conjunction]
            hits = tuple(i for i in firsts if i is not None)
            if hits and len(hits) == len(firsts):
                complete.append(hits)
        return _earliest(complete)

    def _first(self, pattern: CallPattern, expect: Expect | None) -> int | None:
        return next((i for i in self.usable if _meets(pattern, expect, self.calls[i])), None)

    def golden_calls(self, sub: SubTask) -> Positions | None:
        """The first calls that are the golden ones, and give the expected value together."""
        steps = [self.golden[step] for step in sub.steps]
        expect = sub.expect
        refs = compile_expr(expect.expr).refs if expect and expect.expr else frozenset[str]()
        candidates = [self._candidates(step, step.id in refs, len(steps)) for step in steps]
        ways = (
            way
            for way in islice(product(*candidates), MAX_COMBINATIONS)
            if len(set(way)) == len(way)
        )
        if expect is not None and expect.expr is not None and not refs.isdisjoint(sub.steps):
            ways = (way for way in ways if self._gives(expect, expect.expr, steps, way))
        best = _earliest(ways)
        for step, position in zip(steps, best or (), strict=False):
            self.taken[_call_key(step)].add(position)
        return best

    def _candidates(self, step: GoldenStep, checked: bool, keep: int) -> list[int]:
        """Calls with the step's arguments: of each result the first `keep`.

        When the expected value is not read from the step's result, nothing shows that a further
        argument did no harm, so there must be none.
        """
        found: dict[str, list[int]] = defaultdict(list)
        taken = self.taken[_call_key(step)]
        for i in self.usable:
            call = self.calls[i]
            if call.tool != step.tool or i in taken or not fits_where(step.args, call):
                continue
            if checked or len(_args(call)) == len(step.args):
                found[json_key(call.result) if checked else ""].append(i)
        return sorted(i for same_result in found.values() for i in same_result[:keep])

    def _gives(self, expect: Expect, expr: str, steps: list[GoldenStep], way: Positions) -> bool:
        own = {s.id: self.calls[i].result for s, i in zip(steps, way, strict=True)}
        try:
            value = compile_expr(expr).evaluate(self.results | own)
            return value is not None and bool(match_value(expect.match, expect.value, value))
        except AstraError:
            return False


def _meets(pattern: CallPattern, expect: Expect | None, call: Call) -> bool:
    if call.tool != pattern.tool or not fits_where(pattern.where, call):
        return False
    if pattern.select is None:
        return True
    value = selected(pattern, call)
    if value is None or expect is None:
        return False
    try:
        return bool(match_value(pattern.match or expect.match, expect.value, value))
    except AstraError:
        return False


def _earliest(ways: Iterable[Positions]) -> Positions | None:
    return min(ways, key=lambda way: (max(way), len(set(way)), way), default=None)


def _args(call: Call) -> Mapping[str, Json]:
    return call.args if isinstance(call.args, dict) else {}


def _call_key(step: GoldenStep) -> str:
    return json_key([step.tool, step.args])
