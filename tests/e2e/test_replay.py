"""Recordings are exact, hold no secret, and play again identically; what was changed is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from mcp.client import Client

from astra_clients.agents import GoldenAgent, NoisyAgent
from astra_clients.agents.base import AgentContext
from astra_clients.control import EpisodeRequest, OpenedEpisode
from astra_clients.mcp_client import McpClient
from astra_clients.replay import Replayed, Replayer
from astra_mcp.bundle import Bundle
from astra_mcp.errors import UsageError
from astra_mcp.host.run import application
from astra_mcp.host.tape import SUFFIX, Recording, TapeFile, read_recording
from astra_mcp.match.models import Exact
from astra_mcp.store import find_bundles, load_bundle, save_json
from astra_mcp.task import Expect
from tests.e2e.conftest import CONTROL_TOKEN, ENVS, Rig, Rigger
from tests.e2e.nasty import nasty_bundle
from tests.e2e.test_commands import run

Json = Any
TASK = "nasty#t1"
GOOD = {"key": "b", "value": 41}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


async def played(*files: Path, bundles: Path = ENVS, allow: bool = False) -> list[Replayed]:
    """The verdicts on these recordings."""
    async with Replayer([bundles]) as again:
        return [await again.replay(file, allow_other_digest=allow) for file in files]


def files_in(folder: Path) -> list[Path]:
    """The recordings of a folder."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def rewrite(path: Path, content: list[dict[str, Json]]) -> None:
    """Write a recording with a chain of its own, as a careful forger would."""
    path.unlink()
    tape = TapeFile(path)
    for line in content:
        tape.append({key: value for key, value in line.items() if key != "check"})


async def identical(folder: Path, bundles: Path) -> Recording:
    """Check that the one recording of a folder plays identically, and give it."""
    (file,) = files_in(folder)
    (done,) = await played(file, bundles=bundles)
    assert (done.verdict, done.reason) == ("identical", "")
    recording = read_recording(file)
    assert done.compared == done.exchanges == len(recording.exchanges) > 0
    return recording


async def solved(rig: Rig, opened: OpenedEpisode) -> None:
    agent = rig.agent(opened)
    await agent.call_tool("put", GOOD)
    await agent.call_tool("count", {})
    await rig.control.submit_answer(opened.episode_id, "ANSWER: 2")
    await rig.control.get_episode(opened.episode_id)


def rechained(path: Path, edit: Callable[[dict[str, Json]], None]) -> None:
    """Edit every line of a recording and chain it anew."""
    content = [orjson.loads(line) for line in lines(path)]
    for line in content:
        edit(line)
    rewrite(path, content)


# ---- what plays identically -----------------------------------------------------------------


async def test_every_example_plays_again_with_faults_and_far_distractors(
    rig_of: Rigger, tmp_path: Path
) -> None:
    async with rig_of(record=tmp_path) as rig:
        for path in find_bundles([ENVS]):
            bundle = load_bundle(path)
            for task in bundle.sealed.tasks:
                golden = GoldenAgent(task)
                noisy = NoisyAgent(task, bundle=bundle, seed=1, rate=0.8)
                for seed, agent in enumerate((golden, noisy)):
                    opened = await rig.open(
                        f"{bundle.ref}#{task.id}",
                        seed=seed,
                        fault_rate=0.3,
                        far_distractors=2 * seed,
                        max_calls=60,
                    )
                    ctx = AgentContext(opened, rig.agent(opened), rig.control)
                    answer = await agent.run(ctx)
                    await rig.control.submit_answer(opened.episode_id, answer or "")
                    view = await rig.control.get_episode(opened.episode_id)
                    assert bool(view.spec["far"]) == bool(seed)
    files = files_in(tmp_path)
    assert len(files) >= 24
    assert {(one.verdict, one.reason) for one in await played(*files)} == {("identical", "")}


async def test_a_stream_of_notifications_plays_again(rig_of: Rigger, tmp_path: Path) -> None:
    """The official client of the 2025 era listens while a turn shows a tool."""
    async with rig_of(record=tmp_path) as rig:
        opened = await rig.open("it-helpdesk#t1")
        heard = anyio.Event()

        async def on_message(message: object) -> None:
            if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
                heard.set()

        async with Client(opened.endpoint, mode="legacy", message_handler=on_message) as client:
            await client.list_tools()
            await rig.control.post_message(opened.episode_id, "That is done.")
            with anyio.fail_after(20):
                await heard.wait()
            await client.list_tools()
            await rig.control.submit_answer(opened.episode_id, "nothing")
    recording = await identical(tmp_path, ENVS / "it-helpdesk")
    (stream,) = [one for one in recording.exchanges if one.method == "GET"]
    assert stream.streamed
    assert b"tools/list_changed" in stream.answer
    assert ("mcp-session-id", session(recording)) in stream.headers


def session(recording: Recording) -> str:
    (name,) = [n for n, (role, _) in recording.header["replaced"].items() if role == "session"]
    return name


async def test_a_listener_of_the_2026_era_plays_again(rig_of: Rigger, tmp_path: Path) -> None:
    async with rig_of(record=tmp_path) as rig:
        opened = await rig.open("it-helpdesk#t1")
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {
            "jsonrpc": "2.0",
            "id": 9,
            "method": "subscriptions/listen",
            "params": {"notifications": {"toolsListChanged": True}, "_meta": meta},
        }
        headers = {
            **HEADERS,
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "subscriptions/listen",
        }
        async with rig.pool.post(opened.endpoint, json=body, headers=headers) as stream:
            await rig.control.post_message(opened.episode_id, "That is done.")
            await rig.control.close_episode(opened.episode_id)
            with anyio.fail_after(20):
                told = await stream.read()
    recording = await identical(tmp_path, ENVS / "it-helpdesk")
    (listener,) = [one for one in recording.exchanges if one.streamed]
    assert (listener.answer, listener.ended) == (told, "host")


async def test_two_servers_and_the_bearer_endpoint_play_again(
    rig_of: Rigger, tmp_path: Path
) -> None:
    async with rig_of(record=tmp_path) as rig:
        opened = await rig.open("touring-theatre#t1")
        for url in opened.endpoints.values():
            assert await McpClient(rig.pool, url).list_tools()
        for era in ("2025", "2026"):
            url = f"{rig.host.url}/agent/mcp"
            async with McpClient(rig.pool, url, token=opened.token, era=era) as agent:
                await agent.list_tools()
        await rig.control.close_episode(opened.episode_id)
    recording = await identical(tmp_path, ENVS / "touring-theatre")
    paths = {one.path for one in recording.exchanges}
    (token,) = [n for n, (role, _) in recording.header["replaced"].items() if role == "token"]
    assert paths >= {
        f"/episodes/{token}/rail/mcp",
        f"/episodes/{token}/programme/mcp",
        "/agent/mcp",
    }


async def test_an_attempt_with_agent_io_plays_again(rig_of: Rigger, tmp_path: Path) -> None:
    async with rig_of(record=tmp_path) as rig:
        opened = await rig.open("restaurant-reservation#t1", agent_io=True)
        agent = rig.agent(opened)
        await agent.call_tool("ask_user", {"text": "How many people will come?"}, "ask-1")
        await agent.call_tool("ask_user", {"text": "How many people will come?"}, "ask-1")
        await agent.call_tool("submit_answer", {"answer": "RS-0000"})
        await rig.control.get_episode(opened.episode_id, reveal=True)
    await identical(tmp_path, ENVS / "restaurant-reservation")


async def test_bad_requests_failing_tools_and_repeats_play_again(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    async with rig_of(nasty, record=folder) as rig:
        opened = await rig.open(TASK)
        agent = rig.agent(opened)
        bodies = [b'{"jsonrpc": "2.0", "id"', b"\xff\xfe not text", b"[]", b"", b"17"]
        for body in bodies:
            async with rig.pool.post(opened.endpoint, data=body, headers=HEADERS) as answer:
                assert answer.status == 400
        async with rig.pool.put(opened.endpoint) as answer:
            assert answer.status == 405
        for tool in (
            "spin",
            "crash",
            "flood",
            "wrong_schema",
            "no_such_tool",
            "refuse_after_write",
        ):
            assert (await agent.call_tool(tool, {})).is_error
        first = await agent.call_tool("put", GOOD, "call-1")
        assert await agent.call_tool("put", GOOD, "call-1") == first
        await rig.control.submit_answer(opened.episode_id, "ANSWER: 2", "the-submit")
        await rig.control.submit_answer(opened.episode_id, "ANSWER: 2", "the-submit")
        resource = f"astra://episodes/{opened.episode_id}/trajectory"
        control = McpClient(rig.pool, f"{rig.host.url}/control/mcp", token=CONTROL_TOKEN)
        await control.read_resource(resource)
    recording = await identical(folder, nasty)
    sent = [one.body for one in recording.exchanges]
    assert sent[1 : 1 + len(bodies)] == bodies


async def test_calls_made_at_the_same_time_play_again_one_by_one(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    async with rig_of(nasty, record=folder) as rig:
        opened = await rig.open(TASK, seed=3, fault_rate=0.4, max_calls=20)
        agent = rig.agent(opened)
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                args = {"key": f"k{number % 5}", "value": number}
                tasks.start_soon(agent.call_tool, "put", args, f"call-{number}")
        await rig.control.submit_answer(opened.episode_id, "ANSWER: 2")
        view = await rig.control.get_episode(opened.episode_id)
    failures = {(call["failure"] or {}).get("code") for call in view.record["calls"]}
    assert len(failures) >= 3
    assert len((await identical(folder, nasty)).exchanges) == 15


async def test_an_episode_that_outlives_its_host_is_one_recording(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder, journal = tmp_path / "records", tmp_path / "journal"
    async with rig_of(nasty, journal=journal, record=folder) as rig:
        opened = await rig.open(TASK)
        await rig.agent(opened).call_tool("put", GOOD)
    (file,) = files_in(folder)
    file.write_bytes(file.read_bytes() + b'{"kind": "exchange", "pla')
    async with rig_of(nasty, journal=journal, record=folder) as rig:
        agent = McpClient(rig.pool, f"{rig.host.url}/episodes/{opened.token}/mcp")
        await agent.call_tool("count", {})
        await rig.control.submit_answer(opened.episode_id, "ANSWER: 2")
    recording = await identical(folder, nasty)
    assert len(recording.exchanges) == 4
    assert opened.token.encode() not in file.read_bytes()


async def test_recordings_that_share_a_request_id_are_told_apart(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        async with rig_of(nasty, record=tmp_path / name) as rig:
            request = EpisodeRequest(task=TASK, max_calls=5 + len(name))
            await solved(rig, await rig.control.open_episode(request, "the-same"))
    files = [*files_in(tmp_path / "one"), *files_in(tmp_path / "two")]
    done = await played(*files, files[0], bundles=nasty)
    assert [one.verdict for one in done] == ["identical"] * 3


async def test_a_submission_that_is_asked_for_again_is_part_of_the_recording(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    async with rig_of(nasty, record=folder) as rig:
        opened = await rig.open(TASK, agent_io=True)
        agent = rig.agent(opened)
        first = await agent.call_tool("submit_answer", {"answer": "2"}, "end-1")
        assert await agent.call_tool("submit_answer", {"answer": "2"}, "end-1") == first
    assert len((await identical(folder, nasty)).exchanges) == 3


# ---- what a file holds ----------------------------------------------------------------------


async def test_a_recording_holds_no_secret_and_is_private(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    async with rig_of(nasty, record=folder) as rig:
        opened, other = await rig.open(TASK), await rig.open(TASK)
        agent = McpClient(rig.pool, f"{rig.host.url}/agent/mcp", token=opened.token)
        # an agent that gives away what it should not
        await agent.call_tool("put", {"key": f"{opened.token[:38]}", "value": 1})
        await agent.call_tool(opened.token, {"key": opened.token})
        await rig.control.post_message(opened.episode_id, f"My token is {opened.token}.")
        refused = McpClient(rig.pool, opened.endpoint, token=other.token)
        with pytest.raises(Exception, match="token"):
            await refused.list_tools()
        await rig.control.submit_answer(opened.episode_id, opened.token)
        await rig.control.get_episode(opened.episode_id)
    file = folder / f"{opened.episode_id}{SUFFIX}"
    raw = file.read_bytes()
    for secret in (opened.token, other.token, CONTROL_TOKEN):
        assert secret.encode() not in raw
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o077 == 0
    assert opened.canary.encode() in raw.splitlines()[0]
    (done,) = await played(file, bundles=nasty)
    assert done.verdict == "identical"


async def test_what_is_no_episodes_is_not_recorded(
    rig_of: Rigger, nasty: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    async with rig_of(nasty, record=folder) as rig:
        opened = await rig.open(TASK)
        await rig.control.list_tasks()
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "post_message",
                "arguments": {"episode_id": opened.episode_id, "text": "x", "request_id": "r"},
            },
        }
        for token in ("wrong", opened.token):
            headers = {**HEADERS, "authorization": f"Bearer {token}"}
            url = f"{rig.host.url}/control/mcp"
            async with rig.pool.post(url, json=body, headers=headers) as answer:
                assert answer.status == 401
        async with rig.pool.post(f"{rig.host.url}/play/nasty") as answer:
            url = orjson.loads(await answer.read())["url"]
        await McpClient(rig.pool, url).call_tool("count", {})
    (file,) = files_in(folder)
    assert len(read_recording(file).exchanges) == 1


async def test_a_host_that_cannot_write_its_recordings_goes_on_and_says_so(
    rig_of: Rigger,
    nasty: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "records"

    def full(self: TapeFile, line: dict[str, Json]) -> None:
        raise OSError(28, "No space left on device")

    async with rig_of(nasty, record=folder) as rig:
        opened = await rig.open(TASK)
        with monkeypatch.context() as patched:
            patched.setattr(TapeFile, "append", full)
            await rig.agent(opened).call_tool("put", GOOD)
        await solved(rig, await rig.open(TASK))
        await rig.agent(opened).call_tool("count", {})
    assert "No space left on device" in caplog.text
    lengths = sorted(len(read_recording(file).exchanges) for file in files_in(folder))
    assert lengths == [1, 5], "nothing is written after a gap; other episodes are not concerned"


# ---- what is noticed ------------------------------------------------------------------------


@pytest.fixture
async def recorded(rig_of: Rigger, nasty: Path, tmp_path: Path) -> Path:
    """A whole recording of the nasty bundle's task."""
    folder = tmp_path / "records"
    async with rig_of(nasty, record=folder) as rig:
        await solved(rig, await rig.open(TASK))
    (file,) = files_in(folder)
    return file


def damaged(path: Path, damage: str) -> None:
    """Do something to the third line."""
    found = lines(path)
    if damage == "edit":
        found[2] = found[2].replace(b"41", b"42")
    elif damage == "drop":
        del found[2]
    else:
        found[2], found[3] = found[3], found[2]
    path.write_bytes(b"".join(found))


@pytest.mark.parametrize("damage", ["edit", "drop", "swap"])
async def test_a_changed_file_is_damaged(recorded: Path, nasty: Path, damage: str) -> None:
    damaged(recorded, damage)
    (done,) = await played(recorded, bundles=nasty)
    assert done.verdict == "damaged"
    assert "line 3" in done.reason


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('\\"count\\":2', '\\"count\\":3', "body"),
        ('"status":200', '"status":201', "status"),
        ('"content-type","application/json"]],"parts"', '"content-type","text/plain"]],"parts"',
         "headers"),
        ('\\"value\\":41', '\\"value\\":43', "body"),
        ('\\"f1\\":1.0', '\\"f1\\":0.5', "body"),
        ('\\"state_hash\\":\\"', '\\"state_hash\\":\\"0', "body"),
    ],
)  # fmt: skip
async def test_a_forged_recording_does_not_play_identically(
    recorded: Path, nasty: Path, old: str, new: str, what: str
) -> None:
    hits = 0

    def edit(line: dict[str, Json]) -> None:
        nonlocal hits
        if line["kind"] == "exchange":
            text = orjson.dumps(line).decode()
            hits += old in text
            line.update(orjson.loads(text.replace(old, new)))

    rechained(recorded, edit)
    assert hits
    (done,) = await played(recorded, bundles=nasty)
    assert done.verdict == "different"
    assert done.differences[0].what == what
    assert done.differences[0].recorded != done.differences[0].now


async def test_measured_times_are_the_only_numbers_overlooked(recorded: Path, nasty: Path) -> None:
    def edit(line: dict[str, Json]) -> None:
        if line["kind"] == "exchange":
            text = orjson.dumps(line).decode()
            line.update(orjson.loads(text.replace('\\"idle_s\\":600.0', '\\"idle_s\\":1.5')))

    rechained(recorded, edit)
    (done,) = await played(recorded, bundles=nasty)
    assert done.verdict == "identical"


async def test_another_bundle_is_refused_until_it_is_allowed(
    recorded: Path, nasty: Path, tmp_path: Path
) -> None:
    changed = nasty_bundle(version="1.1.0")
    changed["state"]["items"]["c"] = {"id": "c", "value": 1}
    task = changed["sealed"]["tasks"][0]
    for expect in (task["answer"], task["subtasks"][1]["expect"]):
        expect["value"] = 3
    task["answer"].update(accept=["3"], reject=["2"])
    other = tmp_path / "other.json"
    other.write_bytes(orjson.dumps(changed))
    (done,) = await played(recorded, bundles=other)
    assert done.verdict == "refused"
    assert "digest differs" in done.reason
    (done,) = await played(recorded, bundles=other, allow=True)
    assert (done.verdict, done.other_digest) == ("different", True)
    first = done.differences[0]
    assert first.request == "POST tools/call put"
    assert '"count\\":2' in first.recorded
    assert '"count\\":3' in first.now


async def test_other_far_distractors_are_named(rig_of: Rigger, tmp_path: Path) -> None:
    async with rig_of(record=tmp_path) as rig:
        opened = await rig.open("library-pickup#t1", far_distractors=3)
        await rig.control.close_episode(opened.episode_id)
    (file,) = files_in(tmp_path)
    far = {ref.partition("@")[0] for ref in read_recording(file).header["far"]}
    with pytest.raises(UsageError, match="no bundle"):
        await played(file, bundles=ENVS / "library-pickup")
    spare = next(path for path in find_bundles([ENVS]) if path.name not in far | {"library-pickup"})
    paths = [path for path in find_bundles([ENVS]) if path != spare]
    async with Replayer(paths) as again:
        done = await again.replay(file)
    assert done.verdict == "different"
    assert done.differences[0].what == "far distractors"


async def test_a_recording_without_its_beginning_is_incomplete(recorded: Path, nasty: Path) -> None:
    header, _, *rest = [orjson.loads(line) for line in lines(recorded)]
    rewrite(recorded, [header, *rest])
    (done,) = await played(recorded, bundles=nasty)
    assert done.verdict == "incomplete"


def test_the_chain_is_what_the_page_says(tmp_path: Path) -> None:
    """docs/replay.md tells how to verify a file without this project."""
    path = tmp_path / f"x{SUFFIX}"
    tape = TapeFile(path)
    tape.append({"a": 1})
    tape.append({"b": 2})
    first, second = path.read_bytes().splitlines()
    one = hashlib.sha256(b'{"a":1}').hexdigest()
    two = hashlib.sha256(one.encode() + b'{"b":2}').hexdigest()
    assert first == b'{"a":1,"check":"%b"}' % one.encode()
    assert second == b'{"b":2,"check":"%b"}' % two.encode()


async def test_a_host_that_does_not_record_has_no_recorder(rig_of: Rigger, nasty: Path) -> None:
    async with rig_of(nasty) as rig:
        assert application(rig.host, CONTROL_TOKEN) is rig.host.router


# ---- the commands ---------------------------------------------------------------------------


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """docs/replay.md, line by line."""
    records, out, newer = tmp_path / "recordings", tmp_path / "r.jsonl", tmp_path / "new.jsonl"
    bundle = ENVS / "library-pickup"
    run(
        "collect", bundle, "--agent", "golden", "--agent", "null", "--unaudited",
        "--record", records, "--out", out,
    )  # fmt: skip
    files = sorted(records.iterdir())
    assert len(files) == 2
    said = run("replay", records, "--bundles", bundle).stdout
    assert said.count("identical") == 2
    found = orjson.loads(run("replay", *files, "--bundles", bundle, "--json").stdout)
    assert [one["verdict"] for one in found] == ["identical"] * 2
    assert [one["file"] for one in found] == [str(file) for file in files]

    changed = edited_copy(bundle, tmp_path)
    assert "digest differs" in run("replay", files[0], "--bundles", changed, code=1).stdout
    said = run(
        "replay", *files, "--bundles", changed, "--allow-other-digest", code=1
    ).stdout  # fmt: skip
    assert "first difference" in said
    run("replay", out, "--bundles", bundle, code=2)
    run("replay", tmp_path / "nothing", "--bundles", bundle, code=2)
    run("replay", files[0], code=2)

    done = run("regrade", out, "--bundles", changed, "--out", newer)
    assert done.stdout.strip() == str(newer)
    assert "library-pickup@1.0.0#t1" in done.stderr
    rewards = {r["agent"]: r["reward"]["value"] for r in map(orjson.loads, lines(newer))}
    assert rewards["null"] == 0.0
    assert 0.0 < rewards["golden"] < 1.0
    assert "already" in run("regrade", out, "--bundles", changed, "--out", newer, code=2).stderr
    other = ("--bundles", ENVS / "fleet-service", "--out", newer, "--overwrite", "--json")
    summary = orjson.loads(run("regrade", out, *other, code=1).stdout)
    assert summary["lost"] == 2
    assert {r["reward"]["value"] for r in map(orjson.loads, lines(newer))} == {None}


def edited_copy(folder: Path, tmp_path: Path) -> Path:
    """The bundle with an answer that no agent gives."""
    bundle = load_bundle(folder)
    task = bundle.sealed.tasks[0]
    answer = Expect(value="never", match=Exact(kind="exact"))
    tasks = [task.model_copy(update={"answer": answer}), *bundle.sealed.tasks[1:]]
    sealed = bundle.sealed.model_copy(update={"tasks": tasks})
    path = tmp_path / "changed.json"
    save_json(Bundle.model_validate(bundle.model_dump() | {"sealed": sealed.model_dump()}), path)
    return path


def test_collect_with_another_host_cannot_record(tmp_path: Path) -> None:
    done = run(
        "collect", ENVS / "library-pickup", "--agent", "null", "--url", "http://127.0.0.1:1/x",
        "--record", tmp_path / "r", "--out", tmp_path / "o", code=2,
    )  # fmt: skip
    assert "astra serve --record" in done.stderr


@pytest.mark.parametrize("path", ["@127.0.0.1:9/secret", "//127.0.0.1:9/x", "http://a/x"])
async def test_a_recording_cannot_send_the_hosts_token_elsewhere(
    recorded: Path, nasty: Path, path: str
) -> None:
    def edit(line: dict[str, Json]) -> None:
        if line["kind"] == "exchange":
            line["request"]["path"] = path

    rechained(recorded, edit)
    (done,) = await played(recorded, bundles=nasty)
    assert done.verdict in ("incomplete", "damaged", "different")


@pytest.mark.parametrize("key", ["far", "task", "canary", "replaced"])
async def test_a_header_of_another_form_is_damage_and_the_next_file_is_judged(
    recorded: Path, nasty: Path, tmp_path: Path, key: str
) -> None:
    good = tmp_path / "good.rec.jsonl"
    good.write_bytes(recorded.read_bytes())

    def edit(line: dict[str, Json]) -> None:
        if key in line:
            line[key] = None

    rechained(recorded, edit)
    bad, fine = await played(recorded, good, bundles=nasty)
    assert bad.verdict == "damaged"
    assert fine.verdict == "identical"


async def test_a_recording_that_was_cut_short_says_so(recorded: Path, nasty: Path) -> None:
    whole = recorded.read_bytes().splitlines(keepends=True)
    end = next(i for i, line in enumerate(whole) if b"submit_answer" in line)
    recorded.write_bytes(b"".join(whole[:end]))
    (done,) = await played(recorded, bundles=nasty)
    assert done.verdict == "incomplete"
    assert "does not reach the end" in done.reason
    recorded.write_bytes(b"".join(whole)[:-20])
    (done,) = await played(recorded, bundles=nasty)
    assert done.verdict == "incomplete"
