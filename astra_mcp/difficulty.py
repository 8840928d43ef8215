"""How hard a task is, measured on its plan.

The plan is a graph: a step depends on the steps that its arguments read (`$expr`). Hops are the
steps on its longest chain; width is the most steps at one depth, where a step's depth is the length
of the longest chain that leads to it. Numbers are measured; `features` are the author's words and
are kept. The level follows from both by `level_of`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from astra_mcp.bundle import Manifest
from astra_mcp.expr import arg_refs
from astra_mcp.task import Difficulty, Step, Task


def measure(task: Task, manifest: Manifest) -> Difficulty:
    """The difficulty of `task` in the world of `manifest`; compare it with `task.difficulty`."""
    layers = plan_layers(task.plan)
    writes = sum(manifest.by_name[step.tool].effects == "write" for step in task.plan)
    features = task.difficulty.features
    return Difficulty(
        level=level_of(len(layers), len(task.turns), writes, features),
        hops=len(layers),
        steps=len(task.plan),
        width=max(map(len, layers), default=0),
        turns=len(task.turns),
        writes=writes,
        tools=len(manifest.tools),
        features=features,
    )


def plan_layers(plan: Iterable[Step]) -> list[list[str]]:
    """Step ids by depth, in plan order: every step stands one layer below its deepest source."""
    steps = list(plan)
    order = {step.id: position for position, step in enumerate(steps)}
    graph = nx.DiGraph()
    graph.add_nodes_from(order)
    graph.add_edges_from((ref, step.id) for step in steps for ref in arg_refs(step.args))
    layers = nx.topological_generations(graph)
    return [sorted(layer, key=order.__getitem__) for layer in layers]


def level_of(hops: int, turns: int, writes: int, features: Iterable[str]) -> int:
    """Level 1 to 5.

    One, and one more for each of: a chain of four hops or longer; more than one turn; more than
    one write; every feature beyond the second.
    """
    points = (hops >= 4) + (turns > 1) + (writes > 1) + max(0, len(set(features)) - 2)
    return min(5, 1 + points)
