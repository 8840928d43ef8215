"""What guarded code calls at run time: attribute access, formatting, writes, `type`, `eval`.

Companion of policy.py. The rule: tool code may do what it likes with classes it defined itself
(`__module__` is `TOOL`), may read public attributes of everything, and may change nothing of the
interpreter's or the standard library's. Runs inside the jail only.
"""

from __future__ import annotations

import _string  # type: ignore[import-not-found]
import decimal
import string
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from astra_mcp.sandbox.policy import (
    DEFINABLE,
    DENIED,
    GUARDED,
    READABLE,
    compile_expression,
)

TOOL: Final = "tool"  # __name__ of every tool module, and so __module__ of its classes
_MISSING: Final = object()
_module_of: Final = type.__dict__["__module__"].__get__
_mro_of: Final = type.__dict__["__mro__"].__get__


def _refused(name: str) -> AttributeError:
    return AttributeError(f"{name!r} is not accessible in the sandbox")


def is_own(value: Any) -> bool:
    """Whether `value` is a class that tool code made, or an instance of one."""
    kind = value if isinstance(value, type) else type(value)
    try:
        return bool(_module_of(kind) == TOOL)
    except AttributeError:
        return False


def _defined_by_tool(value: Any, name: str) -> bool:
    """Whether `value.name` would be found in something that tool code itself wrote."""
    if type(value) is super:
        bound: Any = value
        me = bound.__self__
        order = _mro_of(me if isinstance(me, type) else type(me))
        order = order[order.index(bound.__thisclass__) + 1 :]
    elif isinstance(value, type):
        order = _mro_of(value)
    else:
        if is_own(value):
            try:
                if name in object.__getattribute__(value, "__dict__"):
                    return True
            except AttributeError:
                order = ()
        order = _mro_of(type(value))
    for kind in order:
        if name in type.__getattribute__(kind, "__dict__"):
            return bool(_module_of(kind) == TOOL)
    return False


def guarded_getattr(value: Any, name: str, default: Any = _MISSING) -> Any:
    """`getattr` for guarded code.

    Raises:
        AttributeError: absent, or not for tool code.
    """
    if type(name) is not str:
        raise TypeError("attribute name must be str")
    if name in DENIED:
        raise _refused(name)
    if name in GUARDED:
        special = _guarded_name(value, name)
        if special is not None:
            return special
    elif name.startswith("_"):
        if name == "__class__":
            return opaque_type(value)
        if name in ("__name__", "__qualname__", "__doc__"):
            found = getattr(value, name, None)
            if type(found) is str or found is None:
                return found
        if not _may_read(value, name):
            raise _refused(name)
        if name in DEFINABLE and isinstance(value, type):
            return _for_instances(value, getattr(value, name))
    return getattr(value, name) if default is _MISSING else getattr(value, name, default)


def _may_read(value: Any, name: str) -> bool:
    """Whether a name with a leading underscore may be read from `value`."""
    if name in ("__cause__", "__context__"):
        return isinstance(value, BaseException)
    if name == "__dict__":
        return is_own(value) and not isinstance(value, type)
    if name.startswith("__"):
        return name in READABLE and (is_own(value) or _is_bound_super(value))
    if name in ("_value_", "_name_"):
        return is_own(value)
    return not name.endswith("_") and _defined_by_tool(value, name)


def _is_bound_super(value: Any) -> bool:
    """Whether `value` is a `super()` of an instance; one of a class gives unbound functions."""
    bound: Any = value
    return type(value) is super and not isinstance(bound.__self__, type)


def _for_instances(kind: type, method: Any) -> Any:
    """`kind.__method__` that works on instances of `kind` only.

    The methods that dataclass writes set and read attributes unguarded, under names that tool code
    chose; called on anything else they would be a way past the guards.
    """
    if not callable(method):
        return method

    def call(self: Any, /, *args: Any, **words: Any) -> Any:
        if kind not in _mro_of(type(self)):
            raise TypeError(f"this method requires a {kind.__name__!r} object")
        return method(self, *args, **words)

    return call


def _guarded_name(value: Any, name: str) -> Any:
    """Stand-ins for str.format and friends; None when the plain attribute is fine."""
    if name in ("register", "clear_cache"):  # they change the library's own classes
        if isinstance(value, type) and not is_own(value):
            raise _refused(name)
        return None
    if name == "obj":
        if isinstance(value, (AttributeError, NameError, ImportError)):
            raise _refused(name)
        return None
    if isinstance(value, str):
        if name == "format":
            return lambda *args, **words: safe_format(value, args, words)
        return lambda mapping: safe_format(value, (), mapping)
    if isinstance(value, type) and issubclass(value, str):
        if name == "format":
            return lambda text, *args, **words: safe_format(text, args, words)
        return lambda text, mapping: safe_format(text, (), mapping)
    if not is_own(value):
        raise _refused(name)
    return None


def guarded_hasattr(value: Any, name: str) -> bool:
    """`hasattr` for guarded code."""
    try:
        guarded_getattr(value, name)
    except AttributeError:
        return False
    return True


def guarded_setattr(value: Any, name: str, new: Any) -> None:
    """`setattr` for guarded code."""
    if type(name) is not str or name.startswith("__") or name in DENIED:
        raise AttributeError("restricted attribute")
    setattr(guarded_write(value), name, new)


def guarded_delattr(value: Any, name: str) -> None:
    """`delattr` for guarded code."""
    if type(name) is not str or name.startswith("__"):
        raise AttributeError("restricted attribute")
    delattr(guarded_write(value), name)


def guarded_write(value: Any) -> Any:
    """`value` itself when tool code may set attributes on it.

    Raises:
        TypeError: it may not.
    """
    if is_own(value) or isinstance(value, (types.SimpleNamespace, decimal.Context)):
        return value
    if (
        type(value) is types.FunctionType
        and value.__module__ == TOOL
        and value.__globals__.get("__name__") == TOOL
    ):
        return value
    raise TypeError(f"cannot set attributes of {type(value).__name__!r} object in the sandbox")


class _Formatter(string.Formatter):
    """Format fields with attributes read through the guard."""

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, int | str]:
        first, rest = _string.formatter_field_name_split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, key in rest:
            value = guarded_getattr(value, key) if is_attribute else value[key]
        return value, first


def safe_format(text: str, args: Sequence[Any], words: Mapping[str, Any]) -> str:
    """`str.format` that cannot be used to read attributes past the guard."""
    plain = str.__str__(text)
    for _, field, spec, _ in _string.formatter_parser(plain):
        if (field and ("." in field or "[" in field)) or (spec and "{" in spec):
            return _Formatter().vformat(plain, args, words)
    if type(words) is dict:
        return plain.format(*args, **words)
    return plain.format_map(words)


def _stand_in(kind: type) -> type:
    return type(kind.__name__, (), {})


def _a_generator() -> Any:
    yield None


async def _a_coroutine() -> None:
    return None


def _opaque_kinds() -> dict[type, type]:
    coroutine = _a_coroutine()
    coroutine.close()
    kinds = [
        type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType,
        types.CodeType, types.FrameType, types.TracebackType, types.GeneratorType,
        types.CoroutineType, super, types.CellType,
    ]  # fmt: skip
    return {kind: _stand_in(kind) for kind in kinds}


_OPAQUE: Final = _opaque_kinds()


def opaque_type(value: Any) -> type:
    """The type of `value`; a stand-in with nothing in it for the interpreter's own kinds."""
    kind = type(value)
    return _OPAQUE[type] if issubclass(kind, type) else _OPAQUE.get(kind, kind)


class _TypeMeta(type):
    def __call__(cls, *args: Any) -> Any:
        if len(args) != 1:
            raise TypeError("type() takes 1 argument in the sandbox")
        return opaque_type(args[0])

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, type)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _OPAQUE[type]

    def __hash__(cls) -> int:
        return hash(type)


SafeType: Final = _TypeMeta("type", (), {})


def safe_eval_in(fresh_globals: Callable[[], dict[str, Any]]) -> Callable[..., Any]:
    """An `eval` under the same policy as the module, with only the names that it is given."""

    def safe_eval(source: str, globals_: Any = None, locals_: Any = None) -> Any:
        if type(source) is not str:
            raise TypeError("eval() arg 1 must be a string")
        code = compile_expression(source)
        names = fresh_globals()
        for given in (globals_, locals_):
            names |= {k: v for k, v in (given or {}).items() if not k.startswith("_")}
        return eval(code, names)

    return safe_eval
