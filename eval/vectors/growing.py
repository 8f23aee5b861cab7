"""A NumPy file that grows row by row, so it may be larger than memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np


class GrowingArray:
    """Writes an `.npy` file piece by piece; a context manager, loadable once it is left.

    Args:
        path: the file; the first `append` creates it, so without one there is no file.
        dtype: of the entries.
    """

    def __init__(self, path: Path, dtype: np.typing.DTypeLike) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self.shape: tuple[int, ...] = (0,)
        self._file = None

    def append(self, rows: np.ndarray) -> None:
        """Add (n, ...) rows; ValueError if their shape differs from that of earlier ones."""
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        if self._file is None:
            self._file = self.path.open("wb")
            self.shape = (0, *rows.shape[1:])
            self._header()
        if rows.shape[1:] != self.shape[1:]:
            raise ValueError(f"{self.path}: rows of shape {rows.shape[1:]} after rows of {self.shape[1:]}")
        self._file.write(rows.reshape(-1).view(np.uint8))
        self.shape = (self.shape[0] + len(rows), *self.shape[1:])

    def __enter__(self) -> GrowingArray:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self._file is not None:
            with self._file:
                if kind is None:
                    self._file.seek(0)
                    self._header()

    def _header(self) -> None:
        # NumPy pads headers so that the number of rows can grow in place: both headers have the same length.
        described = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(self._file, described)
