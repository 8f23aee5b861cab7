"""The order of the examples, and the key of each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from torch.utils.data import Dataset, Sampler

from data import draws

Key = tuple[int, int, int]  # epoch, index of the example, step of the epoch whose batch it belongs to


class KeyedSampler(Sampler):
    """Yields keys in the order of a permutation keyed by (seed, epoch).

    Args:
        seed: of the permutation.
        total: examples, held-out ones included.
        batch_size: examples of all processes in one forward; counts the steps, so that what is drawn for a whole
            batch is the same in every process.
        held_out: examples that are never yielded, evenly spread over the text.

    Attributes:
        count: examples of an epoch.
        held: indices of the held-out ones, rising.
    """

    def __init__(self, seed: int, total: int, batch_size: int, held_out: int = 0) -> None:
        self.seed = seed
        self.count = total - held_out
        self.batch_size = batch_size
        self.epoch = 0
        self._stride = total // held_out if held_out else 0
        self.held = [(n + 1) * self._stride - 1 for n in range(held_out)]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Key]:
        for place, index in enumerate(self.order(self.epoch)):
            yield self.epoch, index, place // self.batch_size

    def rows(self, epoch: int, first: int, batches: int) -> list[int]:
        """Indices of the examples of `batches` batches of an epoch, from batch `first` on."""
        return list(islice(self.order(epoch), first * self.batch_size, (first + batches) * self.batch_size))

    def order(self, epoch: int) -> Iterator[int]:
        """Indices of an epoch's examples, in their order."""
        for number in draws.order(self.seed, epoch, self.count):  # among those that are not held out
            yield number + min(number // (self._stride - 1), len(self.held)) if self.held else number


class Keys(Dataset):
    """A data set that hands each key through: the collator reads the corpus for a whole batch at once."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: Key) -> Key:
        return key

    def __getitems__(self, keys: list[Key]) -> list[Key]:
        return keys
