"""Time two implementations by turns in one process: a slow phase of the machine meets both."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timed:
    """Median CPU milliseconds over the runs, and the last return value of each side."""

    plain_ms: float
    ours_ms: float
    plain: Any = None
    ours: Any = None

    def row(self, name: str, precision: str, model: str, runs: int, **more: Any) -> dict[str, Any]:
        """The row of a comparison."""
        return {
            "name": name,
            "precision": precision,
            "model": model,
            "plain_ms": round(self.plain_ms, 2),
            "ours_ms": round(self.ours_ms, 2),
            "ratio": round(self.plain_ms / self.ours_ms, 2),
            "memory_ratio": None,
            "runs": runs,
            **more,
        }


def alternate(
    plain: Callable[[int], Any], ours: Callable[[int], Any], runs: int, warm_up: bool = False
) -> Timed:
    """Call both by turns with 0, 1, ... `runs` - 1 and measure the CPU time of all threads.

    With `warm_up` both are first called with -1, without measurement.
    """
    if warm_up:
        plain(-1)
        ours(-1)
    plain_ms, ours_ms = [], []
    for number in range(runs):
        spent, plain_result = measured(plain, number)
        plain_ms.append(spent)
        spent, our_result = measured(ours, number)
        ours_ms.append(spent)
    medians = statistics.median(plain_ms), statistics.median(ours_ms)
    return Timed(*medians, plain_result, our_result)


def measured(call: Callable[[int], Any], number: int) -> tuple[float, Any]:
    """CPU milliseconds of a call, and its result."""
    start = time.process_time()
    result = call(number)
    return 1000 * (time.process_time() - start), result


def apart(function: Callable, *args: Any) -> Any:
    """Call a function in a fresh process: earlier work changes the state of the allocator."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(function, *args).result()
