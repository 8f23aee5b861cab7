"""The paired bootstrap of two files of scores, from the examples' figures beside them."""

from __future__ import annotations

import zlib

import numpy as np

from common.errors import BadInput
from eval.compare.intervals import Items, figure, resampled_differences
from eval.compare.scores import AVERAGE, Key, Side, read_items

NO_EXAMPLES = "cannot say: no examples of"
TOLERANCE = 0.01  # between a row and its examples: accuracies of folds are rounded one by one


def bootstrap(a: Side, b: Side, keys: list[Key], resamples: int, seed: int) -> dict[Key, np.ndarray | str]:
    """A's figure less B's in every resample, (resamples,), or in words why there is none.

    The examples of each task are drawn independently, an average is taken over one draw of every task. A task's draws
    depend on `seed` and its name alone, whatever else is compared.

    Args:
        a: a side of one file.
        b: the other.
        keys: figures that both have.
        resamples: how many draws.
        seed: of the draws.

    Raises:
        BadInput: the examples of the two files are not the same, or an items file is damaged.
    """
    items = read_items(a.file), read_items(b.file)
    found: dict[Key, np.ndarray | str] = {}
    for key in sorted(keys, key=lambda key: key.task == AVERAGE):
        if key.task != AVERAGE:
            found[key] = _task(a, b, key, items, resamples, seed)
        elif a.averaged[key[1:]] == b.averaged[key[1:]]:
            parts = [found[Key(task, *key[1:])] for task in sorted(a.averaged[key[1:]])]
            reasons = [part for part in parts if isinstance(part, str)]
            found[key] = reasons[0] if reasons else np.mean(parts, axis=0)
    return found


def draws_of(key: Key, seed: int) -> np.random.Generator:
    """Where the draws of one task come from."""
    return np.random.default_rng([seed, zlib.crc32("|".join(key).encode())])


def _task(a: Side, b: Side, key: Key, items: tuple[dict, dict], resamples: int, seed: int) -> np.ndarray | str:
    if a.scores[key].examples != b.scores[key].examples:
        raise _other_data(a, b, key)
    for name, side, own in zip("AB", (a, b), items, strict=True):
        if key not in side.headline or key[:3] not in own:
            return f"{NO_EXAMPLES} {name}"
    one, other = (own[key[:3]] for own in items)
    if one.keys() != other.keys() or not same_examples(one, other):
        raise _other_data(a, b, key)
    for name, side, own in (("A", a, one), ("B", b, other)):
        again = figure_of_all(own)
        if abs(again - side.scores[key].mean) > TOLERANCE:
            return f"cannot say: the examples of {name} give {again:.2f}, its row {side.scores[key].mean:.2f}"
    return resampled_differences(one, other, resamples, draws_of(key, seed))


def figure_of_all(items: Items) -> float:
    """The metric x 100 of the examples as they are; the row of the same task says the same within `TOLERANCE`."""
    return float(figure(items, np.arange(len(next(iter(items.values()))))[None])[0])


def same_examples(one: Items, other: Items) -> bool:
    """Whether two sides' examples are the same, as far as their gold scores or their number can tell."""
    if "gold" in one:
        return np.array_equal(one["gold"], other["gold"])
    return len(one["value"]) == len(other["value"])


def _other_data(a: Side, b: Side, key: Key) -> BadInput:
    return BadInput(f"{key}: {a.file} and {b.file} were scored on different examples; score both on the same data")
