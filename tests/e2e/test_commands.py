"""The commands as a person runs them: processes, exit codes, resuming, nothing left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.conftest import DATA, ENVS

ASTRA = [sys.executable, "-P", "-m", "astra_mcp.cli"]
CONSOLE = [str(Path(sys.executable).with_name("astra"))]
BUNDLE = str(ENVS / "library-pickup")


def run(*args: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command and check its exit code."""
    done = subprocess.run(
        [*ASTRA, *map(str, args)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == code, done.stderr
    return done


def records(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def processes_mentioning(text: str) -> list[str]:
    """Command lines of live processes that hold `text`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if text in line:
                found.append(line)
    return found


def adopt_orphans() -> None:
    """Make this process the parent of whatever a command leaves behind."""
    assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER


def adopted() -> set[int]:
    """Children of this process that still run."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.add(int(entry.name))
    return found


def test_collect_writes_the_records_that_scripts_rely_on(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    run("collect", BUNDLE, "--agent", "golden", "--agent", "null", "--unaudited", "--out", out)
    golden, null = sorted(records(out), key=lambda record: record["agent"])
    for record in (golden, null):
        assert record["task"] == "library-pickup@1.0.0#t1"
        assert record["digest"].startswith("sha256:")
        assert record["seed"] == 0
        assert record["messages"][0]["role"] == "system"
        assert record["tools"][0]["type"] == "function"
        assert {"value", "f1", "recall", "precision", "outcome", "reason"} <= set(record["reward"])
    assert golden["reward"]["f1"] == 1.0
    assert golden["reward"]["outcome"] is True
    assert [call["tool"] for call in golden["calls"]] == [
        "search_books", "list_copies", "get_branch",
    ]  # fmt: skip
    assert null["reward"]["value"] == 0.0
    assert null["calls"] == []


def test_collect_takes_a_single_file_and_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    run("collect", DATA / "counter.json", "--agent", "golden", "--unaudited", "--out", out)
    assert records(out)[0]["reward"]["f1"] == 1.0


def test_without_unaudited_nothing_is_served_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    done = run("collect", BUNDLE, "--agent", "null", "--out", tmp_path / "r.jsonl", code=2)
    assert "--unaudited" in done.stderr
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["check", "no/such/path"], 1, "does not exist"),
        (["serve", "no/such/path", "--unaudited"], 1, "does not exist"),
        (["collect", BUNDLE, "--agent", "wizard", "--unaudited", "--out", "x"], 2, "wizard"),
        (["serve"], 2, "PATH"),
        (["no-such-command"], 2, "no-such-command"),
    ],
)
def test_a_wrong_command_line_gets_one_sentence_and_its_exit_code(
    args: list[str], code: int, says: str
) -> None:
    done = run(*args, code=code)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_collection_is_resumed_and_another_configuration_is_refused(
    tmp_path: Path,
) -> None:
    out = tmp_path / "r.jsonl"
    args = ["collect", str(ENVS), "--agent", "golden", "--seeds", "8", "--unaudited"]
    command = [*ASTRA, *args, "--out", str(out), "--concurrency", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (out.exists() and out.read_bytes().count(b"\n") >= 5):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = out.read_bytes().count(b"\n")
    run(*args, "--out", out)
    keys = [(r["agent"], r["task"], r["seed"]) for r in records(out)]
    assert len(keys) == len(set(keys))
    assert len(keys) % 8 == 0
    assert len(keys) > before
    assert {r["reward"]["f1"] for r in records(out)} == {1.0}
    other = [arg if arg != "golden" else "null" for arg in args]
    assert "overwrite" in run(*other, "--out", out, code=2).stderr


def test_faults_and_far_distractors_are_in_the_record_and_do_not_hurt_the_golden_agent(
    tmp_path: Path,
) -> None:
    out = tmp_path / "r.jsonl"
    run(
        "collect", ENVS, "--task", "t1", "--agent", "golden", "--seeds", 3, "--unaudited",
        "--fault-rate", 0.3, "--far-distractors", 3, "--max-calls", 60, "--out", out,
    )  # fmt: skip
    found = records(out)
    assert {record["reward"]["f1"] for record in found} == {1.0}
    faults = [call for record in found for call in record["calls"] if call["fault"]]
    assert faults
    assert {call["label"] for call in faults} == {"fault"}
    assert not any(call["counted"] for call in faults)


def test_the_host_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    code = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-m', 'astra_mcp.cli', 'serve', {BUNDLE!r},"
        f" '--unaudited', '--ready-file', {str(ready)!r}, '--until-stdin-closes'],"
        " stdin=subprocess.PIPE)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: ready.exists())
    parent.kill()
    parent.wait()
    wait_for(lambda: not processes_mentioning(str(ready)))


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    """Return once `condition()` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_sigterm_ends_a_host_cleanly_and_its_log_holds_no_token(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        [*ASTRA, "serve", BUNDLE, "--unaudited", "--ready-file", str(ready)],
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: ready.exists())
    info = orjson.loads(ready.read_bytes())
    assert set(info) == {"url", "control_url", "pid", "token_file"}
    assert info["pid"] == process.pid
    token_file = Path(info["token_file"])
    assert token_file.stat().st_mode & 0o077 == 0
    process.terminate()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert token_file.read_text().strip().encode() not in said


def test_doctor_shows_every_layer_and_passes_here() -> None:
    report = orjson.loads(run("doctor", "--json").stdout)
    for layer in ("language", "seccomp", "no_new_privs", "rlimits", "selftest"):
        assert report["layers"][layer] == "on"
    text = run("doctor").stdout
    assert "seccomp" in text
    assert "landlock" in text


def test_new_check_collect_is_the_newcomers_path(tmp_path: Path) -> None:
    mine, out = tmp_path / "my-env", tmp_path / "mine.jsonl"
    run("new", mine)
    run("check", mine)
    run(
        "collect", mine, "--agent", "golden", "--agent", "null", "--agent", "random",
        "--unaudited", "--out", out,
    )  # fmt: skip
    rewards = {r["agent"]: r["reward"]["value"] for r in records(out)}
    assert rewards["golden"] == 1.0
    assert rewards["null"] == 0.0


def test_check_finds_an_edited_table_and_write_puts_it_right(tmp_path: Path) -> None:
    mine = tmp_path / "my-env"
    run("new", mine)
    state = orjson.loads((mine / "state.json").read_bytes())
    table = next(iter(state))
    extra = dict(next(iter(state[table].values())))
    state[table]["zz-extra"] = extra
    (mine / "state.json").write_bytes(orjson.dumps(state))
    assert "digests" in run("check", mine, code=1).stdout
    run("check", "--write", mine)
    run("check", mine)


def test_check_write_works_from_inside_the_bundle(tmp_path: Path) -> None:
    mine = tmp_path / "my-env"
    run("new", mine)
    command = [*ASTRA, "check", "--write", "."]
    done = subprocess.run(command, cwd=mine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run("check", mine)
    assert [path.name for path in tmp_path.iterdir()] == ["my-env"]


def test_demo_ends_with_a_table_trajectories_and_a_report_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    out = tmp_path / "demo"
    adopt_orphans()
    before = adopted()
    done = run("demo", "--out", out, "--seeds", 2)
    assert "library-pickup" in done.stdout
    found = records(out / "trajectories.jsonl")
    by_agent: dict[str, list[float]] = {}
    for record in found:
        by_agent.setdefault(record["agent"], []).append(record["reward"]["f1"])
    assert set(by_agent["golden"]) == {1.0}
    assert set(by_agent["null"]) == {0.0}
    page = (out / "report.html").read_text()
    assert page.count("<svg") >= 2
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "")
    assert processes_mentioning(str(out)) == []
    assert adopted() == before


TRAP = "open({marker!r}, 'w').write('ran')\nraise ImportError\n"


@pytest.mark.parametrize("name", ["orjson", "queue", "pathlib", "astra_servers", "mcp"])
def test_nothing_of_a_bundles_folder_is_imported_outside_the_sandbox(
    tmp_path: Path, name: str
) -> None:
    """Code beside a bundle runs neither in the host of a collection nor by its server.py."""
    mine, marker = tmp_path / "my-env", tmp_path / "marker"
    run("new", mine)
    (mine / f"{name}.py").write_text(TRAP.format(marker=str(marker)))
    args = ["collect", ".", "--agent", "golden", "--unaudited", "--out", str(tmp_path / "r.jsonl")]
    done = subprocess.run([*CONSOLE, *args], cwd=mine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    server = subprocess.run(
        [sys.executable, "server.py"], cwd=mine, input="", capture_output=True, check=False
    )
    assert server.returncode == 0, server.stderr
    assert not marker.exists()
    found = run("check", mine, code=1).stdout
    assert f"{name}.py" in found


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--out", "/dev/null"], 2, "--out"),
        (["--out", "{tmp}"], 2, "--out"),
        (["--out", "{tmp}/r.jsonl", "--url", "zzz"], 2, "--url"),
        (["--out", "{tmp}/r.jsonl", "--url", "http://127.0.0.1:1/control/mcp"], 3, "token"),
        (["--out", "{tmp}/r.jsonl", "--seeds", "0"], 2, "seeds"),
        (["--out", "{tmp}/r.jsonl", "--max-calls", "100000"], 2, "--max-calls"),
        (["--out", "{tmp}/r.jsonl", "--accept-missing-layer", "zzz"], 2, "zzz"),
        (["--out", "{tmp}/r.jsonl", "--task", "nobody#t1"], 2, "nobody#t1"),
        (["--out", "/proc/x.jsonl"], 3, "/proc/x.jsonl"),
    ],
)
def test_a_wrong_option_of_collect_is_named_and_leaves_no_record(
    tmp_path: Path, args: list[str], code: int, says: str
) -> None:
    given = [arg.replace("{tmp}", str(tmp_path)) for arg in args]
    done = run("collect", BUNDLE, "--agent", "null", "--unaudited", *given, code=code)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize(
    "args",
    [["--port", "99999"], ["--idle-s", "0"], ["--max-episodes", "0"], ["--journal", "/dev/null"]],
)
def test_a_wrong_option_of_serve_gets_a_sentence(args: list[str]) -> None:
    command = [*ASTRA, "serve", BUNDLE, "--unaudited", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (2, 3)
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
