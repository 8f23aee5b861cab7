"""Random numbers that depend on a key alone: (seed, epoch, index of the example, purpose).

Nothing here has a state, so a batch does not depend on workers, on where a run was resumed, or on how many
processes share it. A key is folded with the finaliser of SplitMix64 (Steele, Lea and Flood 2014), which is also
the generator of the uniform numbers; it works on whole arrays at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np

LARGEST_TABLE = 2**24  # examples; 128 MiB. A longer order has no table, and is another one for the same seed
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


def order(seed: int, epoch: int, count: int) -> Iterator[int]:
    """The order in which an epoch visits its examples: a table, or above `LARGEST_TABLE` one number at a time."""
    for start in range(0, count, _PLACES_AT_ONCE) if count > LARGEST_TABLE else ():
        places = np.arange(start, min(start + _PLACES_AT_ONCE, count))
        yield from walked(seed, epoch, count, places).tolist()
    if count <= LARGEST_TABLE:
        for part in np.array_split(permutation(seed, epoch, count), -(-count // _PLACES_AT_ONCE)):
            yield from part.tolist()


def permutation(seed: int, epoch: int, count: int, purpose: str = "order") -> np.ndarray:
    """All of an epoch's order as a table, (count,) int64."""
    return generator(_order_key(seed, epoch, purpose)).permutation(count)


def walked(seed: int, epoch: int, count: int, places: np.ndarray) -> np.ndarray:
    """What stands at some places of an order of `count` examples, without the rest of it: (P,) -> (P,) int64.

    A Feistel network of four rounds permutes the smallest range of 4 ** n numbers with room for `count` (Luby and
    Rackoff 1988); a number beyond `count` is sent through again until it is below (cycle walking, Black and Rogaway
    2002), so that the numbers below `count` are permuted among themselves.
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
