"""Numbers as text: the format that Prometheus scrapes, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/ has the grammar; a test reads what is
written here with the reference parser. Pure: it knows neither where numbers come from nor who may
see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from astra_mcp.host.metrics import Histogram, Series

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
Kind = Literal["counter", "gauge", "histogram"]
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series.

    Attributes:
        name: Metric name; a counter's ends in `_total`.
        text: One line for a person.
        lines: Its samples as finished lines.
    """

    name: str
    kind: Kind
    text: str
    lines: list[str]


def gauge(name: str, text: str, value: float | None) -> Family:
    """One number that goes up and down; None is left out."""
    return Family(name, "gauge", text, [] if value is None else [_line(name, {}, value)])


def counter(name: str, text: str, value: float | None) -> Family:
    """One number that only grows; None is left out."""
    return Family(name, "counter", text, [] if value is None else [_line(name, {}, value)])


def counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    """A counter by one label."""
    lines = [_line(name, {label: key}, value) for key, value in sorted(values.items())]
    return Family(name, "counter", text, lines)


def calls(name: str, text: str, series: Iterable[tuple[Labels, Series]]) -> Family:
    """How many calls ended how."""
    lines = [
        _line(name, {**labels, "outcome": outcome}, count)
        for labels, one in series
        for outcome, count in sorted(one.outcomes.items())
    ]
    return Family(name, "counter", text, lines)


def histogram(name: str, text: str, series: Iterable[tuple[Labels, Histogram]]) -> Family:
    """Histograms of one metric."""
    lines = [line for labels, one in series for line in _buckets(name, labels, one)]
    return Family(name, "histogram", text, lines)


def _buckets(name: str, labels: Labels, one: Histogram) -> Iterator[str]:
    known = _inside(labels)
    head = f"{name}_bucket{{{known}{',' if known else ''}le="
    seen = 0
    for bound, count in zip(_quoted(one.bounds), one.counts, strict=True):
        seen += count
        yield f"{head}{bound}}} {seen}"
    where = f"{{{known}}}" if known else ""
    yield f"{name}_sum{where} {one.total}"
    yield f"{name}_count{where} {seen}"


@cache
def _quoted(bounds: tuple[float, ...]) -> tuple[str, ...]:
    """The bounds as labels; writing a float costs more than the rest of its line."""
    return (*(f'"{bound}"' for bound in bounds), '"+Inf"')


def _line(name: str, labels: Labels, value: float) -> str:
    inside = _inside(labels)
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


def _inside(labels: Labels) -> str:
    return ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items())


def info(name: str, text: str, labels: Labels) -> Family:
    """A constant 1 whose labels say something."""
    return Family(name, "gauge", text, [_line(name, labels, 1)])


def render(families: Iterable[Family]) -> bytes:
    """The whole page."""
    parts: list[str] = []
    for family in families:
        parts += (
            f"# HELP {family.name} {family.text}",
            f"# TYPE {family.name} {family.kind}",
            *family.lines,
        )
    parts.append("")
    return "\n".join(parts).encode()
