"""Every default and limit of the host in one place, and the environment variables that set them.

Frozen; read once at start. A field's docstring is what `--help` and docs/ show. Secrets are never
fields here: the control token comes from ASTRA_CONTROL_TOKEN or is generated, and is held hashed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

CONTROL_TOKEN_ENV: Final = "ASTRA_CONTROL_TOKEN"
METRICS_TOKEN_ENV: Final = "ASTRA_METRICS_TOKEN"

Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]


class HostSettings(BaseModel):
    """What `astra serve` may be told."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on; anything but loopback has to be asked for."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port; 0 lets the kernel choose."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted in Host and Origin headers besides loopback."""
    max_episodes: int = Field(default=1000, ge=1)
    """Open episodes; one more waits for a slot."""
    max_waiting: int = Field(default=256, ge=0)
    """Requests that may wait for an episode's slot; one more is refused with Retry-After."""
    wait_s: Seconds = 2.0
    """Longest wait for an episode's slot; after it the request is refused with Retry-After."""
    max_env_sessions: int = Field(default=256, ge=1)
    """Open sessions on /envs/<id>/mcp, and open plays."""
    max_waiting_calls: int = Field(default=16, ge=0)
    """Calls of one episode that may wait while another runs; one more fails with `busy`."""
    idle_s: Seconds = 600.0
    """An episode or session without a request for this long ends."""
    total_s: Seconds = 3600.0
    """No episode lives longer than this."""
    keep_finished: int = Field(default=2000, ge=0)
    """Finished episodes kept in memory; older ones are read from the journal when asked for."""
    keep_journals: int = Field(default=100_000, ge=0)
    """Journals of finished episodes kept on disk; the oldest are deleted first."""
    loaded_bundles: int = Field(default=256, ge=1)
    """Bundles kept loaded; the least recently used one without an episode is dropped first."""
    body_bytes: int = Field(default=1_048_576, ge=1024)
    """Largest request body."""
    drain_s: Seconds = 5.0
    """How long SIGTERM waits for requests in flight."""
    journal: Path | None = None
    """Folder of the append-only episode journals; None keeps episodes in memory only."""
    record: Path | None = None
    """Folder of byte-exact recordings of every episode's exchanges; None records nothing."""
    accept_missing_layers: frozenset[str] = frozenset()
    """Mandatory sandbox layers that may be missing; stated in the banner and in every record."""
    open_worlds: bool = True
    """Serve /envs and /play, where anybody may try a world without being graded."""
    unaudited: bool = False
    """Serve bundles that no audit made on this machine has accepted."""
    processes: int = Field(default=1, ge=1, le=64)
    """Processes behind the one port, each with its own episodes."""
    shard: int = Field(default=0, ge=0, le=63)
    """Which of them this one is."""


#: How many times the user answers "I have nothing to add" before the conversation ends.
MAX_NUDGES: Final = 2
#: Calls that may wait for one copy of a world.
CALLS_WAITING: Final = 64
#: Longest time that a request waits for its turn in an episode, in seconds.
TURN_WAIT_S: Final = 60.0
#: Most messages of an agent that one episode takes.
MAX_MESSAGES: Final = 200
#: Longest time to load a bundle, and to get ready what a new world needs, in seconds.
LOAD_S: Final = 60.0
#: Deepest arguments of a call; a tool's schema allows far less.
MAX_ARGUMENT_DEPTH: Final = 64
#: Longest message or answer of an agent, in characters.
MAX_TEXT: Final = 20_000
#: Largest set of changed rows that one call may write, in bytes of JSON.
MAX_CHANGE_BYTES: Final = 1_048_576
#: Largest state of a world, in bytes of JSON.
MAX_STATE_BYTES: Final = 16_777_216
#: Candidates that far distractors are drawn from.
FAR_POOL: Final = 64
#: Deepest nesting of a message and of a bundle's JSON: records, journals and answers hold them a
#: few levels down, and the encoders end at 254.
MAX_JSON_DEPTH: Final = 100
