"""Time two implementations by turns in one process: a slow phase of the machine meets both."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def alternate(
    plain: Callable[[int], Any], ours: Callable[[int], Any], runs: int, warm_up: bool = False
) -> dict[str, float]:
    """Median CPU milliseconds of a call of each, over all threads, and their ratio.

    Both are called by turns with 0, 1, ... `runs` - 1; with `warm_up` first with -1, unmeasured.
    """
    spent: dict[str, list[float]] = {"plain_ms": [], "ours_ms": []}
    for number in range(-1 if warm_up else 0, runs):
        for name, call in (("plain_ms", plain), ("ours_ms", ours)):
            start = time.process_time()
            call(number)
            if number >= 0:
                spent[name].append(1000 * (time.process_time() - start))
    medians = {name: statistics.median(times) for name, times in spent.items()}
    ratio = medians["plain_ms"] / medians["ours_ms"]
    return {name: round(ms, 2) for name, ms in medians.items()} | {"ratio": round(ratio, 2)}


def apart(function: Callable, *args: Any) -> Any:
    """Call a function in a fresh process: earlier work changes the state of the allocator."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(function, *args).result()
