"""Ordinary model-written tools run in the sandbox and give what plain Python gives."""

from __future__ import annotations

from typing import Any

import pytest

from astra_mcp.sandbox import Sandbox
from tests.sandbox.corpus import CORPUS, Sample, as_tool, expected
from tests.sandbox.helpers import load


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    return [_shape(value[0])] if isinstance(value, list) and value else type(value).__name__


@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: sample.name)
async def test_a_tool_gives_the_same_inside(sandbox: Sandbox, sample: Sample) -> None:
    template = await load(sandbox, as_tool(sample), {"run_all": "read"}, call_seconds=2.0)
    worker = await template.worker({})
    reply = await worker.call("run_all", {"calls": sample.calls}, b"seed")
    assert reply.failure is None
    if sample.nondet:
        assert _shape(reply.result) == _shape(expected(sample))
        again = await (await template.worker({})).call("run_all", {"calls": sample.calls}, b"seed")
        assert again == reply
    else:
        assert reply.result == expected(sample)
    await template.aclose()


def test_the_corpus_is_whole() -> None:
    assert len({sample.name for sample in CORPUS}) == 25
