"""The bundle: one world (manifest, tools' code, state) and the sealed tasks posed in it.

Read this and task.py first. Models are frozen and refuse unknown fields; a `Bundle` that exists is
consistent: every name it mentions exists, licences are SPDX, tool schemas are inside the closed
profile, the state is tables of rows. Digests are over canonical JSON and the exact bytes of the
code. Reading and writing files is store.py.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from astra_mcp.canonical import canonical_bytes, digest
from astra_mcp.errors import AstraError
from astra_mcp.licences import check_spdx
from astra_mcp.match.models import Strict
from astra_mcp.schema import check_schema
from astra_mcp.task import Name, Task

Json = Any
FORMAT = "astra-mcp/bundle@1"

Rows = dict[str, dict[str, Json]]
State = dict[str, Rows]


def _spdx(value: str) -> str:
    try:
        return check_spdx(value)
    except AstraError as error:
        raise ValueError(str(error)) from error


class ToolSpec(Strict):
    """One tool as the agent sees it, plus whether it may change the state."""

    name: Name
    server: Name = "main"
    description: Annotated[str, StringConstraints(min_length=20, max_length=600)]
    input_schema: dict[str, Json]
    output_schema: dict[str, Json]
    effects: Literal["read", "write"]

    @model_validator(mode="after")
    def _schemas_are_in_the_profile(self) -> Self:
        for which, schema in (("input", self.input_schema), ("output", self.output_schema)):
            try:
                check_schema(schema)
            except AstraError as error:
                raise ValueError(f"tool {self.name}, {which}_schema: {error}") from error
        return self


class Server(Strict):
    """One MCP server of the world; a task may span several."""

    name: Name
    instructions: str


class Source(Strict):
    """Where data of the bundle come from."""

    name: str
    license: str
    url: str | None = None
    _check = field_validator("license")(_spdx)


class Provenance(Strict):
    """How the bundle was made."""

    backend: Literal["hand", "procedural", "llm", "import"]
    generator: str
    seed: int | None = None
    sources: list[Source] = []
    parents: list[str] = []
    models: list[str] = []


class Limits(Strict):
    """What one call may use."""

    call_seconds: float = Field(default=1.0, gt=0, le=60)
    memory_mb: int = Field(default=256, ge=16, le=4096)
    output_bytes: int = Field(default=32_768, ge=256, le=4_194_304)


class Manifest(Strict):
    """The public part of a bundle."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=80)]
    version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
    title: str
    summary: str
    domain: str
    language: str = "en"
    license: str
    provenance: Provenance
    now: datetime
    limits: Limits = Limits()
    servers: list[Server] = Field(min_length=1)
    tools: list[ToolSpec] = Field(min_length=1)
    _check = field_validator("license")(_spdx)

    @field_validator("now")
    @classmethod
    def _now_has_a_zone(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("now needs a time zone, such as 2025-03-12T10:00:00Z")
        return value

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        servers = [server.name for server in self.servers]
        tools = [tool.name for tool in self.tools]
        for what, names in (("server", servers), ("tool", tools)):
            if twice := sorted({n for n in names if names.count(n) > 1}):
                raise ValueError(f"{what} names must be unique; twice: {twice}")
        for tool in self.tools:
            if tool.server not in servers:
                raise ValueError(f"tool {tool.name}: unknown server {tool.server}")
        return self

    @cached_property
    def by_name(self) -> dict[str, ToolSpec]:
        """Tools by name."""
        return {tool.name: tool for tool in self.tools}


def world_digest(manifest: Manifest, code: str, state: State) -> str:
    """Digest of a world without its tasks; defaults that were spelled out make no difference."""
    dumped = manifest.model_dump(mode="json", exclude_defaults=True)
    return digest(canonical_bytes(dumped), code.encode(), canonical_bytes(state))


class Sealed(Strict):
    """What only the grader may see."""

    canary: str = Field(min_length=8)
    tasks: list[Task] = Field(min_length=1)


class Bundle(Strict):
    """One world and its tasks; see the module docstring for what its existence guarantees."""

    format: Literal["astra-mcp/bundle@1"]
    manifest: Manifest
    code: str
    state: dict[str, dict[str, dict[str, Json]]]
    sealed: Sealed

    @model_validator(mode="after")
    def _refers_only_to_what_exists(self) -> Self:
        tools = {tool.name for tool in self.manifest.tools}
        ids = [task.id for task in self.sealed.tasks]
        if len(ids) != len(set(ids)):
            raise ValueError(f"task ids must be unique, got {ids}")
        for task in self.sealed.tasks:
            if unknown := sorted(_tools_of(task) - tools):
                raise ValueError(f"task {task.id}: unknown tools {unknown}")
            checks = task.final_state.rows if task.final_state else []
            if bad := sorted({c.table for c in checks} - set(self.state)):
                raise ValueError(f"task {task.id}: final_state names unknown tables {bad}")
        return self

    @cached_property
    def world_digest(self) -> str:
        """Digest of manifest, code and state."""
        return world_digest(self.manifest, self.code, self.state)

    @cached_property
    def tasks_digest(self) -> str:
        """Digest of the sealed part."""
        return digest(canonical_bytes(self.sealed.model_dump(mode="json", exclude_defaults=True)))

    @cached_property
    def digest(self) -> str:
        """Digest of world and tasks: the identity that audits, trajectories and rewards carry."""
        return digest(self.world_digest.encode(), self.tasks_digest.encode())

    @property
    def ref(self) -> str:
        """`id@version`."""
        return f"{self.manifest.id}@{self.manifest.version}"

    def task(self, task_id: str) -> Task:
        """The task of that id.

        Raises:
            KeyError: there is none.
        """
        for task in self.sealed.tasks:
            if task.id == task_id:
                return task
        raise KeyError(task_id)


def _tools_of(task: Task) -> set[str]:
    """Every tool name that a task mentions."""
    patterns = [p for s in task.subtasks for c in s.evidence for p in c] + task.tolerated
    return (
        {step.tool for step in task.plan}
        | {name for turn in task.turns for name in turn.hide}
        | {name for item in task.subtasks for name in item.forbid}
        | {pattern.tool for pattern in patterns}
        | set(task.distractors)
    )
