"""What comparing says: right or not, and why, in words that hold no expected value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of one comparison; true in a boolean context when the answer is right.

    Attributes:
        ok: Whether the answer is right.
        why: One short clause; it never quotes the expected value.
    """

    ok: bool
    why: str

    def __bool__(self) -> bool:
        return self.ok


RIGHT = Verdict(True, "matches")


def wrong(why: str) -> Verdict:
    """A refusal with its reason."""
    return Verdict(False, why)


class Refused(Exception):
    """An answer cannot be read; its text says why. Raised and caught within this folder."""
