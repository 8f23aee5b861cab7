"""Time two implementations alternately in one process, so that a slow phase of the machine affects both."""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from eval.scores import markdown

_MACHINE = {"device", "torch", "part", "machine", "threads"}  # one for all rows of a table
Work = tuple[
    dict, Callable[[], dict]
]  # the names of a row of `bench gpu`, and what measures the rest


def table(rows: list[dict]) -> str:
    """The rows as Markdown."""
    columns = list(dict.fromkeys(name for row in rows for name in row if name not in _MACHINE))
    return markdown(
        [
            columns,
            *(
                ["" if row.get(name) is None else str(row[name]) for name in columns]
                for row in rows
            ),
        ]
    )


def apart(function: Callable, *args: object):
    """Call a function in a fresh process, because earlier work changes the state of the allocator."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(function, *args).result()


@dataclass(frozen=True)
class Timed:
    """Median CPU milliseconds over the runs, and the last return value of each side."""

    plain_ms: float
    ours_ms: float
    plain: object
    ours: object

    @property
    def ratio(self) -> float:
        return self.plain_ms / self.ours_ms


def alternate(
    plain: Callable[[int], object], ours: Callable[[int], object], runs: int, warm_up: bool = False
) -> Timed:
    """Call both alternately with 0, 1, ... `runs` - 1; measure the process's CPU time, summed over
    threads.

    With `warm_up` both are first called with -1, without measurement.
    """
    sides = {"plain": plain, "ours": ours}
    if warm_up:
        for call in sides.values():
            call(-1)
    spent: dict[str, list[float]] = {name: [] for name in sides}
    returned = {}
    for number in range(runs):
        for name, call in sides.items():
            start = time.process_time()
            returned[name] = call(number)
            spent[name].append(1000 * (time.process_time() - start))
    plain_ms, ours_ms = (statistics.median(spent[name]) for name in ("plain", "ours"))
    return Timed(plain_ms, ours_ms, returned["plain"], returned["ours"])


def bench_row(
    name: str, precision: str, model: str, timed: Timed, runs: int, **more: object
) -> dict:
    return {
        "name": name,
        "precision": precision,
        "model": model,
        "plain_ms": round(timed.plain_ms, 1),
        "ours_ms": round(timed.ours_ms, 1),
        "ratio": round(timed.ratio, 2),
        "memory_ratio": None,
        "runs": runs,
        **more,
    }
