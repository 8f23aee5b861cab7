"""Flags as fields of a dataclass: `aux_weight: Weight = flag(1e-5, "help")`.

A type says what a value may be, for a flag and for an argument of a Python function alike.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import cache, wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from common.errors import BadInput

P = ParamSpec("P")
R = TypeVar("R")


def flag(
    default: Any, help: str, *, instead_of: str = "", needs: str = "", may_differ: bool = False
) -> Any:
    """Declare a field with this default and help, and what it does to other flags.

    Of it and the flag that it is given `instead_of`, the one that comes last counts; without the
    one that it `needs` it does nothing. It `may_differ` at a resume if it has no effect on the
    weights, or names files, which are compared by content.
    """
    facts = {"instead_of": instead_of, "needs": needs, "may_differ": may_differ}
    metadata = {"help": help.replace("%", "%%"), "facts": facts}  # argparse formats the help
    if isinstance(default, list):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


class Range(NamedTuple):
    """A set of numbers, and its description for "must be ..." in an error."""

    words: str
    holds: Callable[[float], bool]


_FINITE = Range("a finite number", math.isfinite)
Weight = Annotated[float, Range("0 or more", lambda x: x >= 0)]
Positive = Annotated[float, Range("above 0", lambda x: x > 0)]
Rate = Annotated[float, Range("from 0 to below 1", lambda x: 0 <= x < 1)]
Share = Annotated[float, Range("above 0 and below 1", lambda x: 0 < x < 1)]
Part = Annotated[float, Range("from 0 to 1", lambda x: 0 <= x <= 1)]
Count = Annotated[int, Range("1 or more", lambda x: x >= 1)]
CountOrZero = Annotated[int, Range("0 or more", lambda x: x >= 0)]
Columns = Annotated[int, Range("from 1 to 3", lambda x: 1 <= x <= 3)]
Seed = Annotated[int, Range("from 0 to 4,294,967,295", lambda x: 0 <= x < 2**32)]


def ranges_of(declared: Any) -> Iterator[Range]:
    """Yield the ranges in a type from `typing.get_type_hints(..., include_extras=True)`."""
    yield from (part for part in getattr(declared, "__metadata__", ()) if isinstance(part, Range))
    for part in get_args(declared):
        yield from ranges_of(part)


def check_range(name: str, value: Any, declared: Any) -> None:
    """Raise BadInput for a number, or one in a list, not finite or outside its type's ranges."""
    for number in value if isinstance(value, list) else [value]:
        if not isinstance(number, Real):
            continue
        for allowed in (_FINITE, *ranges_of(declared)):
            if not allowed.holds(float(number)):
                raise BadInput(f"{name} {number}: must be {allowed.words}")


def check_type(name: str, value: Any, declared: Any) -> None:
    """Raise BadInput for a value of another type than declared, or out of its range."""
    if not _is_a(value, declared):
        raise BadInput(f"{name} {repr(value)[:80]}: must be {_in_words(declared)}")
    check_range(name, value, declared)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which raises BadInput for arguments of other types than its annotations."""
    signature = inspect.signature(function)
    hints = cache(lambda: get_type_hints(function, include_extras=True))

    @wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> R:
        for name, value in signature.bind(*args, **named).arguments.items():
            if name in hints():
                check_type(name, value, hints()[name])
        return function(*args, **named)

    return called


def _is_a(value: Any, declared: Any) -> bool:
    origin, parts = get_origin(declared), get_args(declared)
    if declared is Any:
        return True
    if origin is Annotated:
        return _is_a(value, parts[0])
    if origin in (Union, UnionType):
        return any(_is_a(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin in (list, Sequence):
        a_list = isinstance(value, origin) and not isinstance(value, str)
        return a_list and all(_is_a(item, parts[0]) for item in value)
    if declared in (int, float):
        number = Integral if declared is int else Real
        return isinstance(value, number) and not isinstance(value, bool)
    return isinstance(value, origin or declared)


def _in_words(declared: Any) -> str:
    origin, parts = get_origin(declared), get_args(declared)
    named = {int: "an integer", float: "a number", bool: "true or false", str: "text"}
    if origin is Annotated:
        return f"{_in_words(parts[0])}, {next(ranges_of(declared)).words}"
    if origin in (Union, UnionType):
        return " or ".join(_in_words(part) for part in parts)
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin in (list, Sequence):
        return f"a list, each {_in_words(parts[0])}"
    if declared is NoneType:
        return "None"
    return named.get(declared, getattr(declared, "__name__", str(declared)))
