"""What a worker may say, byte for byte; everything else is a breach."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra_mcp.errors import CRASH, TIMEOUT, ToolFailure
from astra_mcp.sandbox import Reply, wire
from astra_mcp.sandbox.channel import Line, LineBreach
from astra_mcp.sandbox.reply import epitaph, read_reply


def _read(body: bytes, writes: bool = True) -> Reply:
    return read_reply(body, writes=writes, tables={"t"}, output_bytes=200)


def test_a_healthy_answer_is_read() -> None:
    assert _read(b'{"r":{"x":1},"c":{}}', writes=False) == Reply(result={"x": 1})
    assert _read(b'{"r":{},"c":{}}') == Reply(result={}, changes={})
    changes = {"t": {"a": {"x": 1}, "b": None}}
    assert _read(json.dumps({"r": {}, "c": changes}).encode()) == Reply({}, None, changes)
    assert _read(b'{"e":["gone","it is"]}') == Reply(failure=ToolFailure("gone", "it is"))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"nonsense", b"[]", b"1", b"null", b"{}", b'{"r":{}}', b'{"c":{}}', b'{"r":1,"c":{}}',
        b'{"r":{},"c":{},"x":1}', b'{"r":{},"c":{},"e":["a","b"]}', b'{"r":{},"c":[]}',
        b'{"r":{},"c":{"unknown":{"a":{}}}}', b'{"r":{},"c":{"t":{}}}', b'{"r":{},"c":{"t":[]}}',
        b'{"r":{},"c":{"t":{"a":1}}}', b'{"r":{},"c":{"t":null}}', b'{"e":"a"}', b'{"e":["a"]}',
        b'{"e":["a",1]}', b'{"e":["","b"]}', b'{"e":[null,"b"]}', b'{"e":["a","b","c"]}',
        b'{"r":{"x":NaN},"c":{}}', b'{"r":{"x":"\xff"},"c":{}}', b'{"r":{"x":"\\ud800"},"c":{}}',
        json.dumps({"e": ["c" * 65, "m"]}).encode(), json.dumps({"e": ["c", "m" * 501]}).encode(),
        json.dumps({"r": {"x": "y" * 300}, "c": {}}).encode(),
        json.dumps({"r": {"x": "y" * 300}, "c": {"t": {"a": {}}}}).encode(),
        b'{"r":{"x":' + b"[" * 100 + b"]" * 100 + b'},"c":{}}',
        b'{"r":{},"c":{"t":{"a":{"x":' + b"[" * 100 + b"]" * 100 + b"}}}}",
        b'{"r":{"x":' + b"[" * 5000 + b"]" * 5000 + b'},"c":{}}',
    ],
)  # fmt: skip
def test_anything_else_is_a_breach(body: bytes) -> None:
    with pytest.raises(LineBreach):
        _read(body)


def test_a_read_tool_reports_no_changes() -> None:
    with pytest.raises(LineBreach):
        _read(b'{"r":{},"c":{"t":{"a":{}}}}', writes=False)


@given(st.binary(max_size=60) | st.recursive(st.none() | st.text(), st.lists).map(
    lambda value: json.dumps({"r": value, "c": value}).encode()
))  # fmt: skip
def test_no_bytes_raise_anything_but_a_breach(body: bytes) -> None:
    try:
        reply = _read(body)
    except LineBreach:
        return
    assert reply.result is not None or reply.failure is not None


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (None, None),
        (signal.SIGKILL, None),
        (signal.SIGTERM, None),
        (signal.SIGXCPU, None),
        (signal.SIGVTALRM, TIMEOUT),
        (signal.SIGPROF, TIMEOUT),
        (signal.SIGSEGV, CRASH),
        (signal.SIGSYS, CRASH),
        (signal.SIGSEGV | 0x80, CRASH),
        (3 << 8, CRASH),
        (0, CRASH),
    ],
)
def test_what_a_death_means(status: int | None, code: str | None) -> None:
    reply = epitaph(status, call_seconds=1.0)
    if code is None:
        assert reply is None
    else:
        assert reply is not None
        assert reply.failure is not None
        assert (reply.failure.code, reply.worker_alive) == (code, False)


def test_status_words_are_those_of_this_system() -> None:
    assert os.WIFSIGNALED(signal.SIGKILL)
    assert os.WTERMSIG(signal.SIGSEGV | 0x80) == signal.SIGSEGV
    assert not os.WIFSIGNALED(3 << 8)


# ---- strict JSON -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"a": [1, 2.5, None, True, {"b": "c"}]}, None),
        ({"a": (1, 2)}, None),
        ({"a": 2**53 - 1}, None),
        ({"a": 2**53}, "integer"),
        ({"a": [-(2**53)]}, "integer"),
        ({1: 2}, "key"),
        ({"a": [{None: 1}]}, "key"),
        ({"a": [{("x",): 1}]}, "key"),
    ],
)
def test_what_is_strict_json(value: Any, fault: str | None) -> None:
    found = wire.json_fault(value)
    assert found is None if fault is None else fault in (found or "")


def test_depth_is_bounded_alike_on_both_sides() -> None:
    value: Any = {}
    for _ in range(wire.MAX_DEPTH - 1):
        value = {"in": value}
    assert wire.json_fault(value) is None
    assert not wire.too_deep(value)
    value = {"in": {"in": value}}
    assert wire.json_fault(value) is not None
    assert wire.too_deep({"in": value})


# ---- the line --------------------------------------------------------------------------------


class _Wire:
    """A transport that remembers."""

    def __init__(self) -> None:
        self.sent = b""
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.aborted = True


def _line() -> tuple[Line, _Wire]:
    line, transport = Line(100), _Wire()
    line._transport = transport  # type: ignore[assignment]
    line.harden()
    return line, transport


async def test_an_answer_is_found_however_it_is_cut() -> None:
    line, transport = _line()
    answer = line.request(b"question")
    _, tag = wire.HEADER.unpack_from(transport.sent)
    for byte in wire.frame(tag, b"answer"):
        line.data_received(bytes([byte]))
    assert await answer == b"answer"
    assert not transport.aborted


@pytest.mark.parametrize("extra", [b"", b"x"])
async def test_only_the_awaited_answer_may_come(extra: bytes) -> None:
    line, transport = _line()
    line.data_received(b"unasked")
    assert transport.aborted
    line, transport = _line()
    answer = line.request(b"question")
    _, tag = wire.HEADER.unpack_from(transport.sent)
    wrong = bytes(8) if not extra else tag
    line.data_received(wire.frame(wrong, b"answer") + extra)
    with pytest.raises(LineBreach):
        await answer
    assert transport.aborted
    with pytest.raises(LineBreach):
        line.request(b"again")


async def test_a_frame_beyond_the_limit_is_not_waited_for() -> None:
    line, transport = _line()
    answer = line.request(b"question")
    _, tag = wire.HEADER.unpack_from(transport.sent)
    line.data_received(wire.HEADER.pack(101, tag))
    with pytest.raises(LineBreach):
        await answer


async def test_what_lies_there_when_the_line_is_hardened_is_a_breach() -> None:
    line, transport = Line(100), _Wire()
    line._transport = transport  # type: ignore[assignment]
    line.data_received(wire.frame(wire.NO_TAG, b"ready") + b"more")
    assert await line.expect() == b"ready"
    assert not transport.aborted
    line.harden()
    assert transport.aborted


async def test_only_a_fork_server_may_answer_late() -> None:
    late, wanted = wire.frame(b"12345678", b"late"), wire.frame(wire.NO_TAG, b"wanted")
    line = Line(100, stale_ok=True)
    line.data_received(late + wanted)
    assert await line.expect() == b"wanted"
    line = Line(100)
    line.data_received(late + wanted)
    with pytest.raises(LineBreach):
        await line.expect()


async def test_every_request_has_its_own_tag() -> None:
    line, transport = _line()
    tags = set()
    for _ in range(50):
        transport.sent = b""
        answer = line.request(b"q")
        _, tag = wire.HEADER.unpack_from(transport.sent)
        line.data_received(wire.frame(tag, b"a"))
        await answer
        tags.add(tag)
    assert len(tags) == 50
