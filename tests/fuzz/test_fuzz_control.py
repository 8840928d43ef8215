"""Arguments of the control plane, generated from its models, against a host in this process.

Each operation gets arguments that fit its schema, nearly fit, or are any JSON at all. Whatever
comes, the answer is a result or a coded error, and the host serves the next one.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from astra_clients.mcp_client import McpClient
from astra_mcp.host import control_models as models
from tests.e2e.conftest import CONTROL_TOKEN, DATA, Rig, rigged

Json = Any
TOOLS: dict[str, type[models.Request]] = {
    "list_tasks": models.ListTasks,
    "open_episode": models.OpenEpisode,
    "post_message": models.PostMessage,
    "submit_answer": models.SubmitAnswer,
    "get_episode": models.GetEpisode,
    "close_episode": models.CloseEpisode,
    "heartbeat": models.Heartbeat,
}
CODES = {
    "invalid_arguments", "usage", "episode", "bundle", "busy", "replay", "unauthorized", "sandbox",
}  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8"), max_size=250)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def _of(kind: Any) -> st.SearchStrategy[Json]:
    """Values of a field's type, whatever its bounds."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _of(parts[0])
    if origin is Literal:
        return st.sampled_from(parts)
    if origin is list:
        return st.lists(_of(parts[0]), max_size=5)
    if origin is UnionType or str(origin) == "typing.Union":
        return st.one_of(*map(_of, parts))
    plain: dict[Any, st.SearchStrategy[Json]] = {
        str: TEXT, int: st.integers(-(2**63), 2**64 - 1) | st.integers(0, 40), bool: st.booleans(),
        float: NUMBERS | st.floats(0, 1), type(None): st.none(),
    }  # fmt: skip
    return plain[kind]


def _field(name: str, field: FieldInfo, known: dict[str, list[str]]) -> st.SearchStrategy[Json]:
    fitting = _of(field.annotation)
    likely = st.sampled_from(known[name]) if name in known else fitting
    return st.one_of(likely, likely, likely, fitting, ANY_JSON)


def _arguments(model: type[models.Request], known: dict[str, list[str]]) -> Any:
    fields = {name: _field(name, field, known) for name, field in model.model_fields.items()}
    required = {k: v for k, v in fields.items() if model.model_fields[k].is_required()}
    optional = {k: v for k, v in fields.items() if k not in required}
    fitting = st.fixed_dictionaries(required, optional=optional)
    near = st.fixed_dictionaries({}, optional=fields)
    return st.one_of(fitting, fitting, near, st.dictionaries(TEXT, ANY_JSON, max_size=4))


async def _answers(rig: Rig, tool: str, arguments: Json) -> None:
    control = McpClient(rig.pool, f"{rig.host.url}/control/mcp", token=CONTROL_TOKEN)
    response = await control.call_tool(tool, arguments)
    if response.is_error:
        assert response.code in CODES, (tool, arguments, response.text)
        assert "Internal" not in response.text
        assert ".py" not in response.text
    else:
        assert isinstance(response.structured, dict)


@pytest.mark.parametrize("tool", TOOLS)
async def test_every_answer_of_the_control_plane_is_a_result_or_a_coded_error(tool: str) -> None:
    async with rigged(DATA / "counter.json", max_episodes=5, wait_s=0.01, idle_s=30) as rig:
        opened = await rig.open("counter#t1")
        known = {
            "episode_id": [opened.episode_id, "ep_none"],
            "task": ["counter#t1", "counter@1.0.0#t1", "counter@2.0.0#t1", "counter#t9", "x#y"],
            "request_id": ["r1", "r2", "r3"],
            "bundle": ["counter", "counter@1.0.0", "none"],
            "cursor": ["0", "1", "999999999", "-1", "x", "\u0661"],
        }
        drawn: list[Json] = []

        @settings(
            max_examples=60,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(_arguments(TOOLS[tool], known))
        def draw(arguments: Json) -> None:
            drawn.append(arguments)

        draw()
        for arguments in drawn:
            await _answers(rig, tool, orjson.loads(orjson.dumps(arguments)))
        assert rig.host.health()["status"] == "ok"
        assert len(drawn) >= 40
