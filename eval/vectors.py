"""Vectors in a folder, row by row: of a shard of a corpus, or of an index.

    vectors.npy  (N, D) in float32, float16 or int8, which can be memory-mapped
    scales.npy   (N,) float32, of int8 only

int8 is scalar quantisation with one scale per vector: v = scale * q with q from -127 to 127 and
scale = max |v| / 127, so the rounding error is at most scale / 2 and outliers in one vector do not
affect others. A shard is such a folder with a manifest that says what its vectors are of, see
`eval.encode_corpus`; an index has files of its own beside them, see `search.index`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

DTYPES = ("float32", "float16", "int8")
_FILES = ("vectors.npy", "scales.npy")
_LARGEST = 127
_AT_ONCE = 20_000  # rows in float32


class Vectors(NamedTuple):
    """Stored vectors: entries (N, D), and for int8 scales (N,)."""

    entries: np.ndarray
    scales: np.ndarray | None = None

    @classmethod
    def of(cls, vectors: np.ndarray, dtype: str) -> Vectors:
        """(N, D) float32 in another type; FloatingPointError: an entry is too large for float16."""
        if dtype == "int8":
            return cls(*quantised(vectors))
        with np.errstate(over="raise"):
            return cls(vectors.astype(dtype, copy=False))

    @classmethod
    def read(cls, folder: Path) -> Vectors:
        """What `write` wrote, memory-mapped."""
        paths = [folder / name for name in _FILES if (folder / name).exists()]
        # Mode "c" maps a file so that torch accepts it; nothing is ever written.
        return cls(*(np.load(path, mmap_mode="c") for path in paths))

    def rows(self) -> Iterator[np.ndarray]:
        """The vectors in blocks, (B, D) float32."""
        for start in range(0, len(self.entries), _AT_ONCE):
            rows = self.entries[start : start + _AT_ONCE].astype(np.float32)
            if self.scales is not None:
                rows *= self.scales[start : start + _AT_ONCE, None]
            yield rows


def write(folder: Path, parts: Iterable[np.ndarray], dtype: str) -> tuple[int, int]:
    """Write vectors from parts, each (n, D) float32; returns their number and width."""
    rows = 0
    columns: list[np.ndarray] = []
    with ExitStack() as stack:
        names = _FILES if dtype == "int8" else _FILES[:1]
        files = [stack.enter_context((folder / name).open("wb")) for name in names]
        for part in parts:
            columns = [column for column in Vectors.of(part, dtype) if column is not None]
            if rows == 0:
                _write_headers(files, columns, 0)
            for file, column in zip(files, columns, strict=True):
                file.write(np.ascontiguousarray(column).data)
            rows += len(part)
        _write_headers(files, columns, rows)
    return rows, columns[0].shape[1]


def quantised(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, D) float32 -> (N, D) int8 and the scales, (N,) float32; a zero vector has scale 0."""
    scales = (np.abs(vectors).max(axis=1) / _LARGEST).astype(np.float32)
    divisors = np.where(scales > 0, scales, 1)[:, None]
    return np.clip(np.rint(vectors / divisors), -_LARGEST, _LARGEST).astype(np.int8), scales


def _write_headers(files: Sequence[IO[bytes]], columns: list[np.ndarray], rows: int) -> None:
    """Write the header of each file; NumPy pads headers, so the final one has the same length."""
    for file, column in zip(files, columns, strict=True):
        file.seek(0)
        header = {
            "descr": column.dtype.str,
            "fortran_order": False,
            "shape": (rows, *column.shape[1:]),
        }
        np.lib.format.write_array_header_1_0(file, header)
