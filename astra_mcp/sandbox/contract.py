"""What every sandbox must do, as one list of named behaviours: `astra doctor` and the tests run it.

Each behaviour is a statement and a small program that shows it on the running machine, with real
processes and real limits. A behaviour passes or says in one sentence what happened instead; none is
skipped. Where a program needs to act as if it had escaped the language layer, its template is
loaded unguarded, which nothing but this package can ask for.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from astra_mcp import errors
from astra_mcp.errors import AstraError, LoadError
from astra_mcp.sandbox.pool import Sandbox, Template
from astra_mcp.sandbox.reply import Reply, WorkerLost
from astra_mcp.sandbox.wire import Effect, Order
from astra_mcp.sandbox.worker import Worker

Json = Any
_CALL_S: Final = 0.1
_MEMORY_MB: Final = 64
_OUTPUT: Final = 2048
_NOW: Final = 1_741_773_600.0
_SEED: Final = b"contract"
_STATE: Final[Mapping[str, Any]] = {"items": {"a": {"n": 1, "tags": ["x"]}, "b": {"n": 2}}}
_BEHAVIOUR_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One statement and whether it holds here.

    Attributes:
        name: The statement.
        passed: Whether it holds.
        detail: What happened instead; empty when it holds.
    """

    name: str
    passed: bool
    detail: str = ""


class Unmet(Exception):
    """A behaviour does not hold; the text says what happened instead."""


def _expect(holds: bool, instead: object) -> None:
    if not holds:
        raise Unmet(str(instead)[:300])


class Bench:
    """Short ways to run a program in the sandbox under test."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._templates: list[Template] = []

    async def template(
        self, code: str, effect: Effect = "read", *, guarded: bool = True
    ) -> Template:
        """Load a module whose one tool is `tool`."""
        order = Order(
            code, {"tool": effect}, _CALL_S, 5.0, 60, _MEMORY_MB, _OUTPUT, _NOW, guarded=guarded
        )
        template = await self._sandbox._template(order)
        self._templates.append(template)
        return template

    async def worker(self, code: str, effect: Effect = "read", *, guarded: bool = True) -> Worker:
        """A worker of such a module, with `_STATE`."""
        template = await self.template(code, effect, guarded=guarded)
        return await template.worker(_STATE)

    async def failure(self, code: str, effect: Effect = "read", *, guarded: bool = True) -> Reply:
        """The reply to one call of `tool`, which must fail."""
        worker = await self.worker(code, effect, guarded=guarded)
        reply = await worker.call("tool", {}, _SEED)
        _expect(reply.failure is not None, f"it succeeded with {reply.result}")
        return reply

    async def close(self) -> None:
        """End all templates."""
        for template in self._templates:
            await template.aclose()


Check = Callable[[Bench], Awaitable[None]]
BEHAVIOURS: Final[list[tuple[str, Check]]] = []


def _behaviour(name: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        BEHAVIOURS.append((name, check))
        return check

    return register


async def run_contract(sandbox: Sandbox) -> list[Behaviour]:
    """Run every behaviour against a started sandbox, in order."""
    return [await run_behaviour(sandbox, name, check) for name, check in BEHAVIOURS]


async def run_behaviour(sandbox: Sandbox, name: str, check: Check) -> Behaviour:
    """Run one behaviour; whatever goes wrong in it is its result."""
    bench = Bench(sandbox)
    try:
        async with asyncio.timeout(_BEHAVIOUR_S):
            await check(bench)
    except Unmet as error:
        return Behaviour(name, False, str(error))
    except TimeoutError:
        return Behaviour(name, False, f"it took more than {_BEHAVIOUR_S:g} s")
    except AstraError as error:
        return Behaviour(name, False, f"{type(error).__name__}: {error}")
    finally:
        await bench.close()
    return Behaviour(name, True)


def _code_of(reply: Reply) -> str:
    return reply.failure.code if reply.failure is not None else "no failure"


# ---- answers ---------------------------------------------------------------------------------


@_behaviour("a tool answers with its result, several times")
async def _answers(bench: Bench) -> None:
    worker = await bench.worker(
        "def tool(state, *, k):\n    return {'n': state['items'][k]['n']}\n"
    )
    for key, n in (("a", 1), ("b", 2), ("a", 1)):
        reply = await worker.call("tool", {"k": key}, _SEED)
        _expect(reply == Reply(result={"n": n}), reply)


@_behaviour("a tool's own error arrives with its code and text, any other without either")
async def _errors(bench: Bench) -> None:
    own = (
        "class ToolError(Exception):\n    def __init__(self, code, text):\n"
        "        super().__init__(text)\n        self.code = code\n"
        "def tool(state):\n    raise ToolError('not_found', 'no such row')\n"
    )
    reply = await bench.failure(own)
    _expect(reply.failure == errors.ToolFailure("not_found", "no such row"), reply)
    reply = await bench.failure("def tool(state):\n    return {'x': 1 / len(state['none'])}\n")
    _expect(
        reply.failure == errors.ToolFailure(errors.CRASH, "the tool failed unexpectedly"), reply
    )


@_behaviour("a result that is no strict JSON object is refused")
async def _strict(bench: Bench) -> None:
    for value in (
        "[1]", "None", "{'x': float('nan')}", "{'x': float('inf')}", "{1: 2}", "{'x': b'y'}",
        "{'x': {1, 2}}", "{'x': 2**60}", "{'x': '\\ud800'}", "{'x': {None: 1}}",
    ):  # fmt: skip
        reply = await bench.failure(f"def tool(state):\n    return {value}\n")
        _expect(_code_of(reply) == errors.CONTRACT and reply.worker_alive, f"{value}: {reply}")


@_behaviour("a result beyond output_bytes is refused and the worker lives")
async def _output(bench: Bench) -> None:
    reply = await bench.failure(f"def tool(state):\n    return {{'x': 'y' * {_OUTPUT}}}\n")
    _expect(_code_of(reply) == errors.OUTPUT_LIMIT and reply.worker_alive, reply)


# ---- state -----------------------------------------------------------------------------------


@_behaviour("a write tool's changed rows are reported, exactly")
async def _writes(bench: Bench) -> None:
    code = (
        "def tool(state):\n    state['items']['a']['n'] += 1\n    state['items']['c'] = {'n': 9}\n"
        "    state['items'].pop('b', None)\n    return {}\n"
    )
    worker = await bench.worker(code, "write")
    first = await worker.call("tool", {}, _SEED)
    rows = {"a": {"n": 2, "tags": ["x"]}, "b": None, "c": {"n": 9}}
    _expect(first.changes == {"items": rows}, first)
    second = await worker.call("tool", {}, _SEED)
    _expect(second.changes == {"items": {"a": {"n": 3, "tags": ["x"]}}}, second)


@_behaviour("a read tool that changes the state is refused and the state restored")
async def _reads(bench: Bench) -> None:
    code = "def tool(state):\n    state['items']['a']['n'] += 1\n    return {}\n"
    worker = await bench.worker(code)
    for _ in range(2):
        reply = await worker.call("tool", {}, _SEED)
        _expect(_code_of(reply) == errors.CONTRACT, reply)
    look = (
        "def tool(state, *, spoil):\n    if spoil:\n        state['items']['a']['n'] = 5\n"
        "    return {'n': state['items']['a']['n']}\n"
    )
    worker = await bench.worker(look)
    await worker.call("tool", {"spoil": True}, _SEED)
    reply = await worker.call("tool", {"spoil": False}, _SEED)
    _expect(reply.result == {"n": 1}, reply)


@_behaviour("a failed call of a write tool leaves no trace")
async def _rollback(bench: Bench) -> None:
    code = (
        "def tool(state, *, fail):\n    n = state['items']['a']['n']\n"
        "    state['items']['a']['n'] = 7\n    state['items']['new'] = {}\n"
        "    if fail:\n        raise ValueError\n    return {'n': n, 'rows': len(state['items'])}\n"
    )
    worker = await bench.worker(code, "write")
    await worker.call("tool", {"fail": True}, _SEED)
    reply = await worker.call("tool", {"fail": False}, _SEED)
    _expect(reply.result == {"n": 1, "rows": 3}, reply)


@_behaviour("tables can be neither added, removed nor replaced, and rows are JSON objects")
async def _tables(bench: Bench) -> None:
    for change in (
        "state['more'] = {}", "state.pop('items')", "state['items'] = [1]",
        "state['items']['a'] = 5", "state['items'][3] = {}", "state['items']['a']['n'] = {1}",
        "state['items']['a']['n'] = (1,)", "state['items']['a'][5] = 1",
        "state['items']['a']['n'] = float('nan')",
    ):  # fmt: skip
        reply = await bench.failure(f"def tool(state):\n    {change}\n    return {{}}\n", "write")
        _expect(_code_of(reply) == errors.CONTRACT and reply.worker_alive, f"{change}: {reply}")


@_behaviour("nothing but the state survives a call")
async def _forgets(bench: Bench) -> None:
    code = (
        "import functools\nSEEN = []\nclass Box:\n    n = 0\n"
        "@functools.lru_cache\ndef once():\n    Box.n += 1\n    return len(SEEN)\n"
        "def tool(state):\n    SEEN.append(1)\n    return {'seen': once(), 'n': Box.n}\n"
    )
    worker = await bench.worker(code)
    for _ in range(3):
        reply = await worker.call("tool", {}, _SEED)
        _expect(reply.result == {"seen": 1, "n": 1}, reply)


@_behaviour("two workers share nothing")
async def _separate(bench: Bench) -> None:
    code = "def tool(state):\n    state['items']['a']['n'] += 1\n    return state['items']['a']\n"
    template = await bench.template(code, "write")
    one, two = await template.worker(_STATE), await template.worker(_STATE)
    for worker, n in ((one, 2), (one, 3), (two, 2)):
        reply = await worker.call("tool", {}, _SEED)
        _expect((reply.result or {}).get("n") == n, reply)


@_behaviour("clock and randomness follow from now and the call's seed alone")
async def _deterministic(bench: Bench) -> None:
    code = (
        "import datetime, random, secrets, time, uuid\n"
        "def tool(state):\n    return {'u': str(uuid.uuid4()), 'r': random.random(),\n"
        "        'own': random.Random().random(), 's': secrets.token_hex(8),\n"
        "        't': int(time.time()), 'd': datetime.datetime.now().isoformat(),\n"
        "        'day': datetime.date.today().isoformat(), 'h': hash('x') % 4096}\n"
    )
    template = await bench.template(code)
    one, two = await template.worker(_STATE), await template.worker(_STATE)
    first = await one.call("tool", {}, b"1")
    other = await one.call("tool", {}, b"2")
    again = [await worker.call("tool", {}, b"1") for worker in (one, two)]
    _expect(first.failure is None and first.result["t"] == int(_NOW), first)
    _expect(again == [first, first], again)
    _expect(all(first.result[k] != other.result[k] for k in ("u", "r", "own", "s")), other)


# ---- limits ----------------------------------------------------------------------------------


@_behaviour("a call that uses too much time is stopped and the worker lives")
async def _time(bench: Bench) -> None:
    reply = await bench.failure("def tool(state):\n    while True:\n        pass\n")
    _expect(_code_of(reply) == errors.TIMEOUT and reply.worker_alive, reply)


@_behaviour("a call that cannot be interrupted costs the worker, not the host")
async def _hard_time(bench: Bench) -> None:
    swallow = (
        "def tool(state):\n    while True:\n        try:\n            while True:\n"
        "                pass\n        except BaseException:\n            pass\n"
    )
    for code in ("def tool(state):\n    return {'x': sum(range(10**12))}\n", swallow):
        reply = await bench.failure(code)
        _expect(_code_of(reply) == errors.TIMEOUT and not reply.worker_alive, reply)


@_behaviour("a call that sleeps for ever is stopped by the wall clock")
async def _wall_time(bench: Bench) -> None:
    code = "import _thread\ndef tool(state):\n    lock = _thread.allocate_lock()\n"
    code += "    lock.acquire()\n    lock.acquire()\n    return {}\n"
    reply = await bench.failure(code, guarded=False)
    _expect(_code_of(reply) == errors.TIMEOUT and not reply.worker_alive, reply)


@_behaviour("a call that uses too much memory is stopped")
async def _memory(bench: Bench) -> None:
    reply = await bench.failure("def tool(state):\n    return {'x': len('y' * (1 << 33))}\n")
    _expect(_code_of(reply) == errors.MEMORY_LIMIT, reply)


@_behaviour("a crash of the interpreter costs one call")
async def _crash(bench: Bench) -> None:
    for action in ("import ctypes\n    ctypes.string_at(8)", "import os\n    os._exit(0)"):
        reply = await bench.failure(f"def tool(state):\n    {action}\n", guarded=False)
        _expect(_code_of(reply) == errors.CRASH and not reply.worker_alive, reply)


@_behaviour("anything on the line but the awaited answer ends the worker")
async def _forgery(bench: Bench) -> None:
    code = (
        "import os\ndef tool(state):\n    for fd in range(3, 64):\n        try:\n"
        "            os.write(fd, bytes([2, 0, 0, 0]) + bytes(8) + b'{}')\n"
        "        except OSError:\n            pass\n    return {}\n"
    )
    reply = await bench.failure(code, guarded=False)
    _expect(_code_of(reply) == errors.CRASH and not reply.worker_alive, reply)


@_behaviour("a worker killed from outside is lost, and another one answers")
async def _lost(bench: Bench) -> None:
    template = await bench.template("def tool(state):\n    return {}\n")
    worker = await template.worker(_STATE)
    os.kill(worker.pid, signal.SIGKILL)
    try:
        reply = await worker.call("tool", {}, _SEED)
    except WorkerLost:
        reply = await (await template.worker(_STATE)).call("tool", {}, _SEED)
        _expect(reply == Reply(result={}), reply)
        return
    raise Unmet(f"it answered {reply}")


# ---- walls -----------------------------------------------------------------------------------


@_behaviour("the language layer refuses reflection and foreign modules")
async def _language(bench: Bench) -> None:
    for body in (
        "return {'x': str(tool.__globals__)}", "import subprocess", "import ctypes",
        "return {'x': str(().__class__.__base__.__subclasses__())}", "exec('1')", "open('/')",
    ):  # fmt: skip
        try:
            reply = await bench.failure(f"def tool(state):\n    {body}\n    return {{}}\n")
        except LoadError:
            continue
        _expect(_code_of(reply) == errors.CRASH, f"{body}: {reply}")


@_behaviour("with the language layer escaped, the kernel refuses files, network and programs")
async def _kernel(bench: Bench) -> None:
    code = (
        "import os, socket\ndef tool(state):\n    allowed = []\n"
        "    for name, act in (('open', lambda: os.open('/etc/passwd', 0)),\n"
        "            ('write', lambda: os.open('/tmp/astra-contract', os.O_CREAT | os.O_WRONLY)),\n"
        "            ('list', lambda: os.listdir('/')), ('socket', socket.socket),\n"
        "            ('fork', os.fork), ('exec', lambda: os.execv('/bin/true', ['true'])),\n"
        "            ('kill', lambda: os.kill(os.getpid(), 0)), ('setsid', os.setsid)):\n"
        "        try:\n            act()\n        except OSError:\n            continue\n"
        "        allowed.append(name)\n    return {'allowed': allowed}\n"
    )
    worker = await bench.worker(code, guarded=False)
    reply = await worker.call("tool", {}, _SEED)
    _expect(reply == Reply(result={"allowed": []}), reply)


@_behaviour("no variable of the host's environment is visible inside")
async def _environment(bench: Bench) -> None:
    code = "import os\ndef tool(state):\n    return {'names': sorted(os.environ)}\n"
    worker = await bench.worker(code, guarded=False)
    reply = await worker.call("tool", {}, _SEED)
    allowed = {"LC_ALL", "PYTHONHASHSEED", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME"}
    _expect(reply.failure is None and set(reply.result["names"]) <= allowed, reply)
