"""Helpers of the store's tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from graderkit import TEA_SHOP

from astra_mcp.errors import BundleError

RAW = json.loads(TEA_SHOP.read_text("utf-8"))
SHIPPED = sorted((Path(__file__).parents[2] / "synthesized_envs").glob("*/bundle.json"))


def raw(**changes: Any) -> dict[str, Any]:
    """The raw bundle with fields changed at dotted places (`manifest__now`)."""
    copy: dict[str, Any] = json.loads(json.dumps(RAW))
    for place, value in changes.items():
        *parents, last = place.split("__")
        node: Any = copy
        for parent in parents:
            node = node[int(parent) if parent.isdigit() else parent]
        node[last] = value
    return copy


def refusal(load: Callable[[], Any]) -> str:
    with pytest.raises(BundleError) as caught:
        load()
    assert caught.value.remedy, "every refusal says what to do"
    message = str(caught.value)
    assert "\n" not in message
    assert "pydantic" not in message
    return message
