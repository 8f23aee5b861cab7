"""Flags as fields of a dataclass: `aux_weight: Weight = flag(1e-5, "help")`.

`check_range` checks it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Annotated, Any, NamedTuple, get_args

from common.errors import BadInput


def flag(default: Any, help: str) -> Any:
    """Declare a field with this default and help."""
    help = help.replace("%", "%%")  # argparse formats it
    if isinstance(default, list):
        return field(default_factory=lambda: copy.copy(default), metadata={"help": help})
    return field(default=default, metadata={"help": help})


class Range(NamedTuple):
    """A set of numbers, and its description for "must be ..." in an error."""

    words: str
    holds: Callable[[float], bool]


_FINITE = Range("a finite number", math.isfinite)
Weight = Annotated[float, Range("0 or more", lambda x: x >= 0)]
Positive = Annotated[float, Range("above 0", lambda x: x > 0)]
Rate = Annotated[float, Range("from 0 to below 1", lambda x: 0 <= x < 1)]
Share = Annotated[float, Range("above 0 and below 1", lambda x: 0 < x < 1)]
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
    """Raise BadInput for a flag's number, or one in its list, that is not finite or outside the ranges of its type."""
    for number in value if isinstance(value, list) else [value]:
        for allowed in (_FINITE, *ranges_of(declared)) if isinstance(number, (int, float)) else ():
            if not allowed.holds(number):
                raise BadInput(f"--{name} {number}: must be {allowed.words}")
