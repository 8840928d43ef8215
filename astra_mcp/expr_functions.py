"""The functions that this project adds to JMESPath: exact arithmetic, dates, sets of rows.

Pure functions on JSON values. Arithmetic goes through `decimal` on the shortest decimal form of
every number, so money carries no binary noise and `round` rounds halves away from zero, as people
do. Nothing here reads a clock. A wrong type, a division by zero or a number outside JSON's safe
range raises `ExpressionError`; null is never taken for zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from math import isfinite
from typing import Any, Final

from astra_mcp.errors import ExpressionError

Json = Any
Number = int | float

MAX_INTEGER: Final = 2**53
"""Largest integer that every JSON reader keeps exactly."""
_CONTEXT: Final = Context(prec=40, rounding=ROUND_HALF_UP)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "any": (object,),
}


def _decimal(value: Number) -> Decimal:
    return Decimal(value) if isinstance(value, int) else Decimal(repr(value))


def _number(value: Decimal, *, whole: bool) -> Number:
    """A JSON number again; `whole` keeps integers integers."""
    if whole and value == value.to_integral_value():
        result: Number = int(value)
        too_big = abs(result) > MAX_INTEGER
    else:
        result = float(value)
        too_big = not isfinite(result)
    if too_big:
        raise ExpressionError(
            "The result of an arithmetic function is too large for JSON.",
            "Keep integers within plus or minus 2**53.",
        )
    return result


def _whole(*values: Number) -> bool:
    return all(isinstance(value, int) for value in values)


def add(a: Number, b: Number) -> Number:
    """`a + b`."""
    return _number(_CONTEXT.add(_decimal(a), _decimal(b)), whole=_whole(a, b))


def sub(a: Number, b: Number) -> Number:
    """`a - b`."""
    return _number(_CONTEXT.subtract(_decimal(a), _decimal(b)), whole=_whole(a, b))


def mul(a: Number, b: Number) -> Number:
    """`a * b`."""
    return _number(_CONTEXT.multiply(_decimal(a), _decimal(b)), whole=_whole(a, b))


def div(a: Number, b: Number) -> Number:
    """`a / b`; an integer when both are and it divides evenly."""
    if b == 0:
        raise ExpressionError("Division by zero.", "Check what the divisor refers to.")
    return _number(_CONTEXT.divide(_decimal(a), _decimal(b)), whole=_whole(a, b))


def round_(x: Number, digits: Number = 0) -> Number:
    """`x` to `digits` decimals, halves away from zero; an integer when digits <= 0."""
    if not isinstance(digits, int) or not -12 <= digits <= 12:
        raise ExpressionError("round: the number of decimals is an integer from -12 to 12.")
    step = Decimal(1).scaleb(-digits)
    rounded = (_decimal(x) / step).to_integral_value(rounding=ROUND_HALF_UP) * step
    return _number(rounded, whole=digits <= 0)


def sum_(values: list[Json]) -> Number:
    """Exact sum; 0 for none."""
    numbers = _numbers("sum", values)
    return _number(sum(map(_decimal, numbers), Decimal(0)), whole=_whole(*numbers))


def avg(values: list[Json]) -> Number | None:
    """Exact mean; null for none."""
    numbers = _numbers("avg", values)
    return div(sum_(numbers), len(numbers)) if numbers else None


def to_number(value: Json) -> Number | None:
    """As in JMESPath, but "nan" and "inf" are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value)
    except ValueError:
        return None
    if isinstance(parsed, bool) or not isinstance(parsed, int | float) or not isfinite(parsed):
        return None
    return parsed


def _numbers(name: str, values: list[Json]) -> list[Number]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ExpressionError(f"{name}: every member has to be a number.")
    return values


def _day(name: str, value: str) -> date:
    if _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise ExpressionError(f"{name}: {value[:40]!r} is no date of the form YYYY-MM-DD.")


def add_days(day: str, days: Number) -> str:
    """The date `days` (an integer, may be negative) after `day`."""
    if not isinstance(days, int):
        raise ExpressionError("add_days: the number of days has to be an integer.")
    try:
        return (_day("add_days", day) + timedelta(days=days)).isoformat()
    except OverflowError as error:
        raise ExpressionError("add_days: the result is outside the years 1 to 9999.") from error


def days_between(first: str, second: str) -> int:
    """Days from `first` to `second`; negative when `second` is earlier."""
    return (_day("days_between", second) - _day("days_between", first)).days


def before(first: str, second: str) -> bool:
    """Whether `first` is strictly earlier; two dates, two times, or two date-times of one kind."""
    for parse in (_day_or_none, _time_or_none, _moment_or_none):
        a, b = parse(first), parse(second)
        if a is not None and b is not None:
            try:
                return bool(a < b)
            except TypeError as error:
                raise ExpressionError("before: one side has a time zone, the other not.") from error
    raise ExpressionError("before: needs two ISO dates, two ISO times or two ISO date-times.")


def _day_or_none(value: str) -> Any:
    return _day("before", value) if _DATE.fullmatch(value) else None


def _time_or_none(value: str) -> Any:
    try:
        return time.fromisoformat(value) if re.match(r"\d{2}:\d{2}", value) else None
    except ValueError:
        return None


def _moment_or_none(value: str) -> Any:
    try:
        return datetime.fromisoformat(value) if re.match(r"\d{4}-\d{2}-\d{2}[T ]", value) else None
    except ValueError:
        return None


def identity_key(value: Json) -> str:
    """One text per JSON value: 1 equals 1.0, true does not equal 1, key order is no difference."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def unique(values: list[Json]) -> list[Json]:
    """Each value once, in order of first appearance."""
    first: dict[str, Json] = {}
    for value in values:
        first.setdefault(identity_key(value), value)
    return list(first.values())


def intersect(first: list[Json], second: list[Json]) -> list[Json]:
    """Values of both, each once, in the order of `first`."""
    keys = {identity_key(value) for value in second}
    return unique([value for value in first if identity_key(value) in keys])


def pick(rows: list[Json], key: str, values: list[Json]) -> list[Json]:
    """Rows (objects) whose `key` is among `values`, in the order of `rows`."""
    wanted = {identity_key(value) for value in values}
    for row in rows:
        if not isinstance(row, dict):
            raise ExpressionError("pick: every row has to be an object.")
    return [row for row in rows if key in row and identity_key(row[key]) in wanted]


#: name -> (function, argument types, how many of them are optional)
FUNCTIONS: Final[dict[str, tuple[Callable[..., Json], tuple[str, ...], int]]] = {
    "add": (add, ("number", "number"), 0),
    "sub": (sub, ("number", "number"), 0),
    "mul": (mul, ("number", "number"), 0),
    "div": (div, ("number", "number"), 0),
    "round": (round_, ("number", "number"), 1),
    "sum": (sum_, ("array",), 0),
    "avg": (avg, ("array",), 0),
    "to_number": (to_number, ("any",), 0),
    "add_days": (add_days, ("string", "number"), 0),
    "days_between": (days_between, ("string", "string"), 0),
    "before": (before, ("string", "string"), 0),
    "intersect": (intersect, ("array", "array"), 0),
    "pick": (pick, ("array", "string", "array"), 0),
    "unique": (unique, ("array",), 0),
}


def call(name: str, args: list[Json]) -> Json:
    """One of `FUNCTIONS` on evaluated arguments.

    Raises:
        ExpressionError: wrong types, or a result that is no JSON number.
    """
    function, types, _ = FUNCTIONS[name]
    for position, (wanted, arg) in enumerate(zip(types, args, strict=False), 1):
        fits = isinstance(arg, _TYPES[wanted]) and not (
            wanted == "number" and isinstance(arg, bool)
        )
        if not fits:
            raise ExpressionError(
                f"{name}: argument {position} has to be a {wanted}, got {kind_of(arg)}.",
                "A path that leads nowhere gives null; compare it with the tool's result.",
            )
    try:
        return function(*args)
    except DecimalException as error:
        raise ExpressionError(f"{name}: the numbers are out of range.") from error


def kind_of(value: Json) -> str:
    """JSON name of a value's type, for messages."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object" if isinstance(value, dict) else "expression")
