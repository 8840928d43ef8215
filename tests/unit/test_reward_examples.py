"""The worked examples of docs/rewards.md are true: this file reads them from there."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from graderkit import ROOT, graded, labels, solved

DOC = (ROOT / "docs" / "rewards.md").read_text("utf-8")


def _examples() -> list[Any]:
    found = []
    for section in re.split(r"^### ", DOC, flags=re.M)[1:]:
        title = section.splitlines()[0]
        for n, block in enumerate(re.findall(r"```json\n(.*?)```", section, flags=re.S)):
            found.append(pytest.param(json.loads(block), id=f"{title} {'ab'[n]}"))
    return found


EXAMPLES = _examples()


def test_there_are_at_least_ten_examples_and_every_one_gives_numbers() -> None:
    titles = re.findall(r"^### (\d+)\.", DOC, flags=re.M)
    assert titles == [str(n) for n in range(1, len(titles) + 1)]
    assert len(titles) >= 10
    for example in EXAMPLES:
        assert {"recall", "precision", "value", "outcome", "paper_f1"} <= set(
            example.values[0]["gives"]
        )


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example: dict[str, Any]) -> None:
    result = graded(example["task"], example["moves"], example["answer"])
    found: dict[str, Any] = result.summary() | {
        "labels": labels(result),
        "credit": [round(call.credit, 4) for call in result.calls],
        "counted": result.counted_calls,
        "solved": [item.id for item in result.items if item.solved],
    }
    for name in ("recall", "precision", "value", "paper_f1"):
        found[name] = None if found[name] is None else round(found[name], 4)
    assert {name: found[name] for name in example["gives"]} == example["gives"]
    assert result.f1 == result.value
    assert sum(call.credit for call in result.calls) == pytest.approx(
        sum(item.solved for item in result.items if item.kind == "call")
        / max(1, sum(item.kind == "call" for item in result.items))
    )
    assert solved(result) <= {item.id for item in result.items}
