"""Whose a request is, read from the request alone; pages of several processes as one."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from astra_mcp.host.pages import merge
from astra_mcp.host.shards import (
    MOST,
    Whose,
    by_episode,
    by_mark,
    by_operation,
    by_request_id,
    id_mark,
    mark,
    share,
)
from astra_mcp.host.tokens import new_token
from astra_mcp.settings import HostSettings


def settings(count: int, shard: int = 0, **more: Any) -> HostSettings:
    return HostSettings(processes=count, shard=shard, **more)


def test_one_process_marks_nothing() -> None:
    assert (mark(settings(1)), id_mark(settings(1))) == ("", "")


@pytest.mark.parametrize("count", [2, 3, MOST])
def test_every_process_is_found_by_what_it_marks(count: int) -> None:
    for shard in range(count):
        mine = settings(count, shard)
        token = new_token(mark(mine))
        assert re.fullmatch(r"[\w-]{44}", token)
        assert by_mark(token, count) == shard
        assert by_episode(f"ep_{id_mark(mine)}{'0' * 22}", count) == shard


@pytest.mark.parametrize("text", ["", "9abc", "é", "~", "."])
def test_what_no_process_marked_is_anybodys(text: str) -> None:
    assert by_mark(text, 2) is Whose.ANYBODY


@pytest.mark.parametrize("key", ["", "ep_", "ep_zz00", "ep_02" + "0" * 22, "xx_00", None, 3, []])
def test_an_id_that_no_process_made_is_anybodys(key: Any) -> None:
    assert by_episode(key, 2) is Whose.ANYBODY


def test_request_ids_are_spread_and_always_go_to_the_same_process() -> None:
    found = Counter(by_request_id(f"r{n}", 4) for n in range(4000))
    assert set(found) == {0, 1, 2, 3}
    assert min(found.values()) > 800
    assert by_request_id("r1", 4) == by_request_id("r1", 4)


def operation(name: str, **arguments: Any) -> bytes:
    params = {"name": name, "arguments": arguments}
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


ZERO, ONE = "ep_00" + "a" * 22, "ep_01" + "a" * 22


@pytest.mark.parametrize(
    ("body", "owner"),
    [
        (operation("submit_answer", episode_id=ONE, answer="x"), 1),
        (operation("get_episode", episode_id=ZERO), 0),
        (operation("open_episode", request_id="r"), by_request_id("r", 2)),
        (operation("open_episode"), Whose.ANYBODY),
        (operation("list_tasks"), Whose.ANYBODY),
        (operation("heartbeat", episode_ids=[ONE, ONE]), 1),
        (operation("heartbeat", episode_ids=[ONE, ZERO]), Whose.HEARTBEAT),
        (operation("heartbeat", episode_ids=[]), Whose.ANYBODY),
        (operation("heartbeat", episode_ids=7), Whose.ANYBODY),
        (operation("heartbeat", episode_ids=[ONE, 7]), Whose.ANYBODY),
        (operation("heartbeat", episode_ids={ONE: 1, ZERO: 1}), Whose.ANYBODY),
        (operation("heartbeat", episode_ids=[[]]), Whose.ANYBODY),
        (
            b'{"method": "resources/read", "params": {"uri": "astra://episodes/%b/grade"}}'
            % ONE.encode(),
            1,
        ),
        (b'{"method": "resources/read", "params": {"uri": "astra://bundles/x"}}', Whose.ANYBODY),
        (b'{"method": "resources/read", "params": {"uri": 5}}', Whose.ANYBODY),
        (b'{"method": "notifications/cancelled", "params": {"requestId": 1}}', Whose.CANCEL),
        (b'{"method": "tools/list"}', Whose.ANYBODY),
        (b'{"method": "tools/call", "params": []}', Whose.ANYBODY),
        (b"[1]", Whose.ANYBODY),
        (b"no json", Whose.ANYBODY),
        (b"", Whose.ANYBODY),
    ],
)
def test_a_message_to_the_control_plane_names_its_process(body: bytes, owner: Any) -> None:
    assert by_operation(body, 2) == owner


def test_each_process_gets_an_equal_part_and_a_journal_of_its_own(tmp_path: Any) -> None:
    part = share(settings(2, max_episodes=101, keep_finished=0, journal=tmp_path), 1)
    assert (part.shard, part.max_episodes, part.keep_finished) == (1, 51, 0)
    assert part.journal == tmp_path / "shard-1"
    assert share(settings(2), 0).journal is None


def test_merged_pages_keep_every_sample_and_say_whose_it_is() -> None:
    page = (
        "# HELP a_total What a is.\n# TYPE a_total counter\n"
        'a_total {n}\n# HELP h H.\n# TYPE h histogram\nh_bucket{{le="1.0"}} {n}\n'
        'h_bucket{{le="+Inf"}} {n}\nh_sum 0.5\nh_count {n}\n'
        '# HELP b B.\n# TYPE b gauge\nb{{name="a {{b}} c"}} 1\n'
    )
    text = merge("shard", {"0": page.format(n=1), "1": page.format(n=2)}).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {"a", "h", "b"}
    assert [(s.labels, s.value) for s in families["a"].samples] == [
        ({"shard": "0"}, 1.0),
        ({"shard": "1"}, 2.0),
    ]
    assert len(families["h"].samples) == 8
    assert families["b"].samples[1].labels == {"shard": "1", "name": "a {b} c"}
    assert text.count("# TYPE") == 3
    assert merge("shard", {}) == b"\n" or merge("shard", {}) == b""
