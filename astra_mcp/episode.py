"""One attempt at one task: turns, faults, distractors, limits, and the record that is graded.

An `Episode` owns its environment and everything that the agent did. It serves the agent's plane
(`tools`, `call`, and with `agent_io` two tools more) and the control plane (`post_message`,
`submit`, `close`); it never mixes them: what `tools` and `call` give holds no sealed byte.
Invariants: calls run one after the other, and nothing waits for its turn without an end; a call
that was started is recorded even when its client is gone, and one that cannot be recorded has not
happened; after the end nothing changes any more; a reward that cannot be computed is null with a
reason. Tokens, leases and files are the host's (host/).
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio

from astra_mcp import errors
from astra_mcp.attempt import Attempt, Call, Failure, Golden, Message
from astra_mcp.bundle import Bundle, State, ToolSpec
from astra_mcp.canonical import deeper_than
from astra_mcp.concurrency import Gate
from astra_mcp.episode_data import (
    EpisodeSpec,
    FarCall,
    FarTool,
    Log,
    NoLog,
    Status,
    UserReply,
)
from astra_mcp.errors import (
    BusyError,
    EpisodeError,
    JournalError,
    ReplayError,
    SandboxError,
    ToolFailure,
)
from astra_mcp.grade import Grade, grade, no_grade
from astra_mcp.rules import FAULT_TEXT, NUDGE, Fault, fault_at, reply_kind
from astra_mcp.settings import MAX_ARGUMENT_DEPTH, MAX_MESSAGES, MAX_TEXT, TURN_WAIT_S
from astra_mcp.task import Task, Turn
from astra_mcp.world import Environment, Outcome, Progress, too_deep

Json = Any
log = logging.getLogger(__name__)


@dataclass
class Episode:
    """One attempt; see the module docstring.

    Attributes:
        spec: What it was opened with.
        bundle, task, golden: What it is graded by (sealed); None in place of the golden run until
            somebody asks for it.
        find_golden: Makes the golden run that is missing.
        environment: Its own copy of the world.
        far: Far distractors by tool name.
        far_states: States of far distractors' worlds that are not their first, by ref.
        log: The journal.
        max_waiting: How many calls may wait while another runs.
    """

    spec: EpisodeSpec
    bundle: Bundle
    task: Task
    golden: Golden | None
    environment: Environment
    far: Mapping[str, FarTool] = field(default_factory=dict)
    log: Log = field(default_factory=NoLog)
    find_golden: Callable[[], Awaitable[Golden]] | None = None
    far_states: Mapping[str, State] = field(default_factory=dict)
    max_waiting: int = 16
    status: Status = "open"
    reason: str = ""
    result: Grade | None = None
    calls: list[Call] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    transcript: list[dict[str, Json]] = field(default_factory=list)
    answer: str | None = None
    submitted_by: str | None = None
    """The agent's own id of the call that submitted the answer."""
    _turn: int = 0
    _nudges: int = 0
    _ended: bool = False
    _suspended: bool = False
    _gate: Gate = field(init=False)
    _by_call_id: dict[str, Outcome] = field(default_factory=dict)
    _replies: dict[str, UserReply] = field(default_factory=dict)
    _far_open: dict[str, Environment] = field(default_factory=dict)
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._gate = Gate(1, self.max_waiting, TURN_WAIT_S)
        if not self.transcript:
            self.transcript.append({"role": "user", "content": self.turn.say})

    # ---- the agent's plane ------------------------------------------------------------

    @property
    def turn(self) -> Turn:
        """The latest user turn."""
        return self.task.turns[self._turn]

    def tools(self) -> Sequence[ToolSpec]:
        """Tools served now: the world's without the hidden ones, far distractors among them.

        The order of distractors follows from the seed: a place of their own would give them away.
        """
        hidden = set(self.turn.hide)
        tools = [*self.bundle.manifest.tools, *(f.spec for f in self.far.values())]
        if self.far:
            random.Random(f"order:{self.spec.seed}:{self.spec.task}").shuffle(tools)
        return [tool for tool in tools if tool.name not in hidden]

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
            BusyError: too many calls wait, or this one waited too long; it did not run.
            JournalError: the call cannot be recorded; it has changed nothing.
        """
        with anyio.CancelScope(shield=True):  # the record must not depend on who still listens
            outcome = await self._call(tool, args, call_id, progress)
        return outcome

    async def _call(
        self, tool: str, args: Mapping[str, Json], call_id: str | None, progress: Progress | None
    ) -> Outcome:
        await self._enter()
        try:
            self._must_be_open()
            if call_id is not None and call_id in self._by_call_id:
                return self._by_call_id[call_id]
            if len(self.calls) >= self.spec.max_calls:
                return self._refuse()
            outcome = await self._recorded(tool, args, call_id, progress)
            if call_id is not None:
                self._by_call_id[call_id] = outcome
            return outcome
        finally:
            self._gate.leave()

    async def _enter(self) -> None:
        """Wait for this call's turn."""
        try:
            await self._gate.enter()
        except BusyError as error:
            raise BusyError(
                f"This episode runs one call after the other, and {self._gate.waiting} wait.",
                "Wait for the answers, then send this call again.",
            ) from error

    @asynccontextmanager
    async def _turn_of(self, *, first: bool = False) -> AsyncIterator[None]:
        """The turn of an operation of the control plane, at the latest after TURN_WAIT_S."""
        await self._gate.enter(first=first, counted=False)
        try:
            yield
        finally:
            self._gate.leave()

    def _refuse(self) -> Outcome:
        limit = f"this episode allows {self.spec.max_calls} calls; answer with what you have"
        now = self.environment.state_hash
        return Outcome(None, ToolFailure(errors.TOO_MANY_CALLS, limit), {}, now, now, 0.0)

    def _too_deep(self) -> Outcome:
        """Arguments that no record can hold; the call counts all the same."""
        now = self.environment.state_hash
        return Outcome(None, too_deep(), {}, now, now, 0.0)

    async def _recorded(
        self, tool: str, args: Mapping[str, Json], call_id: str | None, progress: Progress | None
    ) -> Outcome:
        index = len(self.calls)
        beyond = deeper_than(args, MAX_ARGUMENT_DEPTH)
        served = {spec.name for spec in self.tools()}
        fault = fault_at(self.spec.seed, index, self.spec.fault_rate) if tool in served else None
        origin: Literal["world", "distractor", "none"] = "none"
        if tool in served:
            origin = "distractor" if tool in self.far else "world"
        before = self.environment.state
        try:
            if beyond and origin != "none":
                outcome, far = self._too_deep(), None
            else:
                outcome, far = await self._run(tool, args, origin, fault, progress)
            self._must_be_open()
        except SandboxError as error:
            await self._corrupt(f"the sandbox failed: {error.message}")
            await self._release()
            raise EpisodeError(
                "This episode ended because its environment was lost.", "Open a new episode."
            ) from error
        failure = outcome.failure
        call = Call(
            index=index,
            turn=self.turn.id,
            tool=tool,
            args={} if beyond else dict(args),
            result=outcome.result,
            failure=Failure(code=failure.code, message=failure.message) if failure else None,
            fault=fault,
            origin=origin,
            state_before=outcome.state_before,
            state_after=outcome.state_after,
            seconds=round(outcome.seconds, 6),
        )
        event = {"event": "call", "call": call.model_dump(mode="json"), "call_id": call_id}
        try:
            self.log.append(event | {"changes": outcome.changes} | (far.event if far else {}))
        except JournalError:
            if outcome.changes:
                self.environment.restore(before)
            if far is not None:
                far.undo()
            raise
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
    ) -> tuple[Outcome, FarCall | None]:
        now = self.environment.state_hash
        if origin == "none":
            failure = ToolFailure(errors.UNKNOWN_TOOL, "no such tool")
            return Outcome(None, failure, {}, now, now, 0.0), None
        if fault is not None:
            return Outcome(None, ToolFailure(fault, FAULT_TEXT[fault]), {}, now, now, 0.0), None
        if origin == "world":
            return await self.environment.call(tool, args, progress), None
        world = self.far[tool].world
        if world.ref not in self._far_open:
            self._far_open[world.ref] = await world.open(self.far_states.get(world.ref))
        there = self._far_open[world.ref]
        far = FarCall(world.ref, there, there.state)
        far.outcome = outcome = await there.call(tool, args, progress)
        return Outcome(outcome.result, outcome.failure, {}, now, now, outcome.seconds), far

    # ---- the control plane ------------------------------------------------------------

    async def post_message(
        self, text: str, request_id: str | None = None, call_id: str | None = None
    ) -> UserReply:
        """Give the user a message of the agent: the next turn, a nudge, or the end.

        Args:
            call_id: The agent's own id, when it says this itself; repeated, it gives the first
                reply and says nothing.

        Raises:
            EpisodeError: the episode has ended, or the text is too long.
            JournalError: the message cannot be recorded; it has changed nothing.
        """
        _check_text(text)
        async with self._turn_of():
            if call_id is not None and call_id in self._replies:
                return self._replies[call_id]
            self._must_be_open()
            if len(self.messages) >= MAX_MESSAGES:
                raise EpisodeError(
                    f"An episode takes {MAX_MESSAGES} messages.", "Submit an answer, or close it."
                )
            reply, opened = self._answer_to(text)
            message = Message(
                text=text, turn=self.turn.id, calls_before=len(self.calls), opened=opened
            )
            event = {"event": "message", "message": message.model_dump(mode="json")}
            ids = {"request_id": request_id, "call_id": call_id}
            self.log.append(event | ids | {"kind": reply.kind})
            self._apply_message(message, reply, call_id)
        return reply

    def _answer_to(self, text: str) -> tuple[UserReply, str | None]:
        kind = reply_kind(self.task.turns, self._turn, self._nudges, text)
        if self._ended or kind == "end":
            return UserReply(kind="end"), None
        if kind == "nudge":
            return UserReply(kind="nudge", text=NUDGE), None
        turn = self.task.turns[self._turn + 1]
        changed = set(self.turn.hide) != set(turn.hide)
        return UserReply(kind="user", text=turn.say, tools_changed=changed), turn.id

    def _apply_message(self, message: Message, reply: UserReply, call_id: str | None) -> None:
        self.messages.append(message)
        if call_id is not None:
            self._replies[call_id] = reply
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

    async def submit(
        self, answer: str, request_id: str | None = None, call_id: str | None = None
    ) -> Grade:
        """Grade the attempt with this final answer and end the episode.

        Args:
            call_id: The agent's own id, when it submits itself; repeated, it gives the same grade.

        Raises:
            EpisodeError: the episode has ended, or the answer is too long.
            JournalError: the grade cannot be recorded; the episode is open as before.
            SandboxError: the golden run cannot be made now; the episode is open as before.
        """
        _check_text(answer)
        async with self._turn_of():
            if call_id is not None and call_id == self.submitted_by and self.result is not None:
                return self.result
            self._must_be_open()
            with anyio.CancelScope(shield=True):
                result = await self._submit(answer, request_id, call_id)
                await self._release()
        return result

    async def _submit(self, answer: str, request_id: str | None, call_id: str | None) -> Grade:
        try:
            result = self._graded(answer, await self.golden_run())
        except ReplayError as error:
            return await self._corrupt(error.message)
        if result is None:
            return await self._corrupt("the grader failed")
        ids = {"request_id": request_id, "call_id": call_id}
        event = {"event": "submit", "answer": answer, "grade": result.model_dump(mode="json")}
        self.log.append(event | ids)
        await self.log.commit()
        self._take_answer(answer, result, call_id)
        return result

    def _take_answer(self, answer: str, result: Grade, call_id: str | None) -> None:
        self.answer, self.result, self.submitted_by = answer, result, call_id
        self.transcript.append({"role": "assistant", "content": answer})
        self._end("graded", result.reason)

    async def golden_run(self) -> Golden:
        """The task's golden run, made now when it was not kept.

        Raises:
            ReplayError: the plan does not give what the task declares.
            SandboxError: it cannot be made now.
        """
        if self.golden is None:
            assert self.find_golden is not None  # whoever leaves it out says how to find it
            self.golden = await self.find_golden()
        return self.golden

    def _graded(self, answer: str, golden: Golden) -> Grade | None:
        """The grade, or None when the grader itself failed: better no reward than a wrong one."""
        try:
            return grade(
                self.task,
                golden,
                self.attempt(answer),
                self.bundle.state,
                locale=self.bundle.manifest.language,
                manifest=self.bundle.manifest,
                digest=self.bundle.digest,
            )
        except Exception:
            log.exception("the grader failed on %s", self.spec.task)
            return None

    def attempt(self, answer: str | None = None) -> Attempt:
        """The record so far, with `answer` in place of the one that was given."""
        return Attempt(
            calls=list(self.calls),
            messages=list(self.messages),
            answer=self.answer if answer is None else answer,
            final_state=self.environment.state,
            seed=self.spec.seed,
        )

    async def close(
        self,
        status: Status = "closed",
        reason: str = "closed without an answer",
        request_id: str | None = None,
    ) -> None:
        """End the episode without an answer: the reward is null, with `reason`.

        It waits for the call that runs now and for no other.

        Raises:
            JournalError: the end cannot be recorded; the episode is open as before.
        """
        async with self._turn_of(first=True):
            if self.status != "open":
                return
            with anyio.CancelScope(shield=True):
                event = {"event": "end", "status": status, "reason": reason}
                self.log.append(event | {"request_id": request_id})
                await self.log.commit()
                self.result = no_grade(reason)
                self._end(status, reason)
                await self._release()

    async def abandon(self, status: Status, reason: str) -> None:
        """End the episode at once and whatever happens, recorded or not; the reward is null."""
        if self.status == "open":
            self.result = no_grade(reason)
            self._end(status, reason)
        await self._release()

    async def suspend(self) -> None:
        """Free the processes of an open episode without ending it; the journal keeps it."""
        async with self._turn_of(first=True):
            self._suspended = True
            await self._release()

    async def mark_corrupt(self, reason: str) -> None:
        """End the episode as corrupt, whatever it was: the reward is null."""
        async with self._turn_of(first=True):
            await self._corrupt(reason)
        await self._release()

    async def _corrupt(self, reason: str) -> Grade:
        """End it as corrupt; a journal that does not take that either leaves it at the lease."""
        self.result = no_grade(f"corrupt: {reason}")
        self._end("corrupt", reason)
        try:
            self.log.append({"event": "end", "status": "corrupt", "reason": reason})
            await self.log.commit()
        except JournalError as error:
            log.error("a corrupt episode is not marked so in its journal: %s", error)
        return self.result

    def _end(self, status: Status, reason: str) -> None:
        self.status, self.reason = status, reason
        self._listeners.clear()

    async def _release(self) -> None:
        for environment in (self.environment, *self._far_open.values()):
            await environment.aclose()

    def _must_be_open(self) -> None:
        if self._suspended:
            raise EpisodeError("This host is stopping.", "Try again after its restart.")
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
            self._apply_message(message, reply, event.get("call_id"))
            return reply.model_dump(mode="json")
        elif kind == "submit":
            result = Grade.model_validate(event["grade"])
            self._take_answer(event["answer"], result, event.get("call_id"))
            return result.model_dump(mode="json")
        elif kind == "end":
            prefix = "corrupt: " if event["status"] == "corrupt" else ""
            self.result = no_grade(f"{prefix}{event['reason']}")
            self._end(event["status"], event["reason"])
            return {"status": self.status, "reason": self.reason}
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
