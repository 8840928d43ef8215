"""Pages of several processes for Prometheus made into one: every sample says whose it is.

A sum would be shorter, but a counter that starts anew in one process would make the sum fall by a
part, which rates take for a restart of everything. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping


def merge(label: str, pages: Mapping[str, str]) -> bytes:
    """One page.

    Args:
        label: Name of the label that is added; no sample has it yet.
        pages: Its values, which need no escape, to the pages as exposition.py writes them.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for value, page in pages.items():
        family = ""
        for line in page.splitlines():
            if line.startswith("# "):
                _, kind, family, _ = line.split(" ", 3)
                known = heads.setdefault(family, [])
                if not any(other.split(" ", 2)[1] == kind for other in known):
                    known.append(line)
                samples.setdefault(family, [])
            elif line:
                samples[family].append(_labelled(line, f'{label}="{value}"'))
    parts = [line for family, head in heads.items() for line in (*head, *samples[family])]
    return "\n".join([*parts, ""]).encode()


def _labelled(line: str, pair: str) -> str:
    """A sample with one label more, in front of those that it has."""
    name, brace, rest = line.partition("{")
    if brace and " " not in name:
        return f"{name}{{{pair},{rest}"
    name, _, value = line.rpartition(" ")
    return f"{name}{{{pair}}} {value}"
