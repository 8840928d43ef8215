"""The suite's command line: one run against one URL, with a list of what may fail.

The judgement is the suite's own (`--expected-failures`): it ends with 0 when exactly what is listed
fails. This module makes that list, starts the run, and reads what was found.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from tests.support.installed import clean_env, node, npm_folder

Json = Any
HERE: Final = Path(__file__).resolve().parent
RUN_S: Final = 120.0
STABLE, ALPHA = "conformance-stable", "conformance-alpha"


@dataclass(frozen=True)
class Leg:
    """One run of a suite.

    Attributes:
        path: Where on the fixture.
        suite: STABLE or ALPHA, names of the npm folder.
        revision: Protocol revision that the alpha is told to speak; None for the stable one.
        scenarios: How many the suite has for it: a run of fewer has shown nothing.
        sections: Parts of expected_failures.toml that hold here.
    """

    path: str
    suite: str
    revision: str | None
    scenarios: int
    sections: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As the table in docs/protocol.md has it: `/both/mcp 2025-11-25 alpha`."""
        suite = self.suite.removeprefix("conformance-")
        return f"/{self.path} {self.revision or '2025-11-25'} {suite}"


@dataclass(frozen=True)
class Found:
    """What a run found.

    Attributes:
        code: The suite's exit code.
        text: What it printed, without colours.
        scenarios: Scenarios that ran.
        clean: Scenarios without a failing check or a warning, which the suite counts as failing.
        checks: How many checks have each status.
    """

    code: int
    text: str
    scenarios: int
    clean: int
    checks: Counter[str]

    @property
    def row(self) -> str:
        """The figures of a row in docs/protocol.md."""
        passed = self.checks["SUCCESS"]
        failed = self.checks["FAILURE"] + self.checks["WARNING"]
        return f"{self.clean} of {self.scenarios} | {passed} | {failed}"


def expected(leg: Leg) -> Mapping[str, str]:
    """What may fail there, with reasons."""
    table = tomllib.loads((HERE / "expected_failures.toml").read_text("utf-8"))
    return {check: why for section in leg.sections for check, why in table[section].items()}


def baseline(leg: Leg) -> str:
    """The same as the suite reads it."""
    entries = list(expected(leg))
    if leg.suite == STABLE:
        entries = list(dict.fromkeys(entry.split(":")[0] for entry in entries))
    return json.dumps({"server": entries})  # JSON is YAML


async def run_leg(leg: Leg, base_url: str, folder: Path, results_in: str = "results") -> Found:
    """Run a suite to its end."""
    listed, results = folder / "expected.yaml", folder / results_in
    listed.write_text(baseline(leg), "utf-8")
    program = npm_folder("conformance", HERE / "npm") / "node_modules" / leg.suite / "dist/index.js"
    command = [
        str(node()), str(program), "server", "--url", f"{base_url}/{leg.path}", "--suite", "all",
        "--expected-failures", str(listed), "-o", str(results),
        *(["--spec-version", leg.revision] if leg.revision else []),
    ]  # fmt: skip
    with anyio.fail_after(RUN_S):
        done = await anyio.run_process(command, env=clean_env(folder), check=False, cwd=folder)
    said = re.sub(r"\x1b\[[0-9;]*m", "", (done.stdout + done.stderr).decode())
    return _read(done.returncode, said, results)


def _read(code: int, said: str, results: Path) -> Found:
    runs: list[list[Json]] = [
        json.loads(file.read_bytes()) for file in sorted(results.glob("*/checks.json"))
    ]
    statuses = [[check["status"] for check in checks] for checks in runs]
    clean = sum(not {"FAILURE", "WARNING"} & set(each) for each in statuses)
    return Found(code, said, len(runs), clean, Counter(s for each in statuses for s in each))
