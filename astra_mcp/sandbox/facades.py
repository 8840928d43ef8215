"""Stand-ins for modules, and the builtins that tool code sees.

An import inside the sandbox never returns a real module: modules lead to `sys`, `os` and each other
through their private attributes. A facade holds the public names of an allow-listed module, minus
those that take attribute names or source text, reach files, or change state for the next call.
Containers in it are frozen copies. Runs inside the jail only.
"""

from __future__ import annotations

import ast
import builtins
import enum
import importlib
import posixpath
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from astra_mcp.sandbox import guards

Facades = Mapping[str, types.ModuleType]

#: Modules whose public names are offered, minus `_LEFT_OUT`.
_WHOLE: Final = """math cmath itertools datetime time decimal json re statistics random collections
    collections.abc functools operator string hashlib hmac uuid copy dataclasses heapq bisect base64
    binascii textwrap contextlib typing urllib.parse html fractions numbers calendar difflib
    unicodedata zlib csv secrets struct array queue pprint zoneinfo graphlib""".split()

#: Names left out: they take attribute names or source text, reach outside, or outlive the call.
_LEFT_OUT: Final[dict[str, str]] = {
    "string": "Formatter",
    "typing": "get_type_hints ForwardRef overload get_overloads clear_overloads"
    " dataclass_transform no_type_check_decorator",
    "functools": "singledispatch singledispatchmethod wraps update_wrapper",
    "operator": "attrgetter methodcaller",
    "collections": "UserString",
    "random": "SystemRandom",
    "dataclasses": "make_dataclass",
    "contextlib": "redirect_stdout redirect_stderr chdir",
    "json": "load dump",
    "base64": "encode decode main",
    "uuid": "getnode main",
    "calendar": "setfirstweekday",
    "csv": "register_dialect unregister_dialect field_size_limit",
    "zoneinfo": "reset_tzpath TZPATH",
    "decimal": "DefaultContext BasicContext ExtendedContext",
    "time": "clock_gettime clock_gettime_ns clock_settime clock_settime_ns clock_getres tzset"
    " pthread_getcpuclockid thread_time_ns get_clock_info",
    "re": "purge template",
    "graphlib": "",
}

#: Modules of which only these names are offered.
_ONLY: Final[dict[str, str]] = {
    "ast": "parse literal_eval NodeVisitor iter_child_nodes walk dump",
    "io": "StringIO BytesIO",
    "types": "SimpleNamespace MappingProxyType",
    "sys": "version_info version maxsize float_info byteorder platform",
    "abc": "ABC abstractmethod",
    "enum": "Enum IntEnum StrEnum Flag IntFlag auto unique",
    "inspect": "isclass",
}
#: Decorators that write to what they decorate -> whether anything else than own things is an error.
_DECORATORS: Final = {
    "dataclasses.dataclass": True,
    "functools.total_ordering": True,
    "typing.runtime_checkable": True,
    "typing.final": False,
    "typing.no_type_check": False,
    "typing.override": False,
    "abc.abstractmethod": False,
}
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: classes whose attributes can be set
_PATH_NAMES = "join basename dirname splitext split normpath isabs commonprefix"
_LOG_NAMES = "debug info warning warn error exception critical log"
_LOG_SETUP = "setLevel addHandler basicConfig"

_BUILTINS: Final = """None False True Ellipsis NotImplemented abs all any ascii bin bool bytes
    bytearray callable chr classmethod complex dict divmod enumerate filter float format frozenset
    hash hex id int isinstance issubclass iter len list map max min next object oct ord pow property
    range repr reversed round set slice sorted staticmethod str sum super tuple zip aiter anext
    __build_class__""".split()


def _facade(name: str, members: Mapping[str, Any]) -> types.ModuleType:
    # Never the real name: `from x import y` falls back to sys.modules["<__name__>.y"].
    module = types.ModuleType(f"sandbox:{name}")
    module.__dict__.update(members)
    return module


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, set):
        return frozenset(value)
    if type(value) is dict:
        return types.MappingProxyType(dict(value))
    return value


def _public(name: str) -> dict[str, Any]:
    real = importlib.import_module(name)
    if name in _ONLY:
        names = _ONLY[name].split()
        if name == "ast":
            names += [k for k, v in vars(ast).items() if isinstance(v, type) and v is not type
                      and issubclass(v, ast.AST)]  # fmt: skip
    else:
        listed: Sequence[str] = getattr(real, "__all__", dir(real))
        names = [item for item in listed if not item.startswith("_")]
    without = _LEFT_OUT.get(name, "").split()
    found = {k: getattr(real, k) for k in names if k not in without and hasattr(real, k)}
    return {k: _frozen(v) for k, v in found.items() if not isinstance(v, types.ModuleType)}


def _freeze_class(kind: Any) -> None:
    """Changeable class attributes become copies that cannot change."""
    for name, value in list(vars(kind).items()):
        if not name.startswith("_") and type(value) in (list, set, dict):
            setattr(kind, name, _frozen(value))


def _own_only(decorate: Callable[..., Any], *, strict: bool) -> Callable[..., Any]:
    """A decorator that writes to its target, for targets that tool code made.

    Others are refused when `strict` and else returned as they are.
    """

    def own(target: Any) -> bool:
        try:
            return guards.guarded_write(target) is target
        except TypeError:
            if strict:
                raise
            return False

    def guarded(target: Any = None, /, **options: Any) -> Any:
        if target is None:
            inner = decorate(**options)
            return lambda later: inner(later) if own(later) else later
        return decorate(target, **options) if own(target) else target

    return guarded


def _no_functional_enum() -> None:
    """`Enum("Name", members)` could define any special method; class statements cannot.

    Changes this process's enum module, so it is for the jail only.
    """
    look_up = enum.EnumType.__call__

    def guarded(cls: Any, *args: Any, **words: Any) -> Any:
        if len(args) != 1 or words:
            raise TypeError("in the sandbox an Enum is made by a class statement")
        return look_up(cls, args[0])

    enum.EnumType.__call__ = guarded  # type: ignore[method-assign]


def _quiet(*_: Any, **__: Any) -> None:
    """Does nothing: printing and logging have nowhere to go."""


def _wraps(wrapped: Any, *_: Any, **__: Any) -> Callable[[Any], Any]:
    def decorate(wrapper: Any) -> Any:
        for name in ("__name__", "__qualname__", "__doc__"):
            text = getattr(wrapped, name, None)
            if type(text) is str and type(wrapper) is types.FunctionType:
                setattr(guards.guarded_write(wrapper), name, text)
        return wrapper

    return decorate


def _attrgetter(*names: str) -> Callable[[Any], Any]:
    def follow(value: Any, path: str) -> Any:
        for part in path.split("."):
            value = guards.guarded_getattr(value, part)
        return value

    if len(names) == 1:
        return lambda value: follow(value, names[0])
    return lambda value: tuple(follow(value, name) for name in names)


class _Lock:
    """A lock in a process without threads."""

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        return None

    def acquire(self, *_: Any, **__: Any) -> bool:
        return True

    def release(self) -> None:
        return None

    def locked(self) -> bool:
        return False


class _Logger:
    """A logger that discards."""

    def __getattr__(self, name: str) -> Any:
        if name in _LOG_NAMES.split() or name in _LOG_SETUP.split():
            return _quiet
        raise AttributeError(name)

    def isEnabledFor(self, _: object) -> bool:
        return False


def _logging() -> types.ModuleType:
    logger = _Logger()
    levels = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
    functions = dict.fromkeys((*_LOG_NAMES.split(), "basicConfig"), _quiet)
    return _facade(
        "logging", {"getLogger": lambda *_: logger, "Logger": _Logger, **levels, **functions}
    )


def _os() -> tuple[types.ModuleType, types.ModuleType]:
    path = _facade("os.path", {name: getattr(posixpath, name) for name in _PATH_NAMES.split()})
    members = {
        "path": path,
        "environ": types.MappingProxyType({}),
        "getenv": lambda key, default=None: default,
        "sep": "/",
        "linesep": "\n",
    }
    return _facade("os", members), path


def build() -> dict[str, types.ModuleType]:
    """All facades by the name under which code imports them.

    Also hardens the library of this process: call it only where nothing else runs.
    """
    made = {name: _facade(name, _public(name)) for name in (*_WHOLE, *_ONLY)}
    for module in made.values():
        for value in vars(module).values():
            if isinstance(value, type) and value.__flags__ & _HEAP_TYPE:
                _freeze_class(value)
    for path, strict in _DECORATORS.items():
        module_name, name = path.split(".")
        if name in vars(made[module_name]):
            vars(made[module_name])[name] = _own_only(vars(made[module_name])[name], strict=strict)
    _no_functional_enum()
    vars(made["abc"])["ABCMeta"] = None  # may be named as a metaclass, which policy.py drops
    vars(made["functools"])["wraps"] = _wraps
    vars(made["operator"])["attrgetter"] = _attrgetter
    made["logging"] = _logging()
    made["threading"] = _facade("threading", {"Lock": _Lock, "RLock": _Lock})
    made["traceback"] = _facade(
        "traceback", {"format_exc": lambda *_: "Traceback (not available in the sandbox)\n"}
    )
    made["os"], made["os.path"] = _os()
    made["urllib"] = _facade("urllib", {"parse": made["urllib.parse"]})
    vars(made["collections"])["abc"] = made["collections.abc"]
    made["__future__"] = _facade("__future__", {"annotations": None})
    return made


class Namespace:
    """Makes the global namespace of a tool module: guarded builtins over the facades."""

    def __init__(self, facades: Facades) -> None:
        self._facades = facades
        self._empty = _facade("empty", {})
        self._builtins = self._make_builtins()
        # dataclasses and enum look their class's module up there.
        sys.modules.setdefault(guards.TOOL, types.ModuleType(guards.TOOL))

    def fresh(self) -> dict[str, Any]:
        """Globals that share nothing changeable with any other."""
        return {
            "__builtins__": dict(self._builtins),
            "__name__": guards.TOOL,
            "_getattr_": guards.guarded_getattr,
            "_write_": guards.guarded_write,
        }

    def _import(
        self,
        name: str,
        _globals: object = None,
        _locals: object = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> types.ModuleType:
        if name == "_strptime":  # C's strptime imports it through us but takes it from sys.modules
            return self._empty
        if level or name not in self._facades:
            raise ImportError(f"module {name!r} is not available in the sandbox")
        if fromlist or "." not in name:
            return self._facades[name]
        return self._facades[name.split(".")[0]]

    def _make_builtins(self) -> dict[str, Any]:
        made = {name: getattr(builtins, name) for name in _BUILTINS}
        made |= {
            name: value
            for name, value in vars(builtins).items()
            if isinstance(value, type) and issubclass(value, BaseException) and "Group" not in name
        }
        made |= {
            "__import__": self._import,
            "getattr": guards.guarded_getattr,
            "hasattr": guards.guarded_hasattr,
            "setattr": guards.guarded_setattr,
            "delattr": guards.guarded_delattr,
            "type": guards.SafeType,
            "print": _quiet,
            "vars": lambda value: dict(guards.guarded_getattr(value, "__dict__")),
            "eval": guards.safe_eval_in(self.fresh),
        }
        return made
