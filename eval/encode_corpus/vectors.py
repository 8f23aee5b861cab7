"""Shards of vectors: Parquet or NumPy files of float32, float16 or int8.

int8 is scalar quantisation with a scale of its own for every vector: v = scale * q with q from -127 to 127 and
scale = max |v| / 127, so that a rounding errs by at most scale / 2 in an entry and outliers of one vector cost the
others nothing. The scales stand in a second column (`scale`, Parquet) or file (`NAME.scale.npy`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import BadInput
from common.growing import GrowingArray

DTYPES = ("float32", "float16", "int8")
_LARGEST = 127


def quantised(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, D) float32 -> (N, D) int8 and the scales, (N,) float32; a zero vector has scale 0."""
    scales = (np.abs(vectors).max(axis=1) / _LARGEST).astype(np.float32)
    divisors = np.where(scales > 0, scales, 1)[:, None]
    return np.clip(np.rint(vectors / divisors), -_LARGEST, _LARGEST).astype(np.int8), scales


def stored(vectors: np.ndarray, dtype: str) -> list[np.ndarray]:
    """What stands in a file for (N, D) float32: the entries and, for int8, the scales.

    Raises:
        BadInput: an entry is too large for float16.
    """
    if dtype == "int8":
        return list(quantised(vectors))
    if dtype == "float16" and np.abs(vectors).max(initial=0) > np.finfo(np.float16).max:
        raise BadInput("--dtype float16: the model gives entries above 65,504; choose float32 or int8")
    return [vectors.astype(dtype, copy=False)]


class Writer(Protocol):
    """One shard being written: a context manager; the same files in the same order as `names`."""

    @staticmethod
    def names(stem: str, dtype: str) -> list[str]:
        """The files of one shard, the entries first."""

    def __init__(self, paths: list[Path]) -> None: ...

    def append(self, columns: list[np.ndarray]) -> None:
        """Add what `stored` gave for some vectors."""


class NpyWriter:
    """`NAME.npy`, (N, D), which can be memory-mapped, and for int8 `NAME.scale.npy`, (N,) float32."""

    @staticmethod
    def names(stem: str, dtype: str) -> list[str]:
        """The files of one shard, the entries first."""
        return [f"{stem}.npy", f"{stem}.scale.npy"][: 1 + (dtype == "int8")]

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._arrays: list[GrowingArray] = []

    def append(self, columns: list[np.ndarray]) -> None:
        """Add what `stored` gave for some vectors."""
        if not self._arrays:
            pairs = zip(self._paths, columns, strict=True)
            self._arrays = [GrowingArray(path, column.dtype) for path, column in pairs]
        for array, column in zip(self._arrays, columns, strict=True):
            array.append(column)

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for array in self._arrays:
            array.__exit__(*error)


class ParquetWriter:
    """`NAME.parquet` with a column `embedding`, lists of fixed size, and for int8 a column `scale`, float32."""

    @staticmethod
    def names(stem: str, dtype: str) -> list[str]:
        """The one file of a shard."""
        return [f"{stem}.parquet"]

    def __init__(self, paths: list[Path]) -> None:
        [self._path] = paths
        self._writer: pq.ParquetWriter | None = None

    def append(self, columns: list[np.ndarray]) -> None:
        """Add what `stored` gave for some vectors."""
        entries, *scales = columns
        flat = pa.array(np.ascontiguousarray(entries).reshape(-1))
        arrays = [pa.FixedSizeListArray.from_arrays(flat, entries.shape[1]), *map(pa.array, scales)]
        table = pa.table(arrays, names=["embedding", "scale"][: len(arrays)])
        if self._writer is None:  # entries of vectors hardly compress, and no two are equal
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="none", use_dictionary=False, write_statistics=False
            )
        self._writer.write_table(table)

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()


WRITERS: dict[str, type[Writer]] = {"parquet": ParquetWriter, "npy": NpyWriter}


def shape_of(path: Path) -> tuple[str, int, int]:
    """(dtype, rows, width) of a file of entries, without reading them; BadInput where it is not whole."""
    try:
        if path.suffix == ".npy":
            array = np.load(path, mmap_mode="r")
            return str(array.dtype), *array.shape
        with pq.ParquetFile(path) as file:
            kind = file.schema_arrow.field("embedding").type
            dtype = np.dtype(kind.value_type.to_pandas_dtype()).name
            return dtype, file.metadata.num_rows, kind.list_size
    except (OSError, ValueError, EOFError, KeyError, AttributeError, pa.ArrowException) as error:
        said = str(error).splitlines()[0]
        raise BadInput(f"{path}: not a whole shard ({said})") from error


def read_vectors(path: str | Path) -> np.ndarray:
    """The vectors of one shard, `NAME.parquet` or `NAME.npy` (its scales are found beside it), (N, D) float32."""
    path = Path(path)
    if path.suffix == ".npy":
        entries = np.load(path)
        scales = np.load(path.with_suffix(".scale.npy")) if entries.dtype == np.int8 else None
    else:
        table = pq.read_table(path)
        lists = table["embedding"].combine_chunks()
        entries = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)
        scales = table["scale"].to_numpy() if "scale" in table.column_names else None
    entries = entries.astype(np.float32, copy=False)
    return entries if scales is None else entries * scales[:, None]
