"""The fixed rules of an episode, as pure functions: what the agent is told, what counts as asking,
which calls fail on purpose.

Nothing here depends on the clock or on chance: the same seed gives the same faults everywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final, Literal

from astra_mcp.bundle import Bundle
from astra_mcp.settings import MAX_NUDGES
from astra_mcp.task import Turn

Fault = Literal["unavailable", "timeout"]
NUDGE: Final = "I have nothing to add to that. Please go on with what you have."
FAULT_TEXT: Final = {
    "unavailable": "the service is temporarily unavailable, try again",
    "timeout": "the service did not answer in time, try again",
}
ASK_USER: Final = "ask_user"
SUBMIT: Final = "submit_answer"


def system_prompt(bundle: Bundle, agent_io: bool = False) -> str:
    """The system prompt of every episode: what date it is, how to ask, how to answer."""
    manifest = bundle.manifest
    ask = (
        f"call the tool {ASK_USER}"
        if agent_io
        else "ask the user in a plain message without a tool call"
    )
    end = (
        f"call the tool {SUBMIT} with your final answer"
        if agent_io
        else "end with one line that starts with ANSWER: and holds nothing but the answer"
    )
    lines = [
        "You are an assistant that does a user's work with the tools you are given.",
        f"It is {manifest.now.strftime('%A %d %B %Y, %H:%M %Z').strip()}.",
        f"When something you need is missing, {ask}.",
        "Make no call that the work does not need, and invent nothing.",
        f"When the work is done, {end}.",
        *(server.instructions for server in manifest.servers),
    ]
    return "\n".join(line for line in lines if line)


def asks(text: str, ask_words: Sequence[str]) -> bool:
    """Whether one of `ask_words` stands in `text` as whole words, whatever its case."""
    for word in ask_words:
        pattern = rf"(?<!\w){re.escape(word)}(?!\w)" if word.isascii() else re.escape(word)
        if re.search(pattern, text, re.IGNORECASE):
            return True
    return False


def reply_kind(
    turns: Sequence[Turn], current: int, nudges: int, text: str
) -> Literal["user", "nudge", "end"]:
    """What a message of the agent brings: the turn after `current`, a nudge, or the end.

    Args:
        current: Index of the latest turn.
        nudges: How many nudges there were already.
    """
    if current + 1 >= len(turns):
        return "end"
    turn = turns[current + 1]
    if turn.opens != "asked" or asks(text, turn.ask_words):
        return "user"
    return "end" if nudges >= MAX_NUDGES else "nudge"


def fault_at(seed: int, index: int, rate: float) -> Literal["unavailable", "timeout"] | None:
    """The fault injected into call `index`, the same for every episode with this seed and rate."""
    if rate <= 0:
        return None
    mac = hmac.digest(str(seed).encode(), f"fault:{index}".encode(), hashlib.sha256)
    if int.from_bytes(mac[:8], "big") / 2**64 >= rate:
        return None
    return "timeout" if mac[8] & 1 else "unavailable"
