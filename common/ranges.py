"""Ranges of flags, written as types: `aux_weight: Weight = field(...)`. `command_line.parse` checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, get_args


class Range(NamedTuple):
    """A set of numbers, and the words that follow "must be" in an error."""

    words: str
    holds: Callable[[float], bool]


Weight = Annotated[float, Range("0 or more", lambda x: x >= 0)]
Positive = Annotated[float, Range("above 0", lambda x: x > 0)]
Rate = Annotated[float, Range("from 0 to below 1", lambda x: 0 <= x < 1)]
Share = Annotated[float, Range("above 0 and below 1", lambda x: 0 < x < 1)]
Count = Annotated[int, Range("1 or more", lambda x: x >= 1)]
CountOrZero = Annotated[int, Range("0 or more", lambda x: x >= 0)]


def ranges_of(kind: Any) -> Iterator[Range]:
    """The ranges in a type that comes from `typing.get_type_hints(..., include_extras=True)`."""
    yield from (part for part in getattr(kind, "__metadata__", ()) if isinstance(part, Range))
    for part in get_args(kind):
        yield from ranges_of(part)
