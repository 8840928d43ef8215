"""One attempt at one task: turns, faults, distractors, limits, and the record that is graded.

An `Episode` owns its environment and everything that the agent did. It serves the agent's plane
(`tools`, `call`, and with `agent_io` two tools more) and the control plane (`post_message`,
`submit`, `close`); it never mixes them: what `tools` and `call` give holds no sealed byte.
Invariants: calls run one after the other; a call that was started is recorded even when its client
is gone; after the end nothing changes any more; a reward that cannot be computed is null with a
reason. Tokens, leases and files are the host's (host/).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import anyio
from pydantic import Field

from astra_mcp import errors
from astra_mcp.attempt import Attempt, Call, Failure, Golden, Message
from astra_mcp.bundle import Bundle, ToolSpec
from astra_mcp.errors import EpisodeError, SandboxError, ToolFailure
from astra_mcp.grade import Grade, grade, no_grade
from astra_mcp.match.models import Strict
from astra_mcp.rules import FAULT_TEXT, NUDGE, Fault, asks, fault_at
from astra_mcp.settings import MAX_NUDGES, MAX_TEXT
from astra_mcp.task import Task, Turn
from astra_mcp.world import Changes, Environment, Outcome, Progress, World

Json = Any
log = logging.getLogger(__name__)
Status = Literal["open", "graded", "closed", "expired", "corrupt"]


class EpisodeSpec(Strict):
    """What an episode was opened with; the journal's header."""

    episode_id: str
    task: str
    """`id@version#task`."""
    digest: str
    seed: int = 0
    fault_rate: float = Field(default=0.0, ge=0.0, le=0.9)
    far: list[str] = []
    """Far distractors as `bundle ref#tool`."""
    max_calls: int
    agent_io: bool = False
    idle_s: float
    total_s: float


class UserReply(Strict):
    """What the user says to a message of the agent."""

    kind: Literal["user", "nudge", "end"]
    text: str | None = None
    tools_changed: bool = False


@dataclass(frozen=True, slots=True)
class FarTool:
    """A distractor of another bundle, with the world that answers for it."""

    spec: ToolSpec
    world: World


class Log(Protocol):
    """Where an episode writes what happened, before anybody is told."""

    def append(self, event: Mapping[str, Json], durable: bool = False) -> None:
        """Write one event; `durable` waits for the disk."""


class NoLog:
    """Keeps nothing."""

    def append(self, event: Mapping[str, Json], durable: bool = False) -> None:
        """Drop the event."""


@dataclass
class Episode:
    """One attempt; see the module docstring.

    Attributes:
        spec: What it was opened with.
        bundle, task, golden: What it is graded by (sealed).
        environment: Its own copy of the world.
        far: Far distractors by tool name.
        log: The journal.
    """

    spec: EpisodeSpec
    bundle: Bundle
    task: Task
    golden: Golden
    environment: Environment
    far: Mapping[str, FarTool] = field(default_factory=dict)
    log: Log = field(default_factory=NoLog)
    status: Status = "open"
    reason: str = ""
    result: Grade | None = None
    calls: list[Call] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    transcript: list[dict[str, Json]] = field(default_factory=list)
    answer: str | None = None
    refused_calls: int = 0
    _turn: int = 0
    _nudges: int = 0
    _ended: bool = False
    _busy: anyio.Lock = field(default_factory=anyio.Lock)
    _by_call_id: dict[str, Outcome] = field(default_factory=dict)
    _far_open: dict[str, Environment] = field(default_factory=dict)
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.transcript:
            self.transcript.append({"role": "user", "content": self.turn.say})

    # ---- the agent's plane ------------------------------------------------------------

    @property
    def turn(self) -> Turn:
        """The latest user turn."""
        return self.task.turns[self._turn]

    def tools(self) -> Sequence[ToolSpec]:
        """Tools served now: the world's without the hidden ones, then far distractors."""
        hidden = set(self.turn.hide)
        world = [t for t in self.bundle.manifest.tools if t.name not in hidden]
        return [*world, *(f.spec for f in self.far.values())]

    def on_tools_changed(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever the list of tools changes; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    async def call(
        self,
        tool: str,
        args: Mapping[str, Json],
        call_id: str | None = None,
        progress: Progress | None = None,
    ) -> Outcome:
        """Run one call of the agent and record it.

        Args:
            call_id: The client's own id of this call; a second call with the same id gives the
                first one's outcome and runs nothing.

        Raises:
            EpisodeError: the episode has ended.
        """
        with anyio.CancelScope(shield=True):  # the record must not depend on who still listens
            outcome = await self._call(tool, args, call_id, progress)
        return outcome

    async def _call(
        self, tool: str, args: Mapping[str, Json], call_id: str | None, progress: Progress | None
    ) -> Outcome:
        async with self._busy:
            self._must_be_open()
            if call_id is not None and call_id in self._by_call_id:
                return self._by_call_id[call_id]
            if len(self.calls) >= self.spec.max_calls:
                return self._refuse()
            outcome = await self._recorded(tool, args, call_id, progress)
            if call_id is not None:
                self._by_call_id[call_id] = outcome
            return outcome

    def _refuse(self) -> Outcome:
        self.refused_calls += 1
        limit = f"this episode allows {self.spec.max_calls} calls; answer with what you have"
        now = self.environment.state_hash
        return Outcome(None, ToolFailure(errors.TOO_MANY_CALLS, limit), {}, now, now, 0.0)

    async def _recorded(
        self, tool: str, args: Mapping[str, Json], call_id: str | None, progress: Progress | None
    ) -> Outcome:
        index = len(self.calls)
        served = {spec.name for spec in self.tools()}
        fault = fault_at(self.spec.seed, index, self.spec.fault_rate) if tool in served else None
        origin: Literal["world", "distractor", "none"] = "none"
        if tool in served:
            origin = "distractor" if tool in self.far else "world"
        try:
            outcome = await self._run(tool, args, origin, fault, progress)
        except SandboxError as error:
            self._corrupt(f"the sandbox failed: {error.message}")
            await self._release()
            raise EpisodeError(
                "This episode ended because its environment was lost.", "Open a new episode."
            ) from error
        failure = outcome.failure
        call = Call(
            index=index,
            turn=self.turn.id,
            tool=tool,
            args=dict(args),
            result=outcome.result,
            failure=Failure(code=failure.code, message=failure.message) if failure else None,
            fault=fault,
            origin=origin,
            state_before=outcome.state_before,
            state_after=outcome.state_after,
            seconds=round(outcome.seconds, 6),
        )
        self._log_call(call, outcome.changes, call_id)
        self.calls.append(call)
        self.transcript.append({"role": "call", "index": index})
        return outcome

    async def _run(
        self,
        tool: str,
        args: Mapping[str, Json],
        origin: str,
        fault: Fault | None,
        progress: Progress | None,
    ) -> Outcome:
        now = self.environment.state_hash
        if origin == "none":
            return Outcome(None, ToolFailure(errors.UNKNOWN_TOOL, "no such tool"), {}, now, now, 0)
        if fault is not None:
            return Outcome(None, ToolFailure(fault, FAULT_TEXT[fault]), {}, now, now, 0.0)
        if origin == "world":
            return await self.environment.call(tool, args, progress)
        far = self.far[tool]
        if far.world.ref not in self._far_open:
            self._far_open[far.world.ref] = await far.world.open()
        there = await self._far_open[far.world.ref].call(tool, args, progress)
        return Outcome(there.result, there.failure, {}, now, now, there.seconds)

    def _log_call(self, call: Call, changes: Changes, call_id: str | None) -> None:
        event = {"event": "call", "call": call.model_dump(mode="json"), "call_id": call_id}
        self.log.append(event | {"changes": changes})

    # ---- the control plane ------------------------------------------------------------

    async def post_message(self, text: str, request_id: str | None = None) -> UserReply:
        """Give the user a message of the agent: the next turn, a nudge, or the end.

        Raises:
            EpisodeError: the episode has ended, or the text is too long.
        """
        _check_text(text)
        async with self._busy:
            self._must_be_open()
            reply, opened = self._answer_to(text)
            message = Message(
                text=text, turn=self.turn.id, calls_before=len(self.calls), opened=opened
            )
            event = {"event": "message", "message": message.model_dump(mode="json")}
            self.log.append(event | {"request_id": request_id, "kind": reply.kind})
            self._apply_message(message, reply)
        return reply

    def _answer_to(self, text: str) -> tuple[UserReply, str | None]:
        following = self._turn + 1
        if following >= len(self.task.turns) or self._ended:
            return UserReply(kind="end"), None
        turn = self.task.turns[following]
        if turn.opens == "asked" and not asks(text, turn.ask_words):
            if self._nudges >= MAX_NUDGES:
                return UserReply(kind="end"), None
            return UserReply(kind="nudge", text=NUDGE), None
        changed = set(self.turn.hide) != set(turn.hide)
        return UserReply(kind="user", text=turn.say, tools_changed=changed), turn.id

    def _apply_message(self, message: Message, reply: UserReply) -> None:
        self.messages.append(message)
        self.transcript.append({"role": "assistant", "content": message.text})
        if reply.kind == "nudge":
            self._nudges += 1
        if reply.kind == "end":
            self._ended = True
        if reply.kind == "user":
            self._turn += 1
        if reply.text is not None:
            self.transcript.append({"role": "user", "content": reply.text})
        if reply.tools_changed:
            for listener in list(self._listeners):
                listener()

    async def submit(self, answer: str, request_id: str | None = None) -> Grade:
        """Grade the attempt with this final answer and end the episode.

        Raises:
            EpisodeError: the episode has ended, or the answer is too long.
        """
        _check_text(answer)
        async with self._busy:
            self._must_be_open()
            self.answer = answer
            self.transcript.append({"role": "assistant", "content": answer})
            result = self._graded()
            if result is None:
                result = self._corrupt("the grader failed")
            else:
                event = {"event": "submit", "answer": answer, "request_id": request_id}
                self.log.append(event | {"grade": result.model_dump(mode="json")}, durable=True)
                self.result = result
                self._end("graded", result.reason)
        await self._release()
        return result

    def _graded(self) -> Grade | None:
        """The grade, or None when the grader itself failed: better no reward than a wrong one."""
        try:
            return grade(
                self.task,
                self.golden,
                self.attempt(),
                self.bundle.state,
                locale=self.bundle.manifest.language,
                manifest=self.bundle.manifest,
                digest=self.bundle.digest,
            )
        except Exception:
            log.exception("the grader failed on %s", self.spec.task)
            return None

    def attempt(self) -> Attempt:
        """The record so far."""
        return Attempt(
            calls=list(self.calls),
            messages=list(self.messages),
            answer=self.answer,
            final_state=self.environment.state,
            seed=self.spec.seed,
        )

    async def close(
        self, status: Status = "closed", reason: str = "closed without an answer"
    ) -> None:
        """End the episode without an answer: the reward is null, with `reason`."""
        async with self._busy:
            if self.status != "open":
                return
            self.log.append({"event": "end", "status": status, "reason": reason}, durable=True)
            self.result = no_grade(reason)
            self._end(status, reason)
        await self._release()

    async def suspend(self) -> None:
        """Free the processes of an open episode without ending it; the journal keeps it."""
        async with self._busy:
            await self._release()

    async def mark_corrupt(self, reason: str) -> None:
        """End the episode as corrupt, whatever it was: the reward is null."""
        async with self._busy:
            self._corrupt(reason)
        await self._release()

    def _corrupt(self, reason: str) -> Grade:
        self.log.append({"event": "end", "status": "corrupt", "reason": reason}, durable=True)
        self.result = no_grade(f"corrupt: {reason}")
        self._end("corrupt", reason)
        return self.result

    def _end(self, status: Status, reason: str) -> None:
        self.status, self.reason = status, reason
        self._listeners.clear()

    async def _release(self) -> None:
        for environment in (self.environment, *self._far_open.values()):
            await environment.aclose()

    def _must_be_open(self) -> None:
        if self.status != "open":
            raise EpisodeError(f"This episode is {self.status}.", "Open a new episode.")

    # ---- restoring --------------------------------------------------------------------

    def replay_event(self, event: Mapping[str, Json]) -> dict[str, Json] | None:
        """Fold one journalled event into the record; the environment is not touched.

        Returns:
            What the request behind the event was answered with, for requests that may repeat.

        Raises:
            ValueError: the event does not follow from what came before.
        """
        kind = event["event"]
        if kind == "call":
            call = Call.model_validate(event["call"])
            if call.index != len(self.calls) or call.turn != self.turn.id:
                raise ValueError("a call is out of order")
            self.calls.append(call)
            self.transcript.append({"role": "call", "index": call.index})
            if event.get("call_id") is not None:
                self._by_call_id[event["call_id"]] = _outcome_of(call)
        elif kind == "message":
            message = Message.model_validate(event["message"])
            reply, opened = self._answer_to(message.text)
            if opened != message.opened or reply.kind != event["kind"]:
                raise ValueError("a message opened another turn than the task says")
            self._apply_message(message, reply)
            return reply.model_dump(mode="json")
        elif kind == "submit":
            self.answer = event["answer"]
            self.result = Grade.model_validate(event["grade"])
            self.transcript.append({"role": "assistant", "content": event["answer"]})
            self._end("graded", self.result.reason)
            return self.result.model_dump(mode="json")
        elif kind == "end":
            self.result = no_grade(event["reason"])
            self._end(event["status"], event["reason"])
        else:
            raise ValueError("an event of an unknown kind")
        return None


def _outcome_of(call: Call) -> Outcome:
    failure = ToolFailure(call.failure.code, call.failure.message) if call.failure else None
    return Outcome(call.result, failure, {}, call.state_before, call.state_after, call.seconds)


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise EpisodeError(
            f"The text has {len(text)} characters; {MAX_TEXT} are allowed.", "Send a shorter one."
        )


def now_s() -> float:
    """Monotonic seconds; leases and deadlines use nothing else."""
    return time.monotonic()
