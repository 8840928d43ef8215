"""Matchers as data: how an answer is compared with an expected value.

Frozen models only; the comparing is done by the other modules of this folder. A matcher never tests
for a substring. Kinds and fields are those of format "astra-mcp/bundle@1"; `locale` fields are
additions with defaults.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """Base of every boundary model: frozen, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Exact(Strict):
    """The same text after Unicode, case and white-space normalization, or one of the aliases."""

    kind: Literal["exact"]
    aliases: list[str] = []


class Number(Strict):
    """A number within `abs_tol` or `rel_tol`; in `unit`, when set, or a convertible one."""

    kind: Literal["number"]
    abs_tol: float = 0.0
    rel_tol: float = 0.0
    unit: str | None = None
    unit_aliases: list[str] = []
    locale: str | None = None
    """Locale of thousands and decimal marks in the answer; default: the bundle's language."""


class Date(Strict):
    """A calendar day, in ISO form or in words."""

    kind: Literal["date"]


class DateTime(Strict):
    """A day and a time of day; a zone is compared only when both sides name one."""

    kind: Literal["datetime"]


class Time(Strict):
    """A time of day to the minute or second, 24-hour or am/pm."""

    kind: Literal["time"]


class SetOf(Strict):
    """Every member once, in any order, nothing missing and nothing more."""

    kind: Literal["set"]
    of: Matcher


class ListOf(Strict):
    """The members in order, nothing missing and nothing more."""

    kind: Literal["list"]
    of: Matcher


class Regex(Strict):
    """A full match of `pattern` on the answer slot."""

    kind: Literal["regex"]
    pattern: str


class Contains(Strict):
    """Whole words: every `all_of` is there and no `none_of`."""

    kind: Literal["contains"]
    all_of: list[str] = Field(min_length=1)
    none_of: list[str] = []


class Bool(Strict):
    """Yes or no."""

    kind: Literal["bool"]


class Record(Strict):
    """Named fields, each with its own matcher, in `name: value` lines or a JSON object."""

    kind: Literal["record"]
    fields: dict[str, Matcher]


Matcher = Annotated[
    Exact | Number | Date | DateTime | Time | SetOf | ListOf | Regex | Contains | Bool | Record,
    Field(discriminator="kind"),
]
for _model in (SetOf, ListOf, Record):
    _model.model_rebuild()
