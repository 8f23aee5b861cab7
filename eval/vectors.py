"""A folder of vectors: a manifest of their origin, and shards that are complete or absent.

A shard is `NAME.npy`, (N, D) in float32, float16 or int8, which can be memory-mapped, and its
record `NAME.done.json`, written last. int8 is scalar quantisation with one scale per vector, in
`NAME.scale.npy`: v = scale * q with q from -127 to 127 and scale = max |v| / 127, so the rounding
error is at most scale / 2 and outliers in one vector do not affect others.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import BadInput
from common.files import read_json, sha256, write_json, writing

MANIFEST = "manifest.json"
DTYPES = ("float32", "float16", "int8")
_LARGEST = 127
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class VectorStore:
    """A folder of shards of one of `DTYPES`."""

    folder: Path
    dtype: str = "float32"

    def claim(self, origin: dict[str, Any]) -> None:
        """Write the manifest, or compare it with the one that exists.

        Raises:
            BadInput: the folder has files but no manifest, or vectors of another origin.
        """
        path = self.folder / MANIFEST
        names = [file.name for file in self.folder.iterdir()] if self.folder.is_dir() else []
        foreign = [name for name in names if not name.startswith((".", MANIFEST))]
        if foreign and not path.is_file():
            raise BadInput(
                f"{self.folder}: contains {min(foreign)}, but no {MANIFEST} of vectors; choose a "
                "new folder"
            )
        if not path.is_file():
            write_json(path, origin)
        old = read_json(path, "a manifest", "choose another folder")
        if differing := _differences(old, origin):
            raise BadInput(
                f"{self.folder}: its vectors have another origin ({differing}); choose another "
                "folder"
            )

    def files(self, name: str) -> list[Path]:
        """The files of one shard; the first contains the entries."""
        return [
            self.folder / f"{name}{end}.npy"
            for end in (("", ".scale") if self.dtype == "int8" else ("",))
        ]

    def write(self, name: str, parts: Iterable[np.ndarray]) -> tuple[int, int]:
        """Write one shard from parts, each (n, D) float32, and return the number of vectors and their width."""
        rows, columns = 0, []
        with ExitStack() as stack:
            files = []
            for path in self.files(name):
                part = stack.enter_context(writing(path))
                files.append(stack.enter_context(part.open("wb")))
            for vectors in parts:
                columns = stored(vectors, self.dtype)
                if rows == 0:
                    _write_headers(files, columns, 0)
                for file, column in zip(files, columns, strict=True):
                    file.write(np.ascontiguousarray(column))
                rows += len(vectors)
            _write_headers(files, columns, rows)
        return rows, columns[0].shape[1]

    def shard(
        self, name: str, source: dict[str, Any], parts: Callable[[], Iterable[np.ndarray]]
    ) -> dict[str, Any]:
        """Write one shard unless it exists undamaged, and return its record.

        Args:
            name: of its files.
            source: JSON values that name the text; part of the record.
            parts: computes the vectors, each part (n, D) float32.

        Returns:
            The record: source, `rows`, `width` and the sha256 of its `files`; and `new`: whether it
                was computed now.

        Raises:
            BadInput: the shard exists with vectors of another source.
        """
        path = self.folder / f"{name}.done.json"
        if path.is_file():
            record = read_json(
                path,
                "the record of a shard",
                "remove it to compute it again",
                fields={"files": dict},
            )
            if differing := _differences(record, source):
                raise BadInput(
                    f"{path}: has vectors of another text ({differing}); choose another folder"
                )
            files = {self.folder / file: digest for file, digest in record["files"].items()}
            if all(file.is_file() and sha256(file) == digest for file, digest in files.items()):
                return {**record, "new": False}
            logger.warning(
                "%s: vectors are missing or changed since they were written; computing them again",
                path,
            )
            path.unlink()  # from here on the shard is not done
        rows, width = self.write(name, parts())
        files = {file.name: sha256(file) for file in self.files(name)}
        record = {**source, "rows": rows, "width": width, "files": files}
        write_json(path, record)
        return {**record, "new": True}


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    return "; ".join(
        f"{name} {old.get(name)}, now {value}"
        for name, value in new.items()
        if old.get(name) != value
    )


def quantised(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, D) float32 -> (N, D) int8 and the scales, (N,) float32; a zero vector has scale 0."""
    scales = (np.abs(vectors).max(axis=1) / _LARGEST).astype(np.float32)
    divisors = np.where(scales > 0, scales, 1)[:, None]
    return np.clip(np.rint(vectors / divisors), -_LARGEST, _LARGEST).astype(np.int8), scales


def stored(vectors: np.ndarray, dtype: str) -> list[np.ndarray]:
    """The stored columns of (N, D) float32: the entries and, for int8, the scales.

    Raises:
        FloatingPointError: an entry is too large for float16.
    """
    if dtype == "int8":
        return list(quantised(vectors))
    with np.errstate(over="raise"):
        return [vectors.astype(dtype, copy=False)]


def _write_headers(files: list, columns: list[np.ndarray], rows: int) -> None:
    """Write the header of each file; NumPy pads headers, so the final one has the same length."""
    for file, column in zip(files, columns, strict=True):
        file.seek(0)
        header = {
            "descr": column.dtype.str,
            "fortran_order": False,
            "shape": (rows, *column.shape[1:]),
        }
        np.lib.format.write_array_header_1_0(file, header)
