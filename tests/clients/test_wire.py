"""Envelopes, headers and event streams, compared with the official SDK where it has the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import decode_header_value, encode_header_value

from astra_clients.wire import SseDecoder, header_value


@given(st.text())
def test_a_header_value_is_the_one_that_the_sdk_writes(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert header_value(text) == encode_header_value(text)
    assert decode_header_value(header_value(text)) == text


@given(
    st.lists(st.text(alphabet='abc {}:"\u00e9\u4e2d', min_size=1), max_size=5),
    st.integers(min_value=1, max_value=7),
    st.sampled_from(["\n", "\r\n"]),
)
def test_events_do_not_depend_on_how_the_stream_is_cut(
    events: list[str], step: int, newline: str
) -> None:
    frames = [f": ping{newline}id: 1{newline}data: {e}{newline}{newline}" for e in events]
    stream = "".join(frames).encode()
    decoder = SseDecoder(10_000)
    found: list[bytes] = []
    for at in range(0, len(stream), step):
        found += decoder.feed(stream[at : at + step])
    assert found == [event.encode() for event in events]


def test_data_of_several_lines_is_joined() -> None:
    assert SseDecoder(100).feed(b"data: a\ndata: b\n\n") == [b"a\nb"]


def test_an_endless_event_is_refused() -> None:
    decoder = SseDecoder(100)
    assert decoder.feed(b"data: 0123456789\n" * 5) == []
    with pytest.raises(ValueError, match="larger than 100"):
        decoder.feed(b"data: 0123456789\n" * 5)
