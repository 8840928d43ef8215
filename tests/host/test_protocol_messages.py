"""Messages as pure functions: no input makes them fail in a way that is not an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra_mcp.host.http import Security, accepts, bearer_token, is_json_type
from astra_mcp.host.protocol import (
    Notification,
    Request,
    Response,
    RpcError,
    check_modern,
    era_of,
    error_bytes,
    event,
    parse,
    progress_params,
    result_bytes,
)
from astra_mcp.host.service import ToolListing, ToolResult
from astra_mcp.host.wire import encode

Json = Any
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
WORDS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"])
MESSAGES = st.dictionaries(
    WORDS, JSON | st.sampled_from(["2.0", "ping", "tools/call", {}, {"_meta": {}}]), max_size=6
)


def outcome(body: bytes) -> object:
    """A parsed message, or the refusal."""
    try:
        return parse(body)
    except RpcError as error:
        return error


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused_with_400(body: bytes) -> None:
    found = outcome(body)
    assert isinstance(found, Request | Notification | Response) or found.http_status("2025") == 400  # type: ignore[attr-defined]


@given(MESSAGES)
def test_any_object_is_a_message_or_refused_and_keeps_its_id(message: dict[str, Json]) -> None:
    found = outcome(json.dumps(message).encode())
    if isinstance(found, Request):
        assert type(found.id) in (int, str)
        assert json.loads(result_bytes(found.id, {}))["id"] == message["id"]
        assert found.method == message["method"]
    elif isinstance(found, Notification):
        assert "id" not in message
    elif not isinstance(found, Response):
        assert isinstance(found, RpcError)
        assert found.code == -32600


@given(
    st.dictionaries(st.sampled_from(["_meta", "name", "uri", "x"]), JSON) | st.none(),
    st.dictionaries(
        st.sampled_from([b"mcp-method", b"mcp-name", b"mcp-protocol-version"]),
        st.binary(max_size=12) | st.sampled_from([b"2026-07-28", b"tools/call", b"=?base64?!?="]),
    ),
)
def test_any_envelope_is_accepted_or_refused(
    params: dict[str, Json] | None, headers: dict[bytes, bytes]
) -> None:
    request = Request(1, "tools/call", params)
    with pytest.raises(RpcError) as refused:  # a random envelope is never a whole one
        check_modern(request, headers, list(headers.items()))
    assert refused.value.http_status("2026") == 400
    assert json.loads(error_bytes(1, refused.value))["error"]["message"]


@given(JSON)
def test_encoded_json_decodes_to_the_same(value: Json) -> None:
    assert json.loads(encode(value)) == value


@pytest.mark.parametrize("value", ["\ud800", {"a": "\udfff"}, {"\ud800": 1}])
def test_half_a_surrogate_pair_is_no_json(value: Json) -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        encode(value)


@given(JSON)
def test_an_event_is_one_line_of_data_whatever_the_text_holds(value: Json) -> None:
    frame = event(encode(value))
    assert frame.count(b"\n") == 3
    assert frame.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("header", "era"),
    [
        (None, "2025"),
        (b"2024-11-05", "2025"),
        (b"2025-11-25", "2025"),
        (b"2026-07-28", "2026"),
        (b"2099-01-01", "2026"),
        (b"", "2026"),
        (b"\xff", "2026"),
    ],
)
def test_only_known_handshake_revisions_are_of_the_older_era(
    header: bytes | None, era: str
) -> None:
    assert era_of(header) == era


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_progress_is_finite(number: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        progress_params("p", number, None, None)
    with pytest.raises(ValueError, match="finite"):
        progress_params("p", 1, number, None)


# ---- what a service gives ----------------------------------------------------------------------

SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    "specs",
    [
        [{"inputSchema": SCHEMA}],
        [{"name": "", "inputSchema": SCHEMA}],
        [{"name": "a"}],
        [{"name": "a", "inputSchema": {"type": "string"}}],
        [{"name": "a", "inputSchema": SCHEMA, "sealed": 1}],
        [{"name": "a", "inputSchema": SCHEMA}, {"name": "a", "inputSchema": SCHEMA}],
        [{"name": "a", "inputSchema": {**SCHEMA, "properties": {"r": {"x-mcp-header": "R"}}}}],
    ],
)
def test_a_tool_that_no_client_could_use_is_refused(specs: list[dict[str, Json]]) -> None:
    with pytest.raises(ValueError, match=r"(?i)tool"):
        ToolListing(specs)


def test_a_listing_changes_its_revision_exactly_with_its_bytes() -> None:
    one = ToolListing([{"name": "a", "inputSchema": SCHEMA}])
    same = ToolListing([{"name": "a", "inputSchema": SCHEMA, "title": None}])
    other = ToolListing([{"name": "b", "inputSchema": SCHEMA}])
    assert (one.wire, one.revision) == (same.wire, same.revision)
    assert one.revision != other.revision
    assert one.names == {"a"}


def test_a_results_text_is_its_object() -> None:
    result = ToolResult.ok({"a": [1, 2**70]})
    assert json.loads(result.text) == {"a": [1, 2**70]}
    assert ToolResult.error("code", "Message.") == ToolResult(None, "code: Message.", True)


# ---- headers -----------------------------------------------------------------------------------


@given(st.binary(max_size=40))
def test_any_header_value_is_read(value: bytes) -> None:
    accepts(value)
    is_json_type(value)
    bearer_token({b"authorization": value})


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (b"Bearer abc", "abc"),
        (b"bearer  abc ", "abc"),
        (b"Basic abc", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"abc", None),
    ],
)
def test_a_bearer_token_is_found_or_not(value: bytes, token: str | None) -> None:
    assert bearer_token({b"authorization": value}) == token
    assert bearer_token({}) is None


def test_more_hosts_and_origins_can_be_let_in() -> None:
    open_to = Security(hosts=frozenset({"lab.example"}), origins=frozenset({"https://ui.example"}))
    open_to.check({b"host": b"LAB.example:80", b"origin": b"https://ui.example:8443"})
    Security(hosts=frozenset({"*"})).check({b"host": b"anything"})
