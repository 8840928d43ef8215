"""The report: right numbers, escaped data, one file that fetches nothing, the same bytes twice."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from astra_clients.report import render, summarize, summary_table, tasks_table, write_report
from astra_clients.report.numbers import mean, percentile
from astra_mcp.errors import UsageError

Json = Any
NASTY = "<script>alert(1)</script>&$x$[red]"


def record(agent: str, task: str, value: float | None, **more: Json) -> dict[str, Json]:
    reason = more.pop("reason", "")
    reward = dict.fromkeys(("value", "f1", "recall", "precision", "paper_f1"), value)
    calls = [{"label": label} for label in more.pop("labels", ("progress", "idle"))]
    return {
        "schema": "astra-mcp/trajectory@1",
        "agent": agent,
        "task": task,
        "digest": "sha256:d",
        "seed": 0,
        "domain": "d",
        "level": 2,
        "hops": 3,
        "reward": {**reward, "outcome": None if value is None else value == 1.0, "reason": reason},
        "calls": calls,
        "timings": {
            "open_s": 0.0,
            "play_s": more.pop("play_s", 0.5),
            "grade_s": 0.0,
            "call_ms": [1.0] * len(calls),
        },
    }


RECORDS = [
    record("golden", "a@1.0.0#t1", 1.0, labels=("progress",) * 4),
    record("golden", "a@1.0.0#t1", 0.5),
    record("golden", "b@1.0.0#t1", None, reason="agent crashed: KeyError"),
    record("null", "a@1.0.0#t1", 0.0, labels=()),
    record(NASTY, "b@1.0.0#t1", 0.25, labels=(NASTY,)),
]


def test_null_rewards_are_counted_and_not_averaged() -> None:
    summary = summarize(RECORDS)
    golden = next(row for row in summary.agents if row.agent == "golden")
    assert (golden.episodes, golden.failures, golden.reward, golden.outcome) == (3, 1, 0.75, 0.5)
    assert summary.failures == [("agent crashed: KeyError", 1)]
    assert summary.graded == 4


def test_rates_and_rows_are_per_agent_and_task() -> None:
    summary = summarize(RECORDS)
    golden = next(row for row in summary.agents if row.agent == "golden")
    assert golden.calls_per_s == 8 / 1.5
    assert golden.labels == {"progress": 6, "idle": 2}
    agents = [row.agent for row in summary.agents]
    rows = {row.bundle: dict(zip(agents, row.rewards, strict=True)) for row in summary.tasks}
    assert rows["a"] == {"golden": 0.75, "null": 0.0, NASTY: None}
    assert rows["b"] == {"golden": None, "null": None, NASTY: 0.25}


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([3.0], 0.99, 3.0), ([2.0, 1.0], 0.5, 1.5), ([1, 2, 3, 4], 1.0, 4)],
)
def test_percentiles(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


def test_a_mean_of_nothing_is_nothing() -> None:
    assert mean([None, None]) is None
    assert mean([True, False, None]) == 0.5


class Page(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_escapes_data_and_fetches_nothing() -> None:
    source = render(summarize(RECORDS), f"{NASTY}.jsonl")
    page = Page()
    page.feed(source)
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags
    assert not {"link", "img", "iframe", "object", "base"} & set(tags)
    assert NASTY in " ".join(page.text)
    for _, attributes in page.tags:
        for name in ("href", "src", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert "url(" not in re.sub(r"url\(#", "", source)
    assert tags.count("svg") == 2


def test_the_page_serves_light_and_dark() -> None:
    source = render(summarize(RECORDS), "r.jsonl")
    assert "prefers-color-scheme: dark" in source
    assert "currentColor" in source
    assert not re.search(r"#0(10203|40506)|black|white\b(?!-)", source)


def test_the_same_records_give_the_same_page() -> None:
    assert render(summarize(RECORDS), "r") == render(summarize(RECORDS), "r")


def test_many_bundles_and_agents_still_fit() -> None:
    records = [record(f"agent {i % 11}", f"b{i:03}@1.0.0#t1", 0.5) for i in range(120)]
    assert "first 40 of 120 bundles" in " ".join(render(summarize(records), "r").split())


def test_all_episodes_without_a_reward_still_give_a_page() -> None:
    failed = [record("chat", "a@1.0.0#t1", None, reason="gone", labels=())]
    assert "gone" in render(summarize(failed), "r")


def test_a_file_becomes_a_page(tmp_path: Path) -> None:
    records, out = tmp_path / "r.jsonl", tmp_path / "r.html"
    records.write_bytes(b"".join(orjson.dumps(r) + b"\n" for r in RECORDS))
    assert write_report(records, out).graded == 4
    assert out.read_text().startswith("<!doctype html>")
    records.write_bytes(orjson.dumps({**RECORDS[0], "timings": {}}) + b"\n")
    with pytest.raises(UsageError, match="lacks 'open_s'"):
        write_report(records, out)
    records.write_bytes(b"")
    with pytest.raises(UsageError, match="holds no record"):
        write_report(records, out)


def test_the_terminal_table_fits_eighty_columns_and_shows_names_as_they_are() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(summary_table([record("[red]x", "a@1.0.0#t1", 0.75), *RECORDS]))
    text = console.export_text()
    assert "[red]x" in text
    assert "2/3" in text
    assert "0.750" in text
    assert "p99" in text


def test_the_table_of_tasks_names_bundle_and_task() -> None:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(tasks_table([record("[red]x", "a@1.0.0#t1", 0.75), *RECORDS[:2]]))
    text = console.export_text()
    assert "a#t1" in text
    assert "[red]x" in text


def test_axes_are_labelled_in_words_even_over_a_narrow_range() -> None:
    """Times that differ little once labelled every minor tick in mathtext, over one another."""
    near = [record("golden", "a@1.0.0#t1", 1.0, play_s=0.1 + i / 1000) for i in range(9)]
    assert "mathdefault" not in render(summarize(near), "r.jsonl")
