"""The output file: appended, resumed after a kill, never mixed with another configuration."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from astra_clients.output import SCHEMA, RecordFile, meta_path, read_records
from astra_mcp.errors import UsageError

Json = Any
CONFIG = {"agents": ["golden"], "seeds": [0]}


def record(seed: int, value: float | None = 1.0) -> dict[str, Json]:
    reward = {"value": value, "reason": "r"}
    key = {"agent": "golden", "task": "b@1#t", "digest": "d", "seed": seed}
    return {"schema": SCHEMA, **key, "reward": reward}


def write(path: Path, *seeds: int, value: float | None = 1.0) -> None:
    with RecordFile(path, CONFIG) as file:
        for seed in seeds:
            file.append(record(seed, value))


def seeds_of(path: Path) -> list[int]:
    return [r["seed"] for r in read_records(path)]


def test_every_line_is_a_record(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "r.jsonl"
    write(out, 0, 1)
    lines = out.read_bytes().splitlines()
    assert [orjson.loads(line) for line in lines] == [record(0), record(1)]


def test_a_second_run_knows_what_is_done_and_appends(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    write(out, 0)
    with RecordFile(out, CONFIG) as file:
        assert file.done == {("golden", "b@1#t", "d", 0)}
        file.append(record(1))
    assert seeds_of(out) == [0, 1]


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    write(out, 0, 1)
    out.write_bytes(out.read_bytes()[:-7])
    assert seeds_of(out) == [0]
    write(out, 2)
    assert seeds_of(out) == [0, 2]


def test_a_broken_line_elsewhere_is_an_error(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    write(out, 0)
    out.write_bytes(b"{oops\n" + out.read_bytes())
    with pytest.raises(UsageError, match="line 1"):
        RecordFile(out, CONFIG)
    with pytest.raises(UsageError, match="line 1"):
        seeds_of(out)


def test_another_configuration_is_refused_unless_overwriting(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    write(out, 0)
    other = {**CONFIG, "seeds": [0, 1]}
    with pytest.raises(UsageError, match="another configuration"):
        RecordFile(out, other)
    assert seeds_of(out) == [0], "a refusal changes nothing"
    with RecordFile(out, other, overwrite=True) as file:
        assert file.done == set()
    assert seeds_of(out) == []


def test_records_without_a_configuration_beside_them_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    write(out, 0)
    meta_path(out).unlink()
    with pytest.raises(UsageError, match="no configuration lies"):
        RecordFile(out, CONFIG)


def test_a_file_in_use_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    with RecordFile(out, CONFIG), pytest.raises(UsageError, match="in use"):
        RecordFile(out, CONFIG)
    write(out, 0)


def test_failed_episodes_are_done_unless_they_shall_be_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    write(out, 0)
    write(out, 1, value=None)
    write(out, 2)
    with RecordFile(out, CONFIG) as file:
        assert {key[3] for key in file.done} == {0, 1, 2}
    with RecordFile(out, CONFIG, retry_failed=True) as file:
        assert {key[3] for key in file.done} == {0, 2}
        with pytest.raises(UsageError, match="in use"):
            RecordFile(out, CONFIG)
        file.append(record(1))
    assert seeds_of(out) == [0, 2, 1]


def test_a_write_that_fails_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "r.jsonl"
    real = os.write

    def full_disk(fd: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "no space")
        return real(fd, data[: len(data) - 10])

    with RecordFile(out, CONFIG) as file:
        file.append(record(0))
        monkeypatch.setattr(os, "write", full_disk)
        with pytest.raises(OSError, match="no space"):
            file.append(record(1))
        monkeypatch.undo()
        file.append(record(2))
    assert seeds_of(out) == [0, 2]


def test_reading_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        list(read_records(tmp_path / "none.jsonl"))
