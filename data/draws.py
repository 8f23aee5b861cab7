"""Random numbers and orders that depend only on a key: (seed, epoch, index of the example, purpose).

Draws have no state, so a batch does not depend on workers, on where a run was resumed, or on the number of processes. A
key is folded with the finaliser of SplitMix64 (Steele, Lea and Flood 2014), which also generates the uniform numbers;
both work on whole arrays. The sampler yields the keys of the examples.
"""

import zlib
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from torch.utils.data import Dataset, Sampler

Key = tuple[int, int, int]  # epoch, index of the example, step of the epoch whose batch it belongs to
LARGEST_TABLE = 2**24  # examples; 128 MiB. a longer text has no table, and another order for the same seed
_PLACES_AT_ONCE, _ROUNDS = 2**16, 4
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keys(seed: int, epochs: np.ndarray, indices: np.ndarray, purpose: str | Sequence[str]) -> np.ndarray:
    """One 64-bit key an example: (B,) epochs and (B,) indices -> (B,) uint64, or (P, B) for P purposes."""
    one = isinstance(purpose, str)
    codes = np.array([zlib.crc32(name.encode()) for name in ([purpose] if one else purpose)], dtype=np.uint64)
    folded = np.full(1, seed, dtype=np.uint64)
    for field in (codes if one else codes[:, None], epochs.astype(np.uint64), indices.astype(np.uint64)):
        folded = _mix(folded + _GOLDEN) ^ field
    return _mix(folded + _GOLDEN)


def uniforms(keyed: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for each key: (..., B) -> (..., B, count) float64."""
    steps = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    return (_mix(keyed[..., None] + steps) >> np.uint64(11)) * 2.0**-53


def generator(key: np.uint64) -> np.random.Generator:
    """A generator for an unknown number of draws, such as a view's edit."""
    return np.random.Generator(np.random.Philox(key=int(key)))


def order(seed: int, epoch: int, count: int) -> Iterator[int]:
    """The order of an epoch's examples: from a table, or above `LARGEST_TABLE` computed piece by piece."""
    table = permutation(seed, epoch, count) if count <= LARGEST_TABLE else None
    for start in range(0, count, _PLACES_AT_ONCE):
        places = np.arange(start, min(start + _PLACES_AT_ONCE, count))
        yield from (walked(seed, epoch, count, places) if table is None else table[places]).tolist()


def permutation(seed: int, epoch: int, count: int, purpose: str = "order") -> np.ndarray:
    """The whole order of an epoch, (count,) int64."""
    return generator(_order_key(seed, epoch, purpose)).permutation(count)


def walked(seed: int, epoch: int, count: int, places: np.ndarray) -> np.ndarray:
    """The examples at some places of an order of `count`, without computing the rest: (P,) -> (P,) int64.

    A Feistel network of four rounds permutes the smallest range of 4 ** n numbers with room for `count` (Luby and
    Rackoff 1988). A number not below `count` goes through it again until it is (cycle walking, Black and Rogaway 2002),
    so the numbers below `count` are permuted among themselves.
    """
    half = np.uint64(-(-max(count - 1, 1).bit_length() // 2))
    rounds = _mix(_order_key(seed, epoch) + np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _GOLDEN)
    found = places.astype(np.uint64)
    outside = np.arange(len(found))
    while len(outside):
        found[outside] = _feistel(found[outside], half, rounds)
        outside = outside[found[outside] >= count]
    return found.astype(np.int64)


def _feistel(numbers: np.ndarray, half: np.uint64, rounds: np.ndarray) -> np.ndarray:
    low = (np.uint64(1) << half) - np.uint64(1)
    left, right = numbers >> half, numbers & low
    for key in rounds:
        left, right = right, left ^ (_mix(right ^ key) & low)
    return left << half | right


def _order_key(seed: int, epoch: int, purpose: str = "order") -> np.uint64:
    return keys(seed, np.array([epoch]), np.array([0]), purpose)[0]


class KeyedSampler(Sampler):
    """Yields keys in the order of a permutation keyed by (seed, epoch).

    Args:
        seed: of the permutation.
        total: examples, held-out ones included.
        batch_size: examples of all processes in one forward; it counts the steps, so draws for a whole batch are the
            same in every process.
        held_out: examples that are never yielded, evenly spread over the text.

    Attributes:
        count: examples of an epoch.
        held: indices of the held-out ones, ascending.
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
        """Indices of the examples in `batches` batches of an epoch, from batch `first` on."""
        return list(islice(self.order(epoch), first * self.batch_size, (first + batches) * self.batch_size))

    def order(self, epoch: int) -> Iterator[int]:
        """Indices of an epoch's examples, in their order."""
        for number in order(self.seed, epoch, self.count):  # among those that are not held out
            yield number + min(number // (self._stride - 1), len(self.held)) if self.held else number


class Keys(Dataset):
    """A data set that returns each key itself: the collator reads the text of a whole batch at once."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: Key) -> Key:
        return key

    def __getitems__(self, keys: list[Key]) -> list[Key]:
        return keys
