"""A host of a few lines: both planes of the small task, and the ways in which a host can fail.

It speaks enough of the wire for the collector, so that failures can be made at will; that the
clients and the real host agree is tested with the real host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from client_servers import ScriptedServer, json_reply, rpc_result
from client_worlds import Script, small_task

Json = Any
Reply = tuple[int, dict[str, str], list[bytes]]
TOKEN = "control-secret"
DIGEST = "sha256:d"


@dataclass
class FakeEpisode:
    token: str
    script: Script
    task: str
    seed: int
    status: str = "open"
    grade: Json = None


@dataclass
class FakeHost:
    """Serves tasks t1, t2, ... of bundle test@1.0.0, all the same small task.

    Attributes:
        broken: Control tool and how often it has been called -> what it answers instead.
    """

    server: ScriptedServer
    tasks: int = 1
    broken: Callable[[str, int], Reply | None] = lambda tool, count: None
    episodes: dict[str, FakeEpisode] = field(default_factory=dict)
    by_request: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    most_open: int = 0

    def __post_init__(self) -> None:
        self.server.handler = self.handle

    @property
    def control_url(self) -> str:
        return f"{self.server.url}/control/mcp"

    def refs(self) -> list[str]:
        return [f"test@1.0.0#t{i + 1}" for i in range(self.tasks)]

    def handle(self, body: Json, headers: dict[str, str]) -> Reply:
        path = headers[":path"]
        if path == "/healthz":
            return json_reply({"version": "0.0", "sandbox": {"seccomp": "on"}})
        if path == "/control/mcp":
            if headers.get("authorization") != f"Bearer {TOKEN}":
                return 401, {}, []
            return self.control(body)
        token = path.split("/")[2]
        episode = next((e for e in self.episodes.values() if e.token == token), None)
        if episode is None or episode.status != "open":
            return 401, {}, []
        return self.agent(episode, body)

    def control(self, body: Json) -> Reply:
        name, args = body["params"]["name"], body["params"]["arguments"]
        count = self.counts[name] = self.counts.get(name, 0) + 1
        if (instead := self.broken(name, count)) is not None:
            return instead
        return tool_result(body, getattr(self, name)(args))

    def agent(self, episode: FakeEpisode, body: Json) -> Reply:
        script = episode.script
        if body["method"] == "tools/list":
            return rpc_result(body, {"tools": script.listing()})
        params = body["params"]
        response = script.answer(params["name"], params["arguments"])
        content = [{"type": "text", "text": response.text}]
        result = {"content": content, "isError": response.is_error}
        if response.structured is not None:
            result["structuredContent"] = response.structured
        return rpc_result(body, result)

    # control tools
    def list_tasks(self, args: Json) -> Json:
        line = {
            "digest": DIGEST, "title": "T", "domain": "testing", "level": 3, "hops": 3,
            "features": [], "turns": 3, "max_calls": 8,
        }  # fmt: skip
        start = int(args.get("cursor", 0))
        more = str(start + 2) if start + 2 < self.tasks else None
        refs = self.refs()[start : start + 2]
        return {"tasks": [{"task": ref, **line} for ref in refs], "next_cursor": more}

    def open_episode(self, args: Json) -> Json:
        key = self.by_request.setdefault(args["request_id"], f"ep_{len(self.episodes)}")
        if key not in self.episodes:
            script = Script(small_task(), TOOLS)
            self.episodes[key] = FakeEpisode(f"tok-{key}", script, args["task"], args["seed"])
        episode = self.episodes[key]
        now_open = sum(1 for e in self.episodes.values() if e.status == "open")
        self.most_open = max(self.most_open, now_open)
        return {
            "episode_id": key, "task": episode.task, "digest": DIGEST, "world_digest": "sha256:w",
            "seed": episode.seed, "language": "en", "system_prompt": "Be good.",
            "message": episode.script.task.turns[0].say, "token": episode.token, "max_calls": 8,
            "endpoint": f"{self.server.url}/episodes/{episode.token}/mcp", "canary": "canary-0001",
        }  # fmt: skip

    def post_message(self, args: Json) -> Json:
        script = self.episodes[args["episode_id"]].script
        return script.reply(args["text"]).model_dump()

    def submit_answer(self, args: Json) -> Json:
        episode = self.episodes[args["episode_id"]]
        episode.status = "graded"
        right = args["answer"] == "ANSWER: PU-TK-EM-58-3"
        value = 1.0 if right else 0.0
        episode.grade = {
            "value": value, "reason": "as the answer is", "f1": value, "recall": value,
            "precision": value, "outcome": right, "paper_f1": value, "items": [],
            "calls": [
                {"index": i, "label": "progress", "credit": 0.1, "evidence_for": ["q1"],
                 "counted": True}
                for i in range(len(episode.script.calls))
            ],
        }  # fmt: skip
        return episode.grade

    def get_episode(self, args: Json) -> Json:
        episode = self.episodes[args["episode_id"]]
        calls = [
            {"index": i, "turn": "u1", "tool": name, "args": given, "result": {}, "failure": None,
             "fault": None, "origin": "world", "state_before": "a", "state_after": "a",
             "seconds": 0.001}
            for i, (name, given) in enumerate(episode.script.calls)
        ]  # fmt: skip
        return {
            "episode_id": args["episode_id"], "task": episode.task, "digest": DIGEST,
            "status": episode.status, "calls": len(calls), "turn_count": 1,
            "grade": episode.grade, "spec": {"idle_s": 600.0, "total_s": 3600.0, "far": []},
            "record": {"messages": [], "calls": calls},
        }  # fmt: skip

    def close_episode(self, args: Json) -> Json:
        episode = self.episodes[args["episode_id"]]
        episode.status = "closed" if episode.status == "open" else episode.status
        return {"status": episode.status, "reason": "closed"}


TOOLS: dict[str, Callable[[Json], Json]] = {
    "get_asset": lambda args: {"owner": "EM-58"},
    "open_ticket": lambda args: {"ticket": f"TK-{args['owner']}"},
    "book_pickup": lambda args: {"code": f"PU-{args['ticket']}-{args['floor']}"},
}


def tool_result(body: Json, value: Json) -> Reply:
    content = [{"type": "text", "text": orjson.dumps(value).decode()}]
    return rpc_result(body, {"content": content, "structuredContent": value})


def tool_error(code: str, message: str) -> Reply:
    """A control tool's failure, to whatever request (ids are not compared by JSON answers)."""
    result = {"content": [{"type": "text", "text": f"{code}: {message}"}], "isError": True}
    return json_reply({"jsonrpc": "2.0", "id": 0, "result": result})
