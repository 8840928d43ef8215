"""Bearer tokens of both planes: 256 random bits, kept only as sha256, compared in constant time.

A token is returned once to whoever opened the episode and is stored nowhere. Unknown, dead,
foreign and misplaced tokens are one case: `AuthError` with one wording.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from astra_mcp.errors import AuthError

TOKEN_BYTES: Final = 32


def new_token(mark: str = "") -> str:
    """A fresh URL-safe token of 256 random bits, after the mark of its shard (shards.py)."""
    return mark + secrets.token_urlsafe(TOKEN_BYTES)


def token_hash(token: str) -> str:
    """What is kept of a token: its sha256 as hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def same_token(given: str | None, kept_hash: str) -> bool:
    """Whether `given` is the token of that hash, in constant time."""
    return given is not None and hmac.compare_digest(token_hash(given), kept_hash)


def refused() -> AuthError:
    """The one error of every token that does not open what it was shown to."""
    return AuthError(
        "This token is unknown here.", "Use the token that was given for exactly this address."
    )
