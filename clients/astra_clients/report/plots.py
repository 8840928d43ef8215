"""The two plots of a report as inline SVG. The only module that imports matplotlib.

Text and lines are drawn in two marker colours that become `currentColor` and a CSS variable, so one
drawing serves light and dark pages. Names of agents stand in the page's legend, not in the SVG.
Deterministic: no date, no random ids.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Final

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from astra_clients.report.numbers import Summary

Axes = Any
MAX_BUNDLES: Final = 40

_INK: Final = "#010203"
_RULE: Final = "#040506"
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _RULE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _RULE,
    "grid.linewidth": 0.7,
    "xtick.color": _RULE,
    "ytick.color": _RULE,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "figure.facecolor": "none",
}
_GROUP_ID: Final = re.compile(
    r' id="(?:figure|axes|patch|line2d|text|matplotlib|PathCollection|xtick|ytick)[^"]*"'
)
_NO_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}


def rewards(summary: Summary, colours: Mapping[str, str]) -> str:
    """Mean reward by bundle, one dot per agent, one line per bundle."""
    bundles = summary.bundles[:MAX_BUNDLES]
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": "rewards"}):
        figure = Figure(figsize=(11, 0.8 + 0.3 * max(3, len(bundles))), layout="constrained")
        axes = figure.subplots()
        by_bundle = _means(summary, colours)
        for index, bundle in enumerate(bundles):
            means = by_bundle.get(bundle, {})
            if means:
                axes.plot([min(means.values()), max(means.values())], [index, index],
                          color=_RULE, linewidth=2, zorder=1)  # fmt: skip
            _dots(axes, index, means, colours)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(len(bundles) - 0.5, -0.5)
        axes.set_yticks(range(len(bundles)), bundles)
        axes.tick_params(length=0)
        axes.set_xlabel("mean reward")
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False, axis="y")
        return _svg(figure, "Mean reward by bundle and agent")


def _means(summary: Summary, colours: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Mean rewards by bundle and, in the legend's order, agent."""
    values: dict[str, dict[str, list[float]]] = {}
    for e in summary.episodes:
        if e.value is not None:
            values.setdefault(e.bundle, {}).setdefault(e.agent, []).append(e.value)
    return {
        bundle: {agent: fmean(found[agent]) for agent in colours if agent in found}
        for bundle, found in values.items()
    }


def _dots(axes: Axes, row: int, means: Mapping[str, float], colours: Mapping[str, str]) -> None:
    """Dots at one height; those that would hide each other are moved apart a little."""
    taken: dict[float, int] = {}
    for agent, value in means.items():
        same = taken[round(value, 2)] = taken.get(round(value, 2), 0) + 1
        offset = (same // 2) * 0.2 * (-1 if same % 2 else 1)
        axes.scatter([value], [row + offset], s=48, color=colours[agent], zorder=3, linewidths=0)


def latency(summary: Summary, colours: Mapping[str, str]) -> str:
    """Left: share of episodes that ended within a time. Right: share that made up to n calls."""
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": "latency"}):
        figure = Figure(figsize=(11, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for agent, colour in colours.items():
            graded = [e for e in summary.episodes if e.agent == agent and e.value is not None]
            _steps(left, [max(e.seconds, 1e-4) for e in graded], colour)
            _steps(right, [e.calls for e in graded], colour)
        left.set_xscale("log")
        left.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=12))
        left.xaxis.set_major_formatter(_time_label)
        left.xaxis.set_minor_formatter(NullFormatter())  # else a narrow range labels every tick
        left.set_xlabel("episode time")
        left.set_ylabel("share of episodes")
        right.set_xlabel("calls per episode")
        right.xaxis.get_major_locator().set_params(integer=True)
        left.set_ylim(0, 1.02)
        for axes in (left, right):
            axes.tick_params(length=0, which="both")
        return _svg(figure, "Distribution of episode time and of calls per episode")


def _steps(axes: Axes, values: list[float] | list[int], colour: str) -> None:
    if values:
        axes.ecdf(values, color=colour, linewidth=2)


def _time_label(seconds: float, _position: int | None = None) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


def _svg(figure: Figure, label: str) -> str:
    """The figure as an SVG element without prologue, in the page's own colours."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata=_NO_METADATA, transparent=True)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>',
                  rf'<svg class="plot" role="img" aria-label="{label}" viewBox="\1">',
                  text, count=1)  # fmt: skip
    text = re.sub(
        r' id="(?:figure|axes|patch|line2d|text|matplotlib|PathCollection)[^"]*"', "", text
    )
    return text.replace(_INK, "currentColor").replace(_RULE, "var(--line)")
