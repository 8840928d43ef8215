"""Which of several processes keeps what: read from the token, the id or the request alone.

Pure, and the same in every process, so that none of them has to ask another one. A token and a
session id begin with their shard's letter, before all of their random bits; the first two hex
digits of an episode's id are its shard; an open_episode belongs where its request_id hashes to, so
that a repetition meets its first. With one process nothing is marked. What names no shard is
anybody's: whoever gets it answers it, as one process would.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import orjson

from astra_mcp.settings import HostSettings

Json = Any
_LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
#: Most processes: one letter has to tell them apart.
MOST: Final = len(_LETTERS)
_EPISODES: Final = "astra://episodes/"


class Whose(Enum):
    """Requests that have no single owner."""

    ANYBODY = "anybody"
    HEARTBEAT = "heartbeat"
    """Names episodes of several shards."""
    CANCEL = "cancel"
    """Nobody can say where the call runs that is cancelled."""


Owner = int | Whose


def mark(settings: HostSettings) -> str:
    """What tokens and session ids of this process begin with; "" when it is the only one."""
    return "" if settings.processes == 1 else _LETTERS[settings.shard]


def id_mark(settings: HostSettings) -> str:
    """What the hex digits of its episodes' ids begin with."""
    return "" if settings.processes == 1 else f"{settings.shard:02x}"


def by_mark(marked: str, count: int) -> Owner:
    """The shard of a token or a session id."""
    shard = _LETTERS.find(marked[:1]) if marked else -1
    return shard if 0 <= shard < count else Whose.ANYBODY


def by_episode(episode_id: Json, count: int) -> Owner:
    """The shard of an episode's id."""
    if not isinstance(episode_id, str) or not episode_id.startswith("ep_"):
        return Whose.ANYBODY
    try:
        shard = int(episode_id[3:5], 16)
    except ValueError:
        return Whose.ANYBODY
    return shard if 0 <= shard < count else Whose.ANYBODY


def by_request_id(request_id: Json, count: int) -> Owner:
    """The shard that opens an episode for this request_id."""
    if not isinstance(request_id, str):
        return Whose.ANYBODY
    digest = hashlib.sha256(request_id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) % count


def by_operation(body: bytes, count: int) -> Owner:
    """The shard that a message to the control plane is about."""
    try:
        message = orjson.loads(body)
        method, params = message["method"], message["params"]
        if method == "resources/read":
            return _by_uri(params["uri"], count)
        if method == "notifications/cancelled":
            return Whose.CANCEL
        if method != "tools/call":
            return Whose.ANYBODY
        return _by_tool(params["name"], params["arguments"], count)
    except (ValueError, KeyError, TypeError):
        return Whose.ANYBODY  # whoever has it says what is wrong with it


def _by_tool(tool: Json, arguments: Mapping[str, Json], count: int) -> Owner:
    if tool == "open_episode":
        return by_request_id(arguments["request_id"], count)
    if tool == "heartbeat":
        return _by_all(arguments["episode_ids"], count)
    return by_episode(arguments["episode_id"], count)


def _by_all(episode_ids: Json, count: int) -> Owner:
    """One shard when they are all of one; what is no list of ids is for anybody to refuse."""
    if not isinstance(episode_ids, list) or not all(isinstance(key, str) for key in episode_ids):
        return Whose.ANYBODY
    owners = {by_episode(key, count) for key in episode_ids} or {Whose.ANYBODY}
    return owners.pop() if len(owners) == 1 else Whose.HEARTBEAT


def _by_uri(uri: Json, count: int) -> Owner:
    if not isinstance(uri, str) or not uri.startswith(_EPISODES):
        return Whose.ANYBODY
    return by_episode(uri.removeprefix(_EPISODES), count)


def share(settings: HostSettings, shard: int) -> HostSettings:
    """The settings of one shard: its place, its journal, and its equal part of what is limited."""
    count = settings.processes
    return settings.model_copy(
        update={
            "shard": shard,
            "journal": settings.journal / f"shard-{shard}" if settings.journal else None,
        }
        | {name: -(-getattr(settings, name) // count) for name in _SHARED_OUT}
    )


_SHARED_OUT: Final = (
    "max_episodes",
    "max_waiting",
    "max_env_sessions",
    "keep_finished",
    "keep_journals",
)
