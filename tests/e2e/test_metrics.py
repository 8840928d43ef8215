"""What /metrics shows and to whom, read with the reference parser; and spans, when asked for."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families

from astra_clients.exchange import new_pool
from astra_clients.mcp_client import McpClient
from astra_mcp.errors import BusyError, UsageError
from astra_mcp.host.exposition import counters, render
from astra_mcp.host.metrics import CallCounts, Histogram, outcome_of
from astra_mcp.host.run import hosting
from astra_mcp.host.tracing import CallSpans, spans_from
from astra_mcp.settings import HostSettings
from tests.e2e.conftest import CONTROL_TOKEN, Rig, Rigger

TASK = "nasty@1.0.0#t1"
GOOD = {"key": "b", "value": 41}
METRICS_TOKEN = "metrics-token-of-the-tests-0123456789"
Answer = tuple[int, bytes, str | None]


async def ask(rig: Rig, token: str | None, path: str = "/metrics") -> Answer:
    """Status, body and content type of a GET."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with rig.pool.get(f"{rig.host.url}{path}", headers=headers) as response:
        return response.status, await response.read(), response.headers.get("content-type")


async def page(rig: Rig) -> str:
    """The metrics as text."""
    status, body, _ = await ask(rig, CONTROL_TOKEN)
    assert status == 200
    return body.decode()


async def metrics(rig: Rig) -> Mapping[str, float]:
    """Every sample as `name{label=value,...}`."""
    return samples(await page(rig))


def samples(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            inside = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            key = f"{sample.name}{{{inside}}}" if inside else sample.name
            assert key not in found, "a series stands there twice"
            found[key] = sample.value
    return found


# ---- who may see them -------------------------------------------------------------------------


async def test_only_the_control_token_opens_the_metrics_and_others_are_told_nothing(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        unknown = await ask(rig, "an-unknown-token")
        assert unknown[0] == 401
        for token in (None, "", opened.token, CONTROL_TOKEN[:-1], opened.episode_id):
            assert await ask(rig, token) == unknown
        assert (await ask(rig, None, f"/episodes/{opened.token}/metrics"))[0] == 404
        status, _, kind = await ask(rig, CONTROL_TOKEN)
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        async with rig.pool.post(
            f"{rig.host.url}/metrics", headers={"authorization": f"Bearer {CONTROL_TOKEN}"}
        ) as response:
            assert response.status == 405


async def test_a_token_for_metrics_opens_them_and_nothing_else(nasty: Path) -> None:
    options = HostSettings(unaudited=True)
    async with (
        hosting((nasty,), options, CONTROL_TOKEN, metrics_token=METRICS_TOKEN) as host,
        new_pool() as pool,
    ):
        for token, path, status in [
            (METRICS_TOKEN, "/metrics", 200),
            (CONTROL_TOKEN, "/metrics", 200),
            (METRICS_TOKEN, "/control/mcp", 401),
            (METRICS_TOKEN, "/agent/mcp", 401),
        ]:
            headers = {"authorization": f"Bearer {token}"}
            async with pool.get(f"{host.url}{path}", headers=headers) as response:
                assert response.status == status, path


async def test_no_line_holds_a_token_a_sealed_value_or_a_word_of_an_agent_or_a_tool(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        await agent.call_tool("word_of_the_agent", {"key": "argument_of_the_agent"})
        await agent.call_tool("put", {"key": "a", "value": 1})  # the tool's own code: conflict
        await agent.call_tool("refuse_after_write", {"key": "argument_of_the_agent"})
        control = McpClient(rig.pool, f"{rig.host.url}/control/mcp", token=CONTROL_TOKEN)
        await control.call_tool("operation_that_is_none", {})
        await rig.control.post_message(opened.episode_id, "message_of_the_agent")
        await rig.control.submit_answer(opened.episode_id, "ANSWER: answer_of_the_agent")
        text = await page(rig)
        bundle = (await rig.host.catalog.load("nasty")).bundle
        for secret in (
            opened.token, CONTROL_TOKEN, opened.episode_id, bundle.sealed.canary, bundle.digest,
            "of_the_agent", "conflict", 'refused"', "operation_that_is_none", "astra-clients",
        ):  # fmt: skip
            assert secret not in text, secret
        seen = samples(text)
        where = "astra_control_operations_total{operation=unknown,outcome=unknown_tool}"
        assert seen[where] == 1


# ---- what they say ----------------------------------------------------------------------------


async def test_calls_are_counted_by_bundle_and_outcome_and_timed(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        agent = rig.agent(await rig.open(TASK))
        for tool, args in [
            ("put", GOOD),
            ("count", {}),
            ("count", {}),
            ("put", {"key": "a", "value": 1}),
            ("put", {}),
            ("crash", {}),
            ("spin", {}),
            ("no_such_tool", {}),
        ]:
            await agent.call_tool(tool, args)
        seen = await metrics(rig)
    expected = {
        "ok": 3, "tool_error": 1, "invalid_arguments": 1, "crash": 1, "timeout": 1,
        "unknown_tool": 1,
    }  # fmt: skip
    for outcome, count in expected.items():
        assert seen[f"astra_tool_calls_total{{outcome={outcome}}}"] == count
        assert seen[f"astra_bundle_tool_calls_total{{bundle=nasty,outcome={outcome}}}"] == count
    assert sum(v for k, v in seen.items() if k.startswith("astra_tool_calls_total{")) == 8
    for name, label in (("astra_tool_call", ""), ("astra_bundle_tool_call", "bundle=nasty")):
        where = f"{{{label}}}" if label else ""
        comma = f"{label}," if label else ""
        assert seen[f"{name}_seconds_count{where}"] == 8
        assert seen[f"{name}_seconds_bucket{{{comma}le=+Inf}}"] == 8
        assert seen[f"{name}_seconds_bucket{{{comma}le=0.2}}"] == 7  # spin takes 0.3 s of CPU
        assert seen[f"{name}_seconds_sum{where}"] > 0.29


async def test_an_injected_fault_is_counted_apart_from_a_real_failure(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        agent = rig.agent(await rig.open(TASK, seed=1, fault_rate=0.9))
        codes = [(await agent.call_tool("count", {})).code for _ in range(8)]
        seen = await metrics(rig)
    faults = [code for code in codes if code in ("timeout", "unavailable")]
    assert faults
    assert seen["astra_tool_calls_total{outcome=injected_fault}"] == len(faults)
    assert "astra_tool_calls_total{outcome=timeout}" not in seen
    assert "astra_tool_calls_total{outcome=unavailable}" not in seen


async def test_plain_worlds_and_plays_are_counted_like_episodes(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig, rig.pool.post(f"{rig.host.url}/play/nasty") as response:
        play = (await response.json())["url"]
        async with (
            McpClient(rig.pool, f"{rig.host.url}/envs/nasty/mcp", era="2025") as session,
            McpClient(rig.pool, play) as other,
        ):
            await session.call_tool("count", {})
            await other.call_tool("count", {})
            seen = await metrics(rig)
    assert seen["astra_bundle_tool_calls_total{bundle=nasty,outcome=ok}"] == 2
    assert seen["astra_sessions_open"] == 1
    assert seen["astra_plays_open"] == 1
    assert seen["astra_episodes_opened_total"] == 0


async def test_every_end_of_an_episode_is_counted_once_and_every_null_reward_by_its_cause(
    rig_of: Rigger, nasty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astra_mcp.sandbox import Worker, WorkerLost

    async def lost(self: Worker, *args: object) -> None:
        raise WorkerLost("The worker is gone.", "Run the call again.")

    async with rig_of(nasty) as rig:
        graded, closed, lapsed, broken, left = [await rig.open(TASK) for _ in range(5)]
        for _ in range(2):
            await rig.control.submit_answer(graded.episode_id, "ANSWER: 2", "the-submit")
        await rig.control.close_episode(closed.episode_id)
        rig.host.episodes.get(lapsed.episode_id).opened -= 10_000
        with monkeypatch.context() as patched:
            patched.setattr(Worker, "call", lost)
            await rig.agent(broken).call_tool("count", {})
        await rig.host.sweep()
        await rig.control.get_episode(left.episode_id)
        seen = await metrics(rig)
    assert seen["astra_episodes_opened_total"] == 5
    assert seen["astra_episodes_open"] == 1
    for status in ("graded", "closed", "expired", "corrupt"):
        assert seen[f"astra_episodes_ended_total{{status={status}}}"] == 1, status
    assert {k: v for k, v in seen.items() if k.startswith("astra_null_rewards")} == {
        "astra_null_rewards_total{reason=closed}": 1,
        "astra_null_rewards_total{reason=expired}": 1,
        "astra_null_rewards_total{reason=sandbox_failed}": 1,
    }
    assert seen["astra_tool_calls_total{outcome=episode}"] == 1
    assert seen["astra_control_operations_total{operation=submit_answer,outcome=ok}"] == 2


async def test_a_restart_counts_what_came_back_and_not_what_had_ended(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    async with rig_of(nasty, journal=journal) as rig:
        whole, torn, done = [await rig.open(TASK) for _ in range(3)]
        for opened in (whole, torn):
            await rig.agent(opened).call_tool("put", GOOD)
        await rig.control.submit_answer(done.episode_id, "ANSWER: 2")
    (file,) = journal.glob(f"*{torn.episode_id}*.jsonl")
    events = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    next(e for e in events if e["event"] == "call")["changes"]["items"]["b"]["value"] = 42
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    async with rig_of(nasty, journal=journal) as rig:
        assert (await rig.control.get_episode(done.episode_id)).status == "graded"
        seen = await metrics(rig)
    assert seen["astra_episodes_opened_total"] == 0
    assert seen["astra_episodes_restored_total"] == 2
    assert seen["astra_episodes_open"] == 1
    assert seen["astra_episodes_ended_total{status=corrupt}"] == 1
    assert seen["astra_episodes_ended_total{status=graded}"] == 0
    assert seen["astra_null_rewards_total{reason=journal_mismatch}"] == 1


async def test_the_queue_for_slots_shows(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty, max_episodes=1, wait_s=0.05) as rig:
        await rig.open(TASK)
        with pytest.raises(BusyError):
            await rig.open(TASK)
        seen = await metrics(rig)
    assert seen["astra_admission_slots"] == seen["astra_admission_taken"] == 1
    assert seen["astra_admission_waiting"] == 0
    assert seen["astra_admission_refused_total"] >= 1
    assert seen["astra_admission_wait_seconds_count"] == 1
    assert seen["astra_control_operations_total{operation=open_episode,outcome=busy}"] >= 1


async def test_processes_memory_descriptors_and_the_loop_show(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig:
        first = await metrics(rig)
        opened = [await rig.open(TASK) for _ in range(3)]
        seen = await metrics(rig)
        with anyio.fail_after(20):
            while not (await metrics(rig))["astra_event_loop_lag_seconds_count"]:
                await anyio.lowlevel.checkpoint()
        for one in opened:
            await rig.control.close_episode(one.episode_id)
        last = await metrics(rig)
    assert (first["astra_sandbox_workers"], first["astra_sandbox_templates"]) == (0, 0)
    assert (seen["astra_sandbox_workers"], seen["astra_sandbox_templates"]) == (3, 1)
    assert last["astra_sandbox_workers"] == 0
    started = "astra_sandbox_workers_started_total"
    assert seen[started] >= first[started] + 3
    assert last[started] == seen[started]
    assert (seen["astra_bundles"], seen["astra_bundles_loaded"]) == (1, 1)
    assert seen["process_resident_memory_bytes"] > 10 << 20
    # zygote, template and three workers, each of them with an interpreter
    more = seen["astra_tree_resident_memory_bytes"] - seen["process_resident_memory_bytes"]
    assert more > 5 * (4 << 20)
    # what is shared is counted once, so it is less
    shared_out = seen["astra_tree_proportional_memory_bytes"]
    assert shared_out < seen["astra_tree_resident_memory_bytes"]
    assert 0 < seen["process_open_fds"] < seen["process_max_fds"]
    assert seen["process_open_fds"] >= first["process_open_fds"] + 3
    assert seen["process_cpu_seconds_total"] > 0


async def test_answers_are_counted_by_class_even_those_to_what_is_no_http(
    rig_of: Rigger, nasty: Path
) -> None:
    async with rig_of(nasty) as rig:
        before = await metrics(rig)
        await ask(rig, None, "/nothing-here")
        await ask(rig, None)
        host, port = rig.host.url.removeprefix("http://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(b"this is no HTTP\r\n\r\n")
            assert b" 400 " in await stream.receive()
        after = await metrics(rig)
    grown = {key: after[key] - before[key] for key in after if "http_responses" in key}
    assert grown == {
        f"astra_http_responses_total{{class={kind}}}": count
        for kind, count in {"1xx": 0, "2xx": 1, "3xx": 0, "4xx": 3, "5xx": 0}.items()
    }


# ---- parts ------------------------------------------------------------------------------------


def test_only_the_bundles_called_last_keep_a_series_and_the_total_forgets_nothing() -> None:
    counts = CallCounts(most=2)
    for key in ("a", "b", "a", "c", "c"):
        counts.add(key, "ok", 0.001)
    assert list(counts.by_key) == ["a", "c"]
    assert counts.dropped == 1
    assert counts.all.outcomes == {"ok": 5}
    counts.add("b", "busy", 0.001)
    assert counts.by_key["b"].outcomes == {"busy": 1}


def test_a_value_equal_to_a_bound_is_within_it() -> None:
    one = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        one.observe(value)
    assert one.counts == [2, 2, 1]
    assert one.total == 7.5


def test_a_code_that_is_not_ours_becomes_one_label() -> None:
    assert outcome_of("") == "ok"
    assert outcome_of("timeout") == "timeout"
    assert outcome_of("journal") == "journal"
    assert outcome_of("anything a tool says") == outcome_of("conflict") == "tool_error"


def test_labels_are_escaped() -> None:
    odd = 'quote " back \\ line \n end'
    text = render([counters("x_total", "Help.", "label", {odd: 3})]).decode()
    (family,) = text_string_to_metric_families(text)
    assert [(s.labels, s.value) for s in family.samples] == [({"label": odd}, 3.0)]


# ---- spans ------------------------------------------------------------------------------------


def words(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_one_span_a_call_and_an_operation_without_any_of_their_data(nasty: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    options = HostSettings(unaudited=True)
    async with (
        hosting((nasty,), options, CONTROL_TOKEN, spans=CallSpans(provider)) as host,
        new_pool() as pool,
    ):
        control = McpClient(pool, f"{host.url}/control/mcp", token=CONTROL_TOKEN)
        opened = await control.call_tool("open_episode", {"task": TASK, "request_id": "one-open"})
        assert opened.structured is not None
        agent = McpClient(pool, opened.structured["endpoint"])
        await agent.call_tool("put", {"key": "argument_of_the_agent", "value": 417})
        await agent.call_tool("put", {"key": "a", "value": 1})
        await agent.call_tool("word_of_the_agent", {})
        spans = exporter.get_finished_spans()
    bundle = {"mcp.method.name": "tools/call", "astra.bundle": "nasty"}
    assert [(span.name, words(span)) for span in spans] == [
        (
            "control open_episode",
            {
                "mcp.method.name": "tools/call",
                "gen_ai.tool.name": "open_episode",
                "astra.outcome": "ok",
                "astra.operation": "open_episode",
            },
        ),
        ("tools/call put", {**bundle, "gen_ai.tool.name": "put", "astra.outcome": "ok"}),
        ("tools/call put", {**bundle, "gen_ai.tool.name": "put", "astra.outcome": "tool_error"}),
        (
            "tools/call unknown",
            {**bundle, "gen_ai.tool.name": "unknown", "astra.outcome": "unknown_tool"},
        ),
    ]
    assert [span.status.status_code for span in spans] == [
        StatusCode.UNSET, StatusCode.UNSET, StatusCode.ERROR, StatusCode.ERROR,
    ]  # fmt: skip
    everything = "".join(span.to_json() for span in spans)
    for secret in ("of_the_agent", "417", "conflict", opened.structured["token"], CONTROL_TOKEN):
        assert secret not in everything
    for span in spans:
        assert span.parent is None
        assert span.start_time is not None
        assert span.end_time is not None
        assert 0 < span.end_time - span.start_time < 60e9
        assert not span.events


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_SERVICE_NAME": "mine"},
        {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_there_are_no_spans_unless_the_environment_names_an_exporter(
    environ: dict[str, str],
) -> None:
    assert spans_from(environ) is None


def test_the_environment_turns_spans_on_or_is_told_what_is_missing() -> None:
    spans = spans_from({"OTEL_TRACES_EXPORTER": "console"})
    assert spans is not None
    spans.close()
    with pytest.raises(UsageError, match="no-such-exporter"):
        spans_from({"OTEL_TRACES_EXPORTER": "no-such-exporter"})


def test_without_the_library_the_host_says_so_and_runs_without_spans(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level(logging.WARNING):
        assert spans_from({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}) is None
    assert "opentelemetry-sdk is not installed" in caplog.text
