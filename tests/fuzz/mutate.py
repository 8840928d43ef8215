"""Requests bent in every way, from a seed: JSON trees, JSON text, headers, request line, framing.

A case starts from a request that a real client sent, or from one of our own of the control plane,
so that most mutants are nearly right and get past the first check. Everything is drawn from the
`random.Random` that is passed in: the same seed gives the same bytes.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Json = Any
CORPUS: Final = Path(__file__).parents[1] / "data" / "recorded_requests.json"
SESSION: Final = "{session}"

#: Values that a parser, a validator, an encoder or a log may stumble over.
HOSTILE: Final[tuple[Json, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**30, 0.5, -0.0,
    1e308, 5e-324, "", " ", "\x00", "\x1f\x7f", "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "é\u2028😀",
    "\ufffe",
    "../../etc/passwd", "%00%ff", "{{7*7}}", "' OR 1=1 --", "__proto__", "__class__",
    "a" * 200, "a" * 201,
    "x" * 5000, "2026-07-28", "2025-11-25", "9999-99-99", "tools/call", "notifications/cancelled",
    [], {}, [[]], [None], {"": None}, {"a": {"b": {"c": []}}}, [1, "1", 1.0, True],
    {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"$ref": "#"}, {"_meta": {"progressToken": 1}},
)  # fmt: skip
#: What is put into JSON text where it does not belong.
TOKENS: Final = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"01", b"0x10", b"'a'", b"undefined",
    b",", b":", b"[",
    b"]", b"{", b"}", b'"', b"\\", b'"\\ud800"', b'"\\u0000"', b"\xff", b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf", b"\x00", b"// no\n", b"1" * 400, b"[" * 300, b'{"a":' * 1100,
    b"[" * 1010 + b"]" * 1010, b'{"a":' * 990 + b"1" + b"}" * 990,
)  # fmt: skip
METHODS: Final = (
    "initialize", "ping", "tools/list", "tools/call", "resources/list", "resources/read",
    "resources/templates/list", "prompts/list", "prompts/get", "completion/complete",
    "logging/setLevel", "server/discover", "subscriptions/listen", "notifications/initialized",
    "notifications/cancelled", "notifications/progress", "tasks/list", "", "x" * 3000,
    "tools/call ",
)  # fmt: skip
HEADER_VALUES: Final = (
    b"", b"0", b"-1", b"99999999999999999999", b"a" * 4000, b"\xff\xfe", b"2026-07-28",
    b"2025-11-25",
    b"2024-11-05", b"1999-01-01", b"tools/call", b"=?base64?!!!?=",
    b"=?base64?aW5jcmVtZW50?=", b"*/*",
    b"text/event-stream", b"application/json; charset=utf-16", b"text/plain", b"chunked",
    b"gzip, chunked",
    b"close", b"keep-alive", b"upgrade", b"100-continue", b"Bearer", b"Bearer x",
    b"Basic eDp4", b"evil.example",
    b"http://evil.example", b"null", b"localhost:99999", b"[::1", b"identity;q=0,,;",
)  # fmt: skip
HEADER_NAMES: Final = (
    b"accept", b"content-type", b"mcp-protocol-version", b"mcp-method", b"mcp-name",
    b"mcp-session-id",
    b"authorization", b"host", b"origin", b"expect", b"connection", b"upgrade",
    b"transfer-encoding",
    b"content-length", b"content-encoding", b"last-event-id", b"te", b"x-forwarded-host", b"cookie",
)  # fmt: skip
PATHS: Final = (
    b"/", b"*", b"//", b"/healthz", b"/metrics", b"/control/mcp", b"/agent/mcp",
    b"/envs/counter/mcp",
    b"/envs/counter/main/mcp", b"/envs/nobody/mcp", b"/envs/%2e%2e/mcp", b"/play/counter",
    b"/play/nobody",
    b"/episodes/x/mcp", b"/episodes/%ff%00/mcp", b"/sdk/x/mcp", b"/envs/counter/mcp?a=%zz#f",
    b"/a" * 2000,
    b"http://localhost/healthz", b"/\xff", b"/envs/counter/mcp/",
)  # fmt: skip
VERBS: Final = (
    b"POST",
    b"GET",
    b"DELETE",
    b"PUT",
    b"HEAD",
    b"OPTIONS",
    b"PATCH",
    b"TRACE",
    b"CONNECT",
    b"post",
)


@dataclass
class Draft:
    """A request that can still be bent, and then its bytes."""

    verb: bytes
    path: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    version: bytes = b"HTTP/1.1"
    framing: str = "length"

    def encode(self, rng: random.Random) -> bytes:
        """The bytes, framed as `framing` says: several ways are wrong."""
        lines = [self.verb + b" " + self.path + b" " + self.version]
        lines += [name + b": " + value for name, value in self.headers]
        body, size = self.body, len(self.body)
        match self.framing:
            case "length" if body or self.verb == b"POST":
                lines.append(b"content-length: %d" % size)
            case "short":
                lines.append(b"content-length: %d" % max(0, size - rng.randrange(1, 40)))
            case "long":
                lines.append(b"content-length: %d" % (size + rng.randrange(1, 4000)))
            case "huge":
                lines.append(b"content-length: %d" % rng.choice([2**20 + 1, 2**31, 2**63, 2**64]))
            case "chunked" | "endless" | "bad chunks":
                lines.append(b"transfer-encoding: chunked")
                body = _chunks(body, rng, self.framing)
            case "both":
                lines += [b"content-length: %d" % size, b"transfer-encoding: chunked"]
                body = _chunks(body, rng, "chunked")
            case "two lengths":
                lines += [b"content-length: %d" % size, b"content-length: %d" % (size + 1)]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _chunks(body: bytes, rng: random.Random, framing: str) -> bytes:
    made, step = b"", rng.randrange(1, max(2, len(body)))
    for start in range(0, len(body), step):
        part = body[start : start + step]
        size = b"%x" % len(part)
        if framing == "bad chunks" and rng.random() < 0.5:
            size = rng.choice([b"", b"zz", b"-1", b"f" * 20, b"%x" % (len(part) + 3)])
        extension = b";a=b" if rng.random() < 0.2 else b""
        made += size + extension + b"\r\n" + part + b"\r\n"
    return made if framing == "endless" else made + b"0\r\n\r\n"


# ---- JSON ---------------------------------------------------------------------------------


def _places(value: Json) -> list[tuple[Any, ...]]:
    """Ways to the parts of a JSON value, the nearest first, at most some hundred."""
    found: list[tuple[Any, ...]] = [()]
    queue: list[tuple[tuple[Any, ...], Json]] = [((), value)]
    while queue and len(found) < 400:
        path, here = queue.pop(0)
        parts = here.items() if isinstance(here, dict) else enumerate(here)
        for key, inner in parts:
            found.append((*path, key))
            if isinstance(inner, dict | list):
                queue.append(((*path, key), inner))
    return found


def nested(depth: int, rng: random.Random) -> Json:
    """JSON of that depth."""
    value: Json = 1
    for _ in range(depth):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def hostile(rng: random.Random) -> Json:
    """A value that does not belong there."""
    if rng.random() < 0.1:
        return nested(rng.choice([10, 70, 130, 250, 260, 500, 900]), rng)
    return copy.deepcopy(rng.choice(HOSTILE))


def bend_tree(value: Json, rng: random.Random) -> Json:
    """One change somewhere in a JSON value."""
    places = _places(value) if isinstance(value, dict | list) else [()]
    path = rng.choice(places[1:]) if len(places) > 1 else ()
    if not path:
        return hostile(rng)
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    last = path[-1]
    match rng.randrange(7):
        case 0 | 1 | 2:
            parent[last] = hostile(rng)
        case 3:
            del parent[last]
        case 4 if isinstance(parent, dict):
            parent[rng.choice(["", "x", "_meta", "id", "name", str(last).upper()])] = parent.pop(
                last
            )
        case 5 if isinstance(parent, dict):
            parent[rng.choice(["x", "extra", "jsonrpc", "result", "error", "cursor"])] = hostile(
                rng
            )
        case _:
            parent[last] = [parent[last]]
    return value


def bend_text(text: bytes, rng: random.Random) -> bytes:
    """One change somewhere in JSON text."""
    at = rng.randrange(len(text) + 1)
    match rng.randrange(6):
        case 0:
            return text[:at] + rng.choice(TOKENS) + text[at:]
        case 1:
            return text[:at]
        case 2:
            return text[:at] + text[at + rng.randrange(1, 12) :]
        case 3:
            return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        case 4:  # a key that stands twice
            return text.replace(b"{", b'{"id":7,"method":"ping","params":[],', 1)
        case _:
            return rng.choice([b"", b"[" + text + b"]", text + text, b" " * 70_000 + text])


# ---- requests -----------------------------------------------------------------------------


def _bend_headers(draft: Draft, rng: random.Random) -> None:
    headers = draft.headers
    at = rng.randrange(len(headers)) if headers else 0
    match rng.randrange(6):
        case 0 if headers:
            del headers[at]
        case 1 if headers:
            headers.insert(rng.randrange(len(headers) + 1), headers[at])
        case 2 if headers:
            headers[at] = (headers[at][0], rng.choice(HEADER_VALUES))
        case 3 if headers:
            headers.append((headers[at][0], rng.choice(HEADER_VALUES)))
        case 4:
            headers += [(b"x-%d" % n, b"y" * 20) for n in range(rng.choice([50, 900, 3000]))]
        case _:
            headers.append((rng.choice(HEADER_NAMES), rng.choice(HEADER_VALUES)))


FRAMINGS: Final = (
    "short", "long", "huge", "chunked", "chunked", "endless", "bad chunks", "both", "two lengths",
    "none",
)  # fmt: skip


def bend(draft: Draft, rng: random.Random) -> Draft:
    """One to three changes of a request."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        match rng.randrange(20):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8:
                draft.body = _bend_body(draft.body, rng)
            case 9 | 10 | 11:
                draft.body = bend_text(draft.body, rng) if draft.body else b"{}"
            case 12 | 13 | 14 | 15:
                _bend_headers(draft, rng)
            case 16 | 17:
                draft.framing = rng.choice(FRAMINGS)
            case 18:
                draft.path = rng.choice(PATHS)
            case _:
                draft.verb = rng.choice(VERBS)
                if rng.random() < 0.3:
                    draft.version = rng.choice(
                        [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"", b"HTTP/1.1 x"]
                    )
    return draft


def _bend_body(body: bytes, rng: random.Random) -> bytes:
    try:
        value = json.loads(body)
        for _ in range(rng.choice([1, 1, 2])):
            value = bend_tree(value, rng)
        if rng.random() < 0.1 and isinstance(value, dict):
            value["method"] = rng.choice(METHODS)
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    except (ValueError, RecursionError):  # bent already, or too deep for this encoder
        return bend_text(body, rng)
    return text.encode("utf-8", "surrogatepass")


def drafts(control: Sequence[Json]) -> list[Draft]:
    """Where cases start: what real clients sent, and these calls of the control plane.

    The path of a recorded request is empty: `place` gives it an endpoint.
    """
    found = []
    for visit in json.loads(CORPUS.read_text("utf-8")).values():
        for request in visit:
            headers = [(k.encode(), v.encode("latin-1")) for k, v in request["headers"].items()]
            found.append(Draft(request["method"].encode(), b"", headers, request["body"].encode()))
    plain = [(b"accept", b"application/json"), (b"content-type", b"application/json")]
    for call in control:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        body = json.dumps(message).encode()
        found.append(Draft(b"POST", b"/control/mcp", list(plain), body))
    return found
