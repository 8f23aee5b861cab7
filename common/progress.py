"""How far long work is, a bar in a terminal or a line now and then in a file, and what memory it took."""

from __future__ import annotations

import resource
import sys

from tqdm.auto import tqdm

_EVERY = 30.0  # seconds between two lines


class _Lines:
    """Standard error, to which a bar writes each of its states as a line of its own."""

    def write(self, text: str) -> None:
        if line := text.strip():
            sys.stderr.write(f"{line}\n")

    def flush(self) -> None:
        sys.stderr.flush()


def progress(total: int, name: str, unit: str, shown: bool = True, done: int = 0) -> tqdm:
    """Count up to `total` units, from `done` on, which took no time; work of less than half a minute writes no line."""
    common = {"total": total, "initial": done, "desc": name, "unit": unit, "disable": not shown, "leave": False}
    if sys.stderr.isatty():
        return tqdm(**common, dynamic_ncols=True)
    words = "{desc}: {n_fmt} of {total_fmt} {unit}s, {elapsed} so far, about {remaining} left"
    every = {"mininterval": _EVERY, "maxinterval": _EVERY, "delay": _EVERY}
    return tqdm(**common, **every, file=_Lines(), bar_format=words)


def peak_mib() -> float:
    """The largest resident memory of this process so far; Linux counts KiB, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
