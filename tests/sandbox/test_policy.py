"""What the language layer lets through as ordinary Python, and what it tells the worker."""

from __future__ import annotations

import pytest

from astra_mcp.sandbox import Sandbox
from astra_mcp.sandbox.policy import PolicyError, compile_source, facts
from tests.sandbox.helpers import STATE, load

ORDINARY = {
    "classes": """
class Base:
    kind = "base"
    def __init__(self, n):
        self._n = n
        self.__hidden = n + 1
    @property
    def n(self):
        return self._n
    @classmethod
    def make(cls):
        return cls(1)
    def __repr__(self):
        return f"{type(self).__name__}({self._n}, {self.__hidden})"
    def __eq__(self, other):
        return isinstance(other, Base) and self._n == other._n
class Child(Base):
    def __init__(self, n):
        super().__init__(n * 2)
class Old(Base):
    def __init__(self, n):
        Base.__init__(self, n + 5)
VALUE = [Old(1).n, repr(Child(2)), Base.make() == Base(1), Child(1).n, Base.kind]
""",
    "dataclass": """
from dataclasses import asdict, dataclass, field, replace
@dataclass(frozen=True, order=True)
class P:
    x: int
    tags: list[str] = field(default_factory=list, compare=False)
VALUE = [asdict(P(1, ["a"])), P(1) < P(2), replace(P(1), x=5).x]
""",
    "enum": """
from enum import Enum, IntEnum, StrEnum, auto
class Color(StrEnum):
    RED = auto()
    BLUE = "b"
class Level(IntEnum):
    LOW = 1
VALUE = [Color("b").name, Color.RED.value, Level.LOW + 1, [c.value for c in Color]]
""",
    "match": """
def f(x):
    match x:
        case {"k": int(n)} if n > 1: return n
        case [first, *rest]: return [first, rest]
        case str() as s: return s
        case _: return None
VALUE = [f({"k": 3}), f([1, 2]), f("s"), f(4)]
""",
    "comprehensions and unpacking": """
a, (b, *c) = 1, (2, 3, 4)
d = {**{"x": 1}, "y": [i * j for i in range(3) for j in range(2) if i != j]}
d["x"] += 1; d["z"] = (n := 10)
del d["y"]
VALUE = [a, b, c, d, n, {i for i in [1]} == {1}, sum(i for i in range(4))]
""",
    "generators and closures": """
def count():
    n = 0
    def step():
        nonlocal n
        n += 1
        return n
    return step
def gen(k):
    yield from range(k)
    return
step = count()
VALUE = [step(), step(), list(gen(3)), list(map(lambda v: v + 1, [1]))]
""",
    "exceptions": """
class Trouble(Exception):
    def __init__(self, code):
        super().__init__(f"trouble {code}")
        self.code = code
def f():
    try:
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise Trouble(7) from e
        finally:
            pass
    except (Trouble, ValueError) as t:
        return [t.code, str(t), type(t.__cause__).__name__, t.args]
VALUE = f()
""",
    "formatting": """
row = {"a": 1.5}
VALUE = [f"{row['a']:>6.2f}|", "{:,} {x[0]} {y.real}".format(1000, x=[1], y=2), "%s" % 3,
    "{a}".format_map(row), f"{1!r:>{4}}"]
""",
    "libraries": """
import collections, functools, itertools, json, math, re, textwrap
from collections import Counter, defaultdict, deque
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Optional
@functools.lru_cache(maxsize=None)
def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)
VALUE = [fib(20), Counter("aab").most_common(1), str(Decimal("1.10") + 1), math.prod([2, 3]),
    (date(2024, 2, 28) + timedelta(days=2)).isoformat(), re.sub(r"(?P<w>a)", r"[\\g<w>]", "abc"),
    json.loads("[1]"), list(itertools.pairwise([1, 2, 3])),
    functools.reduce(lambda a, b: a * b, [2, 5])]
""",
    "context managers": """
import contextlib
@contextlib.contextmanager
def tag(name):
    out.append(f"<{name}>")
    yield name
    out.append(f"</{name}>")
class Own:
    def __enter__(self): return 5
    def __exit__(self, *error): return True
out = []
with tag("a") as name, Own() as five:
    out.append(name * five)
    raise ValueError
VALUE = out
""",
}


@pytest.mark.parametrize("name", ORDINARY)
async def test_ordinary_python_runs_as_outside(sandbox: Sandbox, name: str) -> None:
    source = ORDINARY[name] + "\ndef t(state):\n    return {'value': VALUE}\n"
    outside: dict[str, object] = {"__name__": "__main__"}
    exec(compile(ORDINARY[name], name, "exec", dont_inherit=True), outside)
    worker = await (await load(sandbox, source, {"t": "read"})).worker(STATE)
    reply = await worker.call("t", {}, b"")
    assert reply.failure is None
    assert repr(reply.result["value"]) == repr(_as_json(outside["VALUE"]))


def _as_json(value: object) -> object:
    return [_as_json(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("x = 1\ny = x.__globals__\n", "Line 2"),
        ("def f():\n    _getattr_ = 1\n", "Line 2"),
        ("import __main__\n", "Line 1"),
        ("class A(metaclass=type):\n    pass\n", "Line 1"),
        ("class A:\n    def __getattribute__(self, n):\n        pass\n", "Line 2"),
        ("class A:\n    def __new__(cls):\n        pass\n", "Line 2"),
        ("from os import *\n", "Line 1"),
    ],
)
def test_a_refusal_names_its_line(source: str, place: str) -> None:
    with pytest.raises(PolicyError, match=place):
        compile_source(source)


@pytest.mark.parametrize(
    ("source", "still"),
    [
        ('"""Doc."""\nimport math\nLIMIT = 5\nNAMES = ("a", "b")\n'
         "def f(s, *, a=None):\n    pass\n", True),
        ("class ToolError(Exception):\n    def __init__(self, c, m):\n"
         "        super().__init__(m)\n        self.code = c\n", True),
        ("SEEN = []\n", False),
        ("RATES = {}\n", False),
        ("def f(s, a=[]):\n    pass\n", False),
        ("import functools\n@functools.cache\ndef f(s):\n    pass\n", False),
        ("def f(s):\n    global N\n    N = 1\n", False),
        ("def f(s):\n    f.n = 1\n", False),
        ("def f(s):\n    setattr(f, 'n', 1)\n", False),
        ("class Box:\n    pass\n", False),
        ("class E(Exception):\n    seen = []\n", False),
        ("class E(Exception):\n    def hit(self):\n        self.n = 1\n", False),
        ("N = iter((1, 2))\n", False),
        ("if True:\n    X = 1\n", False),
    ],
)  # fmt: skip
def test_which_modules_keep_nothing(source: str, still: bool) -> None:
    assert facts(source).keeps_nothing is still


def test_imports_are_found_wherever_they_stand() -> None:
    source = "import a.b\ndef f(s):\n    from c import d\n    if s:\n        import e as g\n"
    assert facts(source).imports == {"a", "c", "e"}
