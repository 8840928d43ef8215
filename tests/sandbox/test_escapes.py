"""No known trick gets through the language layer."""

from __future__ import annotations

import pytest

from astra_mcp.errors import CRASH, LoadError
from astra_mcp.sandbox import Sandbox
from tests.sandbox.escapes import ESCAPES, Escape
from tests.sandbox.helpers import load, load_unguarded

PROBE = """
def probe(state):
    got = attack()
    return {"contained": any(got is harmless for harmless in (None, 0, 1))}
"""


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.id)
async def test_an_escape_is_contained(sandbox: Sandbox, escape: Escape) -> None:
    try:
        template = await load(sandbox, escape.source + PROBE, {"probe": "read"})
    except LoadError:
        return
    reply = await (await template.worker({})).call("probe", {}, b"")
    await template.aclose()
    if reply.failure is not None:
        assert reply.failure.code == CRASH
    else:
        assert reply.result == {"contained": True}


@pytest.mark.parametrize("id", ["subclasses", "fmt_method", "module:random._os.system", "cr_frame"])
async def test_without_the_layer_the_same_trick_brings_loot(sandbox: Sandbox, id: str) -> None:
    (escape,) = [escape for escape in ESCAPES if escape.id == id]
    template = await load_unguarded(sandbox, escape.source + PROBE, {"probe": "read"})
    reply = await (await template.worker({})).call("probe", {}, b"")
    assert reply.result == {"contained": False}


def test_the_collection_is_whole() -> None:
    assert len({escape.id for escape in ESCAPES}) == len(ESCAPES) > 170
