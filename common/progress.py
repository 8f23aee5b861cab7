"""Progress of long work, as a bar in a terminal or as occasional lines in a file."""

from __future__ import annotations

import sys

from tqdm.auto import tqdm

_EVERY = 30.0  # seconds between two lines


class _Lines:
    """Standard error for a progress bar that prints each state on a line of its own."""

    def write(self, text: str) -> None:
        if line := text.strip():
            sys.stderr.write(f"{line}\n")

    def flush(self) -> None:
        sys.stderr.flush()


def progress(total: int, name: str, unit: str, shown: bool = True) -> tqdm:
    """Count to `total` units. Work below half a minute prints no line."""
    common = {"total": total, "desc": name, "unit": unit, "disable": not shown, "leave": False}
    if sys.stderr.isatty():
        return tqdm(**common, dynamic_ncols=True)
    line = "{desc}: {n_fmt} of {total_fmt} {unit}s, {elapsed} so far, about {remaining} left"
    every = {"mininterval": _EVERY, "maxinterval": _EVERY, "delay": _EVERY}
    return tqdm(**common, **every, file=_Lines(), bar_format=line)
