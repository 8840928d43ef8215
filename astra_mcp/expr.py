"""The one expression language: JMESPath plus a few functions, over {step id: result}.

An `Expr` is compiled once (cached) and knows, from its syntax tree, which root names it reads
(`refs`); the dependency graph of a plan is read from that and never declared twice. The root as a
whole is no value (`@`, `*`, `keys(@)` at the root are refused), so `refs` is always complete: with
one of them missing an expression does not evaluate, with any other name missing it does not notice.
Evaluation is pure and bounded: length, depth, steps and size of values have limits, because
expressions come from bundles that nobody has trusted yet. Results share structure with their input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from jmespath.exceptions import JMESPathError, JMESPathTypeError
from jmespath.functions import Functions
from jmespath.parser import Parser
from jmespath.visitor import TreeInterpreter

from astra_mcp import expr_functions as own
from astra_mcp.errors import ExpressionError

Json = Any
Node = Mapping[str, Any]

MAX_LENGTH: Final = 2_000
MAX_DEPTH: Final = 64
MAX_STEPS: Final = 400_000
"""Syntax nodes visited plus values looked at in one evaluation."""
MAX_VALUES: Final = 100_000
"""Values (members, at every depth) in one intermediate or final result."""
MAX_NESTING: Final = 200
MAX_TEXT: Final = 1_000_000
EXPR_KEY: Final = "$expr"

_BUILT_IN: Final = Functions()
_SEQUENCE: Final = frozenset({"subexpression", "pipe", "index_expression"})
_GROWS: Final = frozenset(
    {"multi_select_list", "multi_select_dict", "flatten", "function_expression"}
)


@dataclass(frozen=True)
class Expr:
    """A compiled expression.

    Attributes:
        text: What was compiled.
        refs: Root names that it reads.
    """

    text: str
    refs: frozenset[str]
    _tree: Node = field(repr=False, compare=False)

    def evaluate(self, data: Mapping[str, Json]) -> Json:
        """Its value over `data`, a mapping from root name to JSON value; `data` is not changed.

        Raises:
            ExpressionError: a root name is missing, a function gets the wrong type, a number
                leaves JSON's range, or a limit is passed.
        """
        if missing := sorted(self.refs - data.keys()):
            raise ExpressionError(
                f"Expression {_short(self.text)} needs {missing}, which has no result.",
                "Evaluate it after the steps that it names.",
            )
        interpreter = _Bounded()
        try:
            result = interpreter.visit(self._tree, data)
            interpreter.measure(result)
        except ExpressionError as error:
            raise ExpressionError(
                f"Expression {_short(self.text)}: {error.message}", error.remedy
            ) from error
        except (JMESPathError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ExpressionError(
                f"Expression {_short(self.text)} cannot be evaluated: {_first_line(error)}.",
                "A path that leads nowhere gives null; compare it with the tool's result.",
            ) from error
        except RecursionError as error:
            raise ExpressionError(
                f"Expression {_short(self.text)} meets data nested too deep."
            ) from error
        return result


@lru_cache(maxsize=4096)
def compile_expr(text: str) -> Expr:
    """Parse and check an expression.

    Raises:
        ExpressionError: no JMESPath, unknown function, wrong number of arguments, too long or too
            deep, a literal that is no JSON, or the root used as a whole.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"An expression has {len(text)} characters.", f"Use at most {MAX_LENGTH}."
        )
    try:
        tree: Node = Parser().parse(text).parsed
    except (JMESPathError, ValueError, RecursionError) as error:
        raise ExpressionError(
            f"Expression {_short(text)} does not parse: {_first_line(error)}.",
            "Write JMESPath; literals are JSON between backticks.",
        ) from error
    refs: set[str] = set()
    if _collect(tree, at_root=True, refs=refs, depth=0, text=text):
        raise _whole_root(text)
    return Expr(text, frozenset(refs), tree)


def _collect(node: Node, *, at_root: bool, refs: set[str], depth: int, text: str) -> bool:
    """Add the root names that `node` reads; True when its value is the root itself."""
    if depth > MAX_DEPTH:
        raise ExpressionError(
            f"Expression {_short(text)} is nested too deep.", f"Use at most {MAX_DEPTH} levels."
        )
    kind = node["type"]
    if kind == "field":
        if at_root:
            refs.add(node["value"])
        return False
    if kind in ("current", "identity"):
        return at_root
    if kind == "literal":
        _check_literal(node["value"], text, 0)
        return False
    if kind in ("index", "slice"):
        return _no_root(at_root, text)
    if kind in _SEQUENCE:
        scope = at_root
        for child in node["children"]:
            scope = _collect(child, at_root=scope, refs=refs, depth=depth + 1, text=text)
        return scope
    if kind == "function_expression":
        _check_call(node, text)
    for position, child in enumerate(node["children"]):
        inner = at_root and kind != "expref" and not ("projection" in kind and position > 0)
        _no_root(_collect(child, at_root=inner, refs=refs, depth=depth + 1, text=text), text)
    return False


def _no_root(is_root: bool, text: str) -> bool:
    if is_root:
        raise _whole_root(text)
    return False


def _whole_root(text: str) -> ExpressionError:
    return ExpressionError(
        f"Expression {_short(text)} uses all results at once.", "Name the steps that it reads."
    )


def _check_literal(value: Json, text: str, depth: int) -> None:
    if depth > MAX_DEPTH or (isinstance(value, float) and not isfinite(value)):
        raise ExpressionError(
            f"Expression {_short(text)} has a literal that is no JSON, or too deep."
        )
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            _check_literal(item, text, depth + 1)


def _check_call(node: Node, text: str) -> None:
    name, given = node["value"], len(node["children"])
    if name in own.FUNCTIONS:
        _, types, optional = own.FUNCTIONS[name]
        fewest, most = len(types) - optional, len(types)
    elif name in _BUILT_IN.FUNCTION_TABLE:
        signature = _BUILT_IN.FUNCTION_TABLE[name]["signature"]
        variadic = bool(signature) and bool(signature[-1].get("variadic"))
        fewest, most = len(signature), MAX_LENGTH if variadic else len(signature)
    else:
        raise ExpressionError(
            f"Expression {_short(text)} calls {name}(), which does not exist.",
            f"Beside JMESPath's own functions there are {', '.join(sorted(own.FUNCTIONS))}.",
        )
    if not fewest <= given <= most:
        raise ExpressionError(
            f"Expression {_short(text)} gives {name}() {given} arguments; it takes {fewest}."
        )


class _Functions:
    """Calls of this project's functions and of JMESPath's own, which they take precedence over."""

    def __init__(self, interpreter: _Bounded) -> None:
        self._interpreter = interpreter

    def call_function(self, name: str, args: list[Json]) -> Json:
        """Called by the interpreter with evaluated arguments."""
        for arg in args:
            self._interpreter.measure(arg)
        if name in own.FUNCTIONS:
            return own.call(name, args)
        return _BUILT_IN.call_function(name, args)


class _Bounded(TreeInterpreter):  # type: ignore[misc]  # jmespath has no types
    """JMESPath's interpreter with a budget, so that no expression can run or grow without end."""

    def __init__(self) -> None:
        super().__init__()
        self._functions = _Functions(self)
        self._left = MAX_STEPS

    def visit(self, node: Node, *args: Any, **kwargs: Any) -> Json:
        """Evaluate one syntax node."""
        self._spend(1)
        result = super().visit(node, *args, **kwargs)
        if node["type"] in _GROWS:
            self.measure(result)
        return result

    def measure(self, value: Json) -> None:
        """Refuse a value that is too big or holds a number that is no JSON."""
        seen = text = depth = 0
        level = [value]
        while level:
            seen += len(level)
            depth += 1
            below: list[Json] = []
            for item in level:
                if isinstance(item, str):
                    text += len(item)
                elif isinstance(item, dict):
                    below.extend(item.values())
                elif isinstance(item, list):
                    below.extend(item)
                elif isinstance(item, float) and not isfinite(item):
                    raise ExpressionError("A number is not finite.", "Use JSON numbers only.")
                if seen + len(below) > MAX_VALUES or text > MAX_TEXT or depth > MAX_NESTING:
                    raise ExpressionError("A value is too large.", "Select fewer rows or columns.")
            level = below
        self._spend(seen)

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise ExpressionError("It takes too many steps.", "Select fewer rows or columns.")


def arg_refs(args: Json) -> set[str]:
    """Root names read by every `{"$expr": ...}` leaf of (nested) arguments.

    Raises:
        ExpressionError: a leaf has other keys beside `$expr`, or does not compile.
    """
    if isinstance(args, dict):
        if EXPR_KEY in args:
            return set(_leaf(args).refs)
        return set().union(*(arg_refs(value) for value in args.values()))
    if isinstance(args, list):
        return set().union(*(arg_refs(value) for value in args))
    return set()


def bind_args(args: Mapping[str, Json], results: Mapping[str, Json]) -> dict[str, Json]:
    """A copy of `args` with every `{"$expr": ...}` leaf replaced by its value over `results`.

    Raises:
        ExpressionError: a leaf cannot be evaluated, or gives null (a literal null is written so).
    """
    return {name: _bind(value, results) for name, value in args.items()}


def _bind(value: Json, results: Mapping[str, Json]) -> Json:
    if isinstance(value, dict):
        if EXPR_KEY in value:
            expr = _leaf(value)
            bound = expr.evaluate(results)
            if bound is None:
                raise ExpressionError(
                    f"Expression {_short(expr.text)} gives null for an argument.",
                    "Compare its path with the result of the step that it names.",
                )
            return _copy(bound)
        return {key: _bind(item, results) for key, item in value.items()}
    if isinstance(value, list):
        return [_bind(item, results) for item in value]
    return value


def _leaf(value: Mapping[str, Json]) -> Expr:
    text = value[EXPR_KEY]
    if len(value) != 1 or not isinstance(text, str):
        raise ExpressionError(
            'An argument\'s "$expr" is not a single text.',
            'Write {"$expr": "<expression>"} and nothing beside it.',
        )
    return compile_expr(text)


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _first_line(error: BaseException) -> str:
    """What a library says, without the data that it would quote."""
    if isinstance(error, JMESPathTypeError):
        expected = " or ".join(error.expected_types)
        return f"{error.function_name}() takes {expected}, got {error.actual_type}"
    lines = str(error).splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".:")[:160]
