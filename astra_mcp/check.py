"""What an author asks of a bundle while writing it: does it load, replay, and grade as it should?

Every task's golden plan is run in the real sandbox; each declared value is compared with what the
plan gives; every listed phrasing is put to its matcher; the plan's own run is graded, which must
give F1 = 1 and a true outcome. This is an author's tool: its findings name sealed values, so they
belong on the author's terminal and nowhere else. It is no audit: it does not look for leaks,
shortcuts or lying tools.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from astra_mcp.attempt import Attempt, Call, Golden, Message
from astra_mcp.bundle import Bundle
from astra_mcp.difficulty import measure
from astra_mcp.errors import AstraError
from astra_mcp.expr import compile_expr
from astra_mcp.golden import Replay, declared, replay
from astra_mcp.grade import grade
from astra_mcp.match import match_text, match_value
from astra_mcp.task import Expect, Task
from astra_mcp.world import World

Json = Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where."""

    task: str
    place: str
    problem: str


@dataclass(frozen=True)
class Checked:
    """What checking a bundle found; `corrected` has every derived value as the plan gives it."""

    bundle: Bundle
    findings: list[Finding]
    corrected: Bundle


async def check_bundle(bundle: Bundle, world: World) -> Checked:
    """Check every task of a bundle.

    Raises:
        SandboxError: the world cannot be run at all.
    """
    findings = _signature_findings(bundle)
    tasks: list[Task] = []
    for task in bundle.sealed.tasks:
        run = await replay(world, task)
        corrected = task
        if run.failed is not None:
            findings.append(_step_finding(task, run))
        else:
            corrected = _corrected(task, run, bundle)
            findings += _value_findings(task, run)
            findings += _difficulty_findings(task, corrected)
            findings += _grade_findings(bundle, task, run)
        findings += _phrase_findings(bundle, task)
        tasks.append(corrected)
    sealed = bundle.sealed.model_copy(update={"tasks": tasks})
    return Checked(bundle, findings, bundle.model_copy(update={"sealed": sealed}))


def _signature_findings(bundle: Bundle) -> list[Finding]:
    """Tools whose function does not take what their schema lets in; nothing is executed."""
    try:
        tree = ast.parse(bundle.code)
    except SyntaxError:
        return []  # the sandbox says so, with the line
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    findings = []
    for tool in bundle.manifest.tools:
        if (function := functions.get(tool.name)) is None:
            continue
        arguments = function.args
        takes = {arg.arg for arg in (*arguments.args[1:], *arguments.kwonlyargs)}
        offers = set(tool.input_schema.get("properties", {}))
        for names, what in (
            (offers - takes, "the schema has {}, the function does not take it"),
            (takes - offers, "the function takes {}, the schema does not have it"),
        ):
            findings += [Finding("-", f"tool {tool.name}", what.format(n)) for n in sorted(names)]
    return findings


def _results(run: Replay) -> dict[str, Json]:
    return {step.id: step.result for step in run.steps}


def _calls(run: Replay) -> list[Call]:
    """The plan's run as an agent's calls."""
    return [
        Call(
            index=index,
            turn=step.turn,
            tool=step.tool,
            args=step.args,
            result=step.result,
            state_before=outcome.state_before,
            state_after=outcome.state_after,
        )
        for index, (step, outcome) in enumerate(zip(run.steps, run.outcomes, strict=True))
    ]


def _step_finding(task: Task, run: Replay) -> Finding:
    failure = run.outcomes[-1].failure if run.outcomes else None
    detail = f" ({failure.message})" if failure is not None else ""
    return Finding(task.id, f"step {run.failed}", f"{run.problem}{detail}")


def _derived(expect: Expect, results: Mapping[str, Json]) -> Json:
    assert expect.expr is not None
    return compile_expr(expect.expr).evaluate(dict(results))


def _value_findings(task: Task, run: Replay) -> list[Finding]:
    findings = []
    for name, expect in declared(task):
        if expect.expr is None:
            continue
        try:
            derived = _derived(expect, _results(run))
        except AstraError as error:
            findings.append(Finding(task.id, name, error.message))
            continue
        if not match_value(expect.match, expect.value, derived):
            problem = f"declared {_short(expect.value)}, the plan gives {_short(derived)}"
            findings.append(Finding(task.id, name, problem))
    return findings


def _corrected(task: Task, run: Replay, bundle: Bundle) -> Task:
    """The task with every derivable value and the difficulty as they really are."""

    def mend(expect: Expect | None) -> Expect | None:
        if expect is None or expect.expr is None:
            return expect
        try:
            derived = _derived(expect, _results(run))
        except AstraError:
            return expect
        if derived in (None, "", [], {}) or match_value(expect.match, expect.value, derived):
            return expect
        return expect.model_copy(update={"value": derived})

    subtasks = [s.model_copy(update={"expect": mend(s.expect)}) for s in task.subtasks]
    difficulty = measure(task, bundle.manifest)
    update = {"subtasks": subtasks, "answer": mend(task.answer), "difficulty": difficulty}
    return task.model_copy(update=update)


def _difficulty_findings(task: Task, corrected: Task) -> list[Finding]:
    wanted, stated = corrected.difficulty.model_dump(), task.difficulty.model_dump()
    return [
        Finding(task.id, f"difficulty.{key}", f"declared {stated[key]}, measured {value}")
        for key, value in wanted.items()
        if stated[key] != value
    ]


def _phrase_findings(bundle: Bundle, task: Task) -> list[Finding]:
    findings = []
    locale = bundle.manifest.language
    for name, expect in declared(task):
        for wanted, phrases in ((True, expect.accept), (False, expect.reject)):
            for phrase in phrases:
                verdict = match_text(expect.match, expect.value, phrase, locale)
                if verdict.ok != wanted:
                    word = "refused" if wanted else "accepted"
                    problem = f"{phrase!r} is {word} ({verdict.why})"
                    findings.append(Finding(task.id, name, problem))
    return findings


def _grade_findings(bundle: Bundle, task: Task, run: Replay) -> list[Finding]:
    attempt = Attempt(
        calls=_calls(run),
        messages=_messages(task, _calls(run)),
        answer=golden_answer(task, _results(run)),
        final_state=run.final_state,
    )
    result = grade(
        task,
        Golden(digest=bundle.digest, task=task.id, steps=run.steps),
        attempt,
        bundle.state,
        locale=bundle.manifest.language,
        manifest=bundle.manifest,
    )
    if result.f1 == 1.0 and result.outcome:
        return []
    unsolved = [f"{item.id} ({item.why})" for item in result.items if not item.solved]
    extra = [call.index for call in result.calls if call.counted and not call.evidence_for]
    problem = f"the golden plan gives F1 {result.f1:.3f}, outcome {result.outcome}"
    if unsolved:
        problem += f"; not solved: {', '.join(unsolved)}"
    if extra:
        problem += f"; steps that are evidence of nothing: {[run.steps[i].id for i in extra]}"
    return [Finding(task.id, "grade", problem)]


def _messages(task: Task, calls: list[Call]) -> list[Message]:
    """What a perfect agent says: one message at the end of every turn but the last."""
    order = [turn.id for turn in task.turns]
    messages = []
    for here, following in zip(task.turns, task.turns[1:], strict=False):
        before = sum(1 for call in calls if order.index(call.turn) <= order.index(here.id))
        text = following.ask_words[0] if following.ask_words else "Done so far."
        messages.append(Message(text=text, turn=here.id, calls_before=before, opened=following.id))
    return messages


def golden_answer(task: Task, results: Mapping[str, Json]) -> str:
    """The answer of a perfect agent: what the plan gives, written for the matcher."""
    if task.answer is None:
        return "ANSWER: done"
    expect = task.answer
    try:
        value = expect.value if expect.expr is None else _derived(expect, results)
    except AstraError:
        value = expect.value
    return f"ANSWER: {render(value)}"


def render(value: Json) -> str:
    """A JSON value as an agent would write it in its answer."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(render(item) for item in value)
    if isinstance(value, dict):
        return "\n".join(f"{key}: {render(item)}" for key, item in value.items())
    return str(value)


def _short(value: Json) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."
