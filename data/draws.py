"""Random numbers and orders that depend only on a key: seed, epoch, example and purpose.

Draws are stateless, so a batch does not depend on workers, on resumes or on the number of
processes. A key is hashed with the finaliser of SplitMix64 (Steele, Lea and Flood 2014), which also
generates the uniform numbers; both work on whole arrays. The sampler yields the keys of the
examples.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from torch.utils.data import Dataset, Sampler

Key = tuple[int, int, int]  # epoch, index of the example, step of the epoch
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    x = x ^ (x >> np.uint64(30))
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def keys(
    seed: int, epochs: np.ndarray, indices: np.ndarray, purpose: str | Sequence[str]
) -> np.ndarray:
    """Return one 64-bit key per example, (B,) uint64, or (P, B) for P purposes.

    `epochs` and `indices` are those of the examples, (B,).
    """
    folded = _begun(seed, purpose if isinstance(purpose, str) else tuple(purpose))
    for field in (epochs.astype(np.uint64), indices.astype(np.uint64)):
        folded = _mix((folded ^ field) + _GOLDEN)
    return folded


@lru_cache(maxsize=1024)
def _begun(seed: int, purpose: str | tuple[str, ...]) -> np.ndarray:
    """The part of the hash that every example shares: (1,), or (P, 1) for P purposes."""
    names = [purpose] if isinstance(purpose, str) else purpose
    codes = np.array([zlib.crc32(name.encode()) for name in names], dtype=np.uint64)
    codes = codes if isinstance(purpose, str) else codes[:, None]
    return _mix((_mix(np.array([seed], dtype=np.uint64) + _GOLDEN) ^ codes) + _GOLDEN)


def uniforms(keyed: np.ndarray, count: int) -> np.ndarray:
    """Return `count` numbers in [0, 1) per key: (..., B) -> (..., B, count) float64."""
    steps = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    return (_mix(keyed[..., None] + steps) >> np.uint64(11)) * 2.0**-53


def generator(key: np.uint64) -> np.random.Generator:
    """Return a generator for an unknown number of draws, such as those of a view's edit."""
    return np.random.Generator(np.random.Philox(key=int(key)))


def permutation(seed: int, epoch: int, count: int, purpose: str = "order") -> np.ndarray:
    """Return the whole order of an epoch, (count,) int64."""
    [key] = keys(seed, np.array([epoch]), np.array([0]), purpose)
    return generator(key).permutation(count)


class KeyedSampler(Sampler):
    """Yields keys in the order of a permutation keyed by (seed, epoch).

    Args:
        seed: of the permutation.
        total: number of examples, held-out ones included.
        batch_size: examples of all processes in one forward pass; defines the steps, so draws per
            batch agree between processes.
        held_out: number of examples never yielded, evenly spread over the text.

    Attributes:
        count: examples per epoch.
        held: indices of the held-out examples, ascending.
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
        for position, number in enumerate(map(int, permutation(self.seed, self.epoch, self.count))):
            if self.held:
                number += min(number // (self._stride - 1), len(self.held))
            yield self.epoch, number, position // self.batch_size


class Keys(Dataset):
    """A dataset that returns the keys themselves: the collator reads a whole batch at once."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: Key) -> Key:
        return key
