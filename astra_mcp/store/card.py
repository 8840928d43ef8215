"""The generated files of a bundle that people read: README.md and LICENSE.

Pure text from the public part; of the tasks only how many there are and how hard they are, never a
word of them. Outside every digest and outside the lossless round trip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from astra_mcp.bundle import Manifest, Source
from astra_mcp.task import Task

_MEANING = {
    "CC0-1.0": "The authors have dedicated this work to the public domain, as far as law allows.",
    "MIT": "You may use, copy, change and distribute this work if you keep this notice.",
    "Apache-2.0": "You may use, change and distribute this work under the Apache License 2.0.",
}


def licence_text(manifest: Manifest) -> str:
    """LICENSE: the SPDX expression, one sentence, and the sources with theirs."""
    known = _MEANING.get(
        manifest.license, "This work may be used under the terms of that expression."
    )
    lines = [f"SPDX-License-Identifier: {manifest.license}", "", known]
    if manifest.license in _MEANING:
        lines += [f"Full text: https://spdx.org/licenses/{manifest.license}.html"]
    sources = [f"- {_source(source)}" for source in manifest.provenance.sources]
    return "\n".join([*lines, *(["", "Sources:", *sources] if sources else []), ""])


def readme(manifest: Manifest, tasks: Sequence[Task]) -> str:
    """README.md, the environment's card; `tasks` are counted, not quoted."""
    sections = [
        f"# {_line(manifest.title)}",
        _line(manifest.summary),
        _facts(manifest, tasks),
        "## Servers",
        "\n".join(f"- `{s.name}`: {_line(s.instructions) or 'no text'}" for s in manifest.servers),
        "## Tools",
        _tools(manifest),
        "## Provenance",
        _provenance(manifest),
        "## How to run",
        _run(manifest),
        "This card is generated from bundle.json. The tasks are sealed: keep `sealed/` away from"
        " agents and from training text.",
    ]
    return "\n\n".join(sections) + "\n"


def _facts(manifest: Manifest, tasks: Sequence[Task]) -> str:
    levels = Counter(task.difficulty.level for task in tasks)
    by_level = ", ".join(f"{levels[level]} of level {level}" for level in sorted(levels))
    facts = {
        "Bundle": f"`{manifest.id}@{manifest.version}`",
        "Domain": _line(manifest.domain),
        "Language": f"`{manifest.language}`",
        "Licence": f"`{manifest.license}`",
        "Date in the world": f"{manifest.now.isoformat()}",
        "Tasks": f"{len(tasks)} ({by_level})",
    }
    rows = [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _tools(manifest: Manifest) -> str:
    rows = [
        f"| `{t.name}` | `{t.server}` | {t.effects} | {_cell(t.description)} |"
        for t in manifest.tools
    ]
    return "\n".join(["| tool | server | effects | what it does |", "|---|---|---|---|", *rows])


def _provenance(manifest: Manifest) -> str:
    made = manifest.provenance
    lines = [f"- Made by `{made.generator}` (backend: {made.backend})."]
    if made.seed is not None:
        lines.append(f"- Seed: {made.seed}.")
    if made.models:
        lines.append(f"- Models: {', '.join(map(_line, made.models))}.")
    if made.parents:
        lines.append(f"- Made from: {', '.join(map(_line, made.parents))}.")
    lines += [f"- Source: {_line(_source(source))}." for source in made.sources]
    return "\n".join(lines)


def _run(manifest: Manifest) -> str:
    return "\n".join(
        [
            "```",
            "python server.py                    # over stdio, for any MCP client",
            "fastmcp run server.py               # the same through FastMCP",
            f"astra serve PATH/TO/{manifest.id} --unaudited   # on the host: episodes, grading",
            "```",
        ]
    )


def _source(source: Source) -> str:
    return f"{source.name} ({source.license})" + (f", {source.url}" if source.url else "")


def _line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")
