"""Random numbers that depend on a key alone: (seed, epoch, index of the example, purpose).

Nothing here has a state, so a batch does not depend on workers, on where a run was resumed, or on how many
processes share it. A key is folded with the finaliser of SplitMix64 (Steele, Lea and Flood 2014), which is also
the generator of the uniform numbers; it works on whole arrays at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

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
    for field in (
        codes if one else codes[:, None],
        epochs.astype(np.uint64),
        indices.astype(np.uint64),
    ):
        folded = _mix(folded + _GOLDEN) ^ field
    return _mix(folded + _GOLDEN)


def uniforms(keyed: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for each key: (..., B) -> (..., B, count) float64."""
    steps = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    return (_mix(keyed[..., None] + steps) >> np.uint64(11)) * 2.0**-53


def generator(key: np.uint64) -> np.random.Generator:
    """A generator for draws whose number is not known beforehand, such as a view's edit."""
    return np.random.Generator(np.random.Philox(key=int(key)))


def permutation(seed: int, epoch: int, count: int, purpose: str = "order") -> np.ndarray:
    """The order in which an epoch visits its examples."""
    key = keys(seed, np.array([epoch]), np.array([0]), purpose)[0]
    return generator(key).permutation(count)
