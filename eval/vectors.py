"""Vectors in a folder, row by row: of a shard of a corpus, or of an index.

vectors.npy is (N, D) in float32 or float16, and can be memory-mapped. A shard is such a folder with
a manifest that says what its vectors are of, see `eval.encode_corpus`; an index has files of its
own beside them, see `search.index`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from common.errors import BadInput

DTYPES = ("float32", "float16")
_FILE = "vectors.npy"
_AT_ONCE = 20_000  # rows in float32


def write(folder: Path, parts: Iterable[np.ndarray], dtype: str) -> tuple[int, int]:
    """Write vectors from parts, each (n, D) float32; returns their number and width.

    FloatingPointError: an entry is too large for float16.
    """
    rows = width = 0
    with (folder / _FILE).open("wb") as file:
        for part in parts:
            if rows == 0:
                width = part.shape[1]
                _write_header(file, dtype, (0, width))
            with np.errstate(over="raise"):
                file.write(np.ascontiguousarray(part.astype(dtype, copy=False)).data)
            rows += len(part)
        _write_header(file, dtype, (rows, width))
    return rows, width


def read(folder: Path) -> np.ndarray:
    """What `write` wrote, memory-mapped.

    BadInput for int8, which older versions wrote, with the scales of the rows in another file.
    """
    # Mode "c" maps a file so that torch accepts it; nothing is ever written.
    vectors: np.ndarray = np.load(folder / _FILE, mmap_mode="c")
    if vectors.dtype not in DTYPES:
        raise BadInput(
            f"{folder / _FILE}: vectors in {vectors.dtype} are of another version; remove the "
            "folder and build it again"
        )
    return vectors


def blocks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of (N, D), some at a time, (B, D) float32."""
    for start in range(0, len(vectors), _AT_ONCE):
        yield vectors[start : start + _AT_ONCE].astype(np.float32)


def _write_header(file: BinaryIO, dtype: str, shape: tuple[int, int]) -> None:
    """Write the header; NumPy pads it, so the final one is as long as the first."""
    file.seek(0)
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
