"""Progress of long work: a bar in a terminal, a line every half minute in a file."""

from __future__ import annotations

import sys
from typing import Any

from tqdm.auto import tqdm


def progress(total: int, name: str, unit: str, shown: bool = True) -> tqdm:
    """Count to `total` units. Work below half a minute prints no line to a file."""
    to_file: dict[str, Any] = {}
    if not sys.stderr.isatty():
        line = "{desc}: {n_fmt} of {total_fmt} {unit}s, {elapsed} so far, about {remaining} left\n"
        to_file = {"mininterval": 30.0, "maxinterval": 30.0, "delay": 30.0, "bar_format": line}
    return tqdm(
        total=total,
        desc=name,
        unit=unit,
        disable=not shown,
        leave=False,
        dynamic_ncols=True,
        **to_file,
    )
