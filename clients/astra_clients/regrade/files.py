"""A file of records graded again: one new record for each old one, in the same order.

The new file appears whole or not at all. What changed is summed up by task; a null reward is no
number and stands in no mean.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from astra_clients.output import read_records
from astra_clients.regrade import Regrader
from astra_mcp.errors import UsageError

Json = Any


@dataclass
class TaskRow:
    """One task.

    Attributes:
        records: How many records there are.
        graded: Of them, graded again.
        changed: Of them, with another reward than before.
        lost: Records that had a reward and have none now.
        differing: Records whose calls give other results now, and were graded all the same.
        old, new: Rewards.
        noted: Notes, and how many records have them.
    """

    records: int = 0
    graded: int = 0
    changed: int = 0
    lost: int = 0
    differing: int = 0
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    noted: dict[str, int] = field(default_factory=dict)

    def add(self, before: Mapping[str, Json], after: Mapping[str, Json]) -> None:
        """Count one record."""
        old, new = _value(before), after["reward"]["value"]
        origin = after["regraded_from"]
        self.records += 1
        self.graded += new is not None
        self.changed += new is not None and new != old
        self.lost += old is not None and new is None
        self.differing += bool(origin["differ"])
        self.old += [old] if old is not None else []
        self.new += [new] if new is not None else []
        for note in origin["notes"] or ([after["reward"]["reason"]] if new is None else []):
            self.noted[note] = self.noted.get(note, 0) + 1

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {
            "records": self.records,
            "graded": self.graded,
            "changed": self.changed,
            "lost": self.lost,
            "differing": self.differing,
            "old_mean": _mean(self.old),
            "new_mean": _mean(self.new),
            "notes": self.noted,
        }


@dataclass
class RegradeSummary:
    """What was done."""

    out: Path
    tasks: dict[str, TaskRow] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Records that had a reward and have none now."""
        return sum(row.lost for row in self.tasks.values())

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        rows = {task: row.as_json() for task, row in self.tasks.items()}
        return {"out": str(self.out), "lost": self.lost, "tasks": rows}

    def lines(self) -> list[str]:
        """For people."""
        wide = max([len("task"), *map(len, self.tasks)])
        lines = [f"{'task':<{wide}}  records  graded  changed  null  old mean  new mean"]
        for task, row in self.tasks.items():
            lines.append(
                f"{task:<{wide}}  {row.records:>7}  {row.graded:>6}  {row.changed:>7}"
                f"  {row.records - row.graded:>4}  {_shown(row.old):>8}  {_shown(row.new):>8}"
            )
            lines += [f"  {count}x {note}" for note, count in row.noted.items()]
            if row.differing:
                lines.append(f"  {row.differing}x graded although calls give other results now")
        return lines


async def regrade_file(
    records: Path, out: Path, regrader: Regrader, *, overwrite: bool = False
) -> RegradeSummary:
    """Grade every record of a file again.

    Raises:
        UsageError: `records` is no file of records, or `out` is there already.
    """
    _check_out(records, out, overwrite)
    summary = RegradeSummary(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            for record in read_records(records):
                new = await regrader.regrade(record)
                file.write(orjson.dumps(new) + b"\n")
                summary.tasks.setdefault(new["task"], TaskRow()).add(record, new)
        os.replace(draft, out)
    finally:
        draft.unlink(missing_ok=True)
    return summary


def _check_out(records: Path, out: Path, overwrite: bool) -> None:
    if records.is_file() and not (b"\n" + records.read_bytes()).endswith(b"\n"):
        raise UsageError(
            f"{records} ends in a torn line.", "Run its collection again: it goes on where it was."
        )
    if out.exists() and (not overwrite or out.samefile(records)):
        raise UsageError(
            f"{out} is there already.", "Name another file, or use --overwrite for an old result."
        )


def _value(record: Mapping[str, Json]) -> float | None:
    """A record's reward, or None when there is none or something else stands there."""
    reward = record.get("reward")
    value = reward.get("value") if isinstance(reward, Mapping) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _shown(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3f}" if values else "-"
