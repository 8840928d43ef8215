"""The language layer's compiler: a node white-list that turns tool source into guarded code.

RestrictedPython with a wider policy than its stock one: ordinary modern Python (classes, match,
dataclasses, f-strings, comprehensions, async) compiles; reflection does not. Names decide, so each
rule here is about how a name can be read, written or smuggled in; guards.py holds the run-time
half. This is the first wall, not the boundary: the operating system is (lockdown.py).
`facts` are what the worker wants to know about a source beforehand.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from RestrictedPython.compile import compile_restricted_eval, compile_restricted_exec
from RestrictedPython.transformer import (
    INSPECT_ATTRIBUTES,
    RestrictingNodeTransformer,
    copy_locations,
)

#: Attributes that no code may read, write, match or name at run time.
DENIED: Final = frozenset(INSPECT_ATTRIBUTES) | {
    "mro", "func_globals", "co_consts", "co_names", "cr_origin", "tb_lasti", "f_lasti",
}  # fmt: skip
#: Attributes that need a look at their object when the code runs.
GUARDED: Final = frozenset({"format", "format_map", "obj", "register", "clear_cache"})
#: Special methods that a class may define. Not __new__: copy.copy sets attributes on what it gives.
DEFINABLE: Final = frozenset(
    f"__{name}__"
    for name in """init post_init repr str len iter next getitem setitem delitem contains
    eq ne lt le gt ge hash bool call enter exit int float index abs neg pos invert round format
    reversed missing bytes add sub mul truediv floordiv mod pow and or xor lshift rshift radd rsub
    rmul rtruediv rfloordiv rmod iadd isub imul ior iand slots aenter aexit aiter anext""".split()
)
#: Special attributes that code may read; guards.py looks at the object as well.
READABLE: Final = (DEFINABLE - {"__slots__"}) | {
    "__name__", "__qualname__", "__doc__", "__class__", "__cause__", "__context__", "__dict__",
    "__members__", "__version__",
}  # fmt: skip
_IN_CLASS_BODY = {"__slots__", "_missing_", "_generate_next_value_", "_order_", "_ignore_"}
_SELF_MATCHING = frozenset(
    "bool bytearray bytes dict float frozenset int list set str tuple".split()
)
MAX_ERRORS = 5


class PolicyError(Exception):
    """The source is no Python, or uses what the policy refuses; says where."""


def _reserved(name: str) -> bool:
    """Names of the guards and of the interpreter's own variables."""
    surrounded = name[0] == "_" and name[-1] == "_" and name.strip("_") != ""
    return surrounded or name.startswith(("__", "_tmp"))


class Policy(RestrictingNodeTransformer):
    """The white-list; `_class` is the innermost class, whose name mangles `__x` names."""

    _class: str | None = None
    _in_class_body = False

    def _mangle(self, name: str) -> str:
        if self._class and name.startswith("__") and not name.endswith("__"):
            return f"_{self._class.lstrip('_')}{name}"
        return name

    def check_name(self, node: Any, name: str | None, allow_magic_methods: bool = False) -> None:
        """Record an error when `name` is one that tool code may not bind or read."""
        if name is None or not name.startswith("_") or name.strip("_") == "":
            return
        if name == "__name__" and isinstance(getattr(node, "ctx", None), ast.Load):
            return
        if allow_magic_methods and name in DEFINABLE and node.col_offset:
            return
        if self._in_class_body and name in _IN_CLASS_BODY:
            return
        if _reserved(self._mangle(name)):
            self.error(node, f'"{name}" is a reserved name.')

    def _plain(self, node: Any) -> Any:
        return self.node_contents_visit(node)

    # Allowed as they are: what they contain is visited, and items are not guarded.
    guard_iter = visit_Assign = visit_With = visit_AsyncWith = visit_AsyncFor = _plain
    visit_Await = visit_Match = visit_match_case = visit_MatchValue = visit_MatchSingleton = _plain
    visit_MatchSequence = visit_MatchOr = visit_Subscript = visit_Module = visit_Call = _plain

    def visit_Name(self, node: ast.Name) -> Any:  # noqa: D102
        self.check_name(node, node.id)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """`o.x += v` reads o.x natively, so a name that wants a guard cannot stand there."""
        if isinstance(node.target, ast.Attribute) and node.target.attr in GUARDED:
            self.error(node, f'"{node.target.attr}" cannot be augmented.')
        return self.node_contents_visit(node)

    def _declared(self, node: ast.Global | ast.Nonlocal) -> Any:
        for name in node.names:
            self.check_name(node, name)
        return node

    visit_Global = visit_Nonlocal = _declared

    def _captured(self, node: ast.MatchAs | ast.MatchStar) -> Any:
        self.check_name(node, node.name)
        return self.node_contents_visit(node)

    visit_MatchAs = visit_MatchStar = _captured

    def visit_MatchMapping(self, node: ast.MatchMapping) -> Any:  # noqa: D102
        self.check_name(node, node.rest)
        return self.node_contents_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> Any:
        """Class patterns read attributes natively: only plain, public keyword names.

        `int(x)` becomes `int() as x`, which never reads `__match_args__`.
        """
        only = node.patterns[0] if len(node.patterns) == 1 and not node.kwd_attrs else None
        if (
            isinstance(node.cls, ast.Name)
            and node.cls.id in _SELF_MATCHING
            and isinstance(only, ast.MatchAs)
            and only.pattern is None
        ):
            node.patterns = []
            if only.name is None:
                return self.node_contents_visit(node)
            return self.visit(ast.copy_location(ast.MatchAs(pattern=node, name=only.name), node))
        if node.patterns:
            self.error(node, "positional class patterns are not supported; use keyword patterns.")
        for name in node.kwd_attrs:
            if name.startswith("_") or name in DENIED or name in GUARDED:
                self.error(node, f'"{name}" is a restricted attribute.')
        return self.node_contents_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Outside class bodies an annotation is dropped, so it is never evaluated."""
        in_class = self._in_class_body
        self.node_contents_visit(node)
        if in_class or (node.value is None and isinstance(node.target, ast.Name)):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:  # noqa: D102
        self.check_name(node, node.name, True)
        self.check_function_argument_names(node)
        outer, self._in_class_body = self._in_class_body, False
        node = self.node_contents_visit(node)
        self._in_class_body = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """No metaclass but ABCMeta, which is dropped: abstractness is not enforced inside."""
        self.check_name(node, node.name)
        node.keywords = [word for word in node.keywords if not _is_abc_meta(word)]
        if any(word.arg in (None, "metaclass") for word in node.keywords):
            self.error(node, "metaclass is not allowed.")
        outer = self._class, self._in_class_body
        self._class, self._in_class_body = node.name, True
        node = self.node_contents_visit(node)
        self._class, self._in_class_body = outer
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Public reads stay native; private reads and every write go through a guard."""
        name = self._mangle(node.attr)
        reads = isinstance(node.ctx, ast.Load)
        if name in DENIED or (name.startswith("__") and not (reads and name in READABLE)):
            self.error(node, f'"{node.attr}" is a restricted attribute.')
        node = self.node_contents_visit(node)
        if reads:
            if not name.startswith("_") and name not in GUARDED:
                return node
            guard = ast.Name("_getattr_", ast.Load())
            call = ast.Call(guard, [node.value, ast.Constant(name)], [])
            copy_locations(call, node)
            return call
        node.value = ast.Call(ast.Name("_write_", ast.Load()), [node.value], [])
        copy_locations(node.value, node)
        return node


def _is_abc_meta(word: ast.keyword) -> bool:
    return (
        word.arg == "metaclass"
        and isinstance(word.value, (ast.Name, ast.Attribute))
        and ast.unparse(word.value).split(".")[-1] == "ABCMeta"
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What a source says about itself.

    Attributes:
        imports: Top-level names of the modules that it imports anywhere.
        keeps_nothing: Its module level holds nothing that a call could change, so one execution
            serves all calls; otherwise the worker executes it afresh for each call.
    """

    imports: frozenset[str]
    keeps_nothing: bool


def compile_source(source: str) -> CodeType:
    """Guarded code of one module.

    Raises:
        PolicyError: no Python, or refused; at most five places, each with its line.
    """
    result = compile_restricted_exec(source, filename="<tools>", policy=Policy)
    if result.errors or result.code is None:
        raise PolicyError("; ".join(result.errors[:MAX_ERRORS]))
    return result.code


def compile_expression(source: str) -> CodeType:
    """Guarded code of one expression, for the sandbox's own `eval`.

    Raises:
        SyntaxError: no expression, or refused.
    """
    result = compile_restricted_eval(source.strip(), policy=Policy)
    if result.errors or result.code is None:
        raise SyntaxError(result.errors[0] if result.errors else "not an expression")
    return result.code


def facts(source: str) -> Facts:
    """Read `Facts` from a source that compiles."""
    tree = ast.parse(source)
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports.add(node.module.split(".")[0])
    still = all(_is_still(node) for node in tree.body) and not _stores_attributes(tree)
    return Facts(frozenset(imports), still)


def _is_still(node: ast.stmt) -> bool:
    """Whether a module-level statement leaves nothing that could change."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Pass)):
        return True
    if isinstance(node, ast.Expr):
        return _is_constant(node.value)
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return node.value is None or _is_constant(node.value)
    if isinstance(node, ast.FunctionDef):
        defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
        return not node.decorator_list and all(map(_is_constant, defaults))
    if isinstance(node, ast.ClassDef):  # an exception class and nothing else
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        return (
            len(bases) == 1 == len(node.bases)
            and bases[0] in ("Exception", "ValueError", "RuntimeError", "ToolError")
            and not node.keywords
            and not node.decorator_list
            and all(_is_still(child) for child in node.body)
        )
    return False


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(map(_is_constant, node.elts))
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    return isinstance(node, ast.Constant)


def _stores_attributes(tree: ast.Module) -> bool:
    """Whether code may hang a value onto a function or class: anything but `self.x` in __init__."""
    harmless = {
        id(target)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__" and method.args.args
        for target in ast.walk(method)
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == method.args.args[0].arg
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            return True
        if isinstance(node, ast.Name) and node.id in ("setattr", "delattr", "vars", "eval"):
            return True
        if (
            isinstance(node, ast.Attribute)
            and id(node) not in harmless
            and (node.attr == "__dict__" or not isinstance(node.ctx, ast.Load))
        ):
            return True
    return False
