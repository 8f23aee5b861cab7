"""A folder of vectors: a manifest that records their origin, and shards that are complete or absent.

Shards are Parquet or NumPy files of float32, float16 or int8. int8 is scalar quantisation with one scale per vector:
v = scale * q with q from -127 to 127 and scale = max |v| / 127, so the rounding error is at most scale / 2 and
outliers in one vector do not affect others. The scales are in a second column (`scale`, Parquet) or file
(`NAME.scale.npy`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import BadInput, first_line
from common.files import read_json, sha256, write_json, writing

MANIFEST = "manifest.json"
DTYPES = ("float32", "float16", "int8")
_LARGEST = 127


@dataclass(frozen=True)
class VectorStore:
    """A folder of shards, all with one format (a key of `WRITERS`) and one of `DTYPES`."""

    folder: Path
    format: str = "parquet"
    dtype: str = "float32"

    def files(self, stem: str) -> list[Path]:
        """The files of one shard; the first contains the entries."""
        scales = [f"{stem}.scale.npy"] if self.format == "npy" and self.dtype == "int8" else []
        return [self.folder / name for name in (f"{stem}.{self.format}", *scales)]

    def write(self, stem: str, parts: Iterable[np.ndarray], remedy: str = "choose another folder") -> tuple[int, int]:
        """Write one shard from pieces, each (n, D) float32, and return the number of vectors and their width.

        Each file is complete or absent; `remedy` ends the error message if writing fails.
        """
        rows = width = 0
        with ExitStack() as stack:
            files = [stack.enter_context(writing(path, remedy)) for path in self.files(stem)]
            append = stack.enter_context(WRITERS[self.format](files))
            for vectors in parts:
                if rows and vectors.shape[1] != width:
                    raise ValueError(f"{files[0]}: vectors of width {vectors.shape[1]} after vectors of width {width}")
                append(stored(vectors, self.dtype))
                rows, width = rows + len(vectors), vectors.shape[1]
        return rows, width

    def damage(self, stem: str, rows: int, width: int, hashes: Mapping[str, str] | None = None) -> str | None:
        """How the files of a shard differ from `rows` vectors of `width` entries; None if they do not.

        `hashes` are sha256 by file name; None compares only type and shape.
        """
        for path in self.files(stem) if hashes is not None else ():
            if hashes.get(path.name) != sha256(path):
                return f"{path.name} has changed since it was written"
        entries = self.files(stem)[0]
        try:
            dtype, shape = _shape_of(entries)
        except (OSError, ValueError, EOFError, KeyError, AttributeError, pa.ArrowException) as error:
            return f"{entries}: damaged shard ({first_line(error)})"
        if (dtype, shape) != (self.dtype, (rows, width)):
            return f"{entries}: contains {dtype} {shape}, expected {self.dtype} {(rows, width)}"
        return None


def refuse_foreign(folder: Path) -> None:
    """Raise BadInput for a folder that has files but no manifest, which is written before any shard."""
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    others = [name for name in names if not name.startswith((".", MANIFEST))]
    if others and not (folder / MANIFEST).is_file():
        raise BadInput(f"{folder}: contains {min(others)}, but no {MANIFEST} of vectors; choose a new or empty folder")


def claim(folder: Path, manifest: dict) -> None:
    """Write the manifest of a folder of vectors, or check the existing one.

    Raises:
        BadInput: the folder has files but no manifest, or another manifest.
    """
    refuse_foreign(folder)
    path = folder / MANIFEST
    if not path.is_file():
        write_json(path, manifest)
    old = read_json(path, "a manifest", "choose another folder")
    differing = [name for name in manifest if old.get(name) != manifest[name]]
    if differing:
        differences = "; ".join(f"{name} {old.get(name)}, now {manifest[name]}" for name in differing)
        raise BadInput(f"{folder}: its embeddings do not match ({differences}); choose another folder or remove it")


def quantised(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, D) float32 -> (N, D) int8 and the scales, (N,) float32; a zero vector has scale 0."""
    scales = (np.abs(vectors).max(axis=1) / _LARGEST).astype(np.float32)
    divisors = np.where(scales > 0, scales, 1)[:, None]
    return np.clip(np.rint(vectors / divisors), -_LARGEST, _LARGEST).astype(np.int8), scales


def stored(vectors: np.ndarray, dtype: str) -> list[np.ndarray]:
    """The stored columns of (N, D) float32: the entries and, for int8, the scales.

    Raises:
        BadInput: an entry is too large for float16.
    """
    if dtype == "int8":
        return list(quantised(vectors))
    if dtype == "float16" and np.abs(vectors).max(initial=0) > np.finfo(np.float16).max:
        raise BadInput("--dtype float16: the model returns entries above 65,504; choose float32 or int8")
    return [vectors.astype(dtype, copy=False)]


Append = Callable[[list[np.ndarray]], None]  # appends columns returned by `stored`


@contextmanager
def npy_files(paths: list[Path]) -> Iterator[Append]:
    """Write `NAME.npy`, (N, D), which can be memory-mapped, and for int8 `NAME.scale.npy`, (N,) float32."""
    rows, last = 0, []
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]

        def append(columns: list[np.ndarray]) -> None:
            nonlocal rows, last
            if rows == 0:
                _write_headers(files, columns, 0)
            for file, column in zip(files, columns, strict=True):
                file.write(np.ascontiguousarray(column).reshape(-1).view(np.uint8))
            rows, last = rows + len(columns[0]), columns

        yield append
        _write_headers(files, last, rows)


def _write_headers(files: list[BinaryIO], columns: list[np.ndarray], rows: int) -> None:
    """Write the header of each file; NumPy pads headers, so the final one has the same length."""
    for file, column in zip(files, columns, strict=True):
        file.seek(0)
        header = {"descr": column.dtype.str, "fortran_order": False, "shape": (rows, *column.shape[1:])}
        np.lib.format.write_array_header_1_0(file, header)


@contextmanager
def parquet_file(paths: list[Path]) -> Iterator[Append]:
    """Write `NAME.parquet` with a column `embedding`, fixed-size lists, and for int8 a column `scale`, float32."""
    writer: pq.ParquetWriter | None = None
    [path] = paths
    with ExitStack() as stack:

        def append(columns: list[np.ndarray]) -> None:
            nonlocal writer
            entries, *scales = columns
            flat = pa.array(np.ascontiguousarray(entries).reshape(-1))
            arrays = [pa.FixedSizeListArray.from_arrays(flat, entries.shape[1]), *map(pa.array, scales)]
            table = pa.table(arrays, names=["embedding", "scale"][: len(arrays)])
            if writer is None:  # vectors hardly compress
                options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
                writer = stack.enter_context(pq.ParquetWriter(path, table.schema, **options))
            writer.write_table(table)

        yield append


WRITERS = {"parquet": parquet_file, "npy": npy_files}


def _shape_of(path: Path) -> tuple[str, tuple[int, ...]]:
    """Dtype and shape of a file of entries, without reading them."""
    if path.suffix == ".npy":
        array = np.load(path, mmap_mode="r")
        return str(array.dtype), array.shape
    with pq.ParquetFile(path) as file:
        kind = file.schema_arrow.field("embedding").type
        return np.dtype(kind.value_type.to_pandas_dtype()).name, (file.metadata.num_rows, kind.list_size)


def read_vectors(path: str | Path) -> np.ndarray:
    """The vectors of one shard, `NAME.parquet` or `NAME.npy` (with its scales file), (N, D) float32."""
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
