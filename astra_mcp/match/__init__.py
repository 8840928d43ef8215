"""Matchers: comparing an answer, text or structured, with an expected value.

Models are data (models.py). Three functions do the work: `check_gold` refuses an expected value
that cannot grade, `match_text` compares what an agent wrote, `match_value` what a tool returned. A
matcher parses the whole answer slot; none ever tests for a substring, and none guesses: an
ambiguous answer is refused with a reason that holds no expected value.
"""

from astra_mcp.match.check import check_gold
from astra_mcp.match.compare import match_text, match_value
from astra_mcp.match.models import (
    Bool,
    Contains,
    Date,
    DateTime,
    Exact,
    ListOf,
    Matcher,
    Number,
    Record,
    Regex,
    SetOf,
    Strict,
    Time,
)
from astra_mcp.match.slot import answer_slot
from astra_mcp.match.verdict import Verdict

__all__ = [
    "Bool",
    "Contains",
    "Date",
    "DateTime",
    "Exact",
    "ListOf",
    "Matcher",
    "Number",
    "Record",
    "Regex",
    "SetOf",
    "Strict",
    "Time",
    "Verdict",
    "answer_slot",
    "check_gold",
    "match_text",
    "match_value",
]
