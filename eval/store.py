"""Vectors kept by the text that they are of: one file for all commands, models and settings.

`vectors.sqlite` has a row for every text of every encoder: the sha256 of the encoder's identity
(weights, tokenizer, pooling, precision, prompt), the maximum length and the text; then the vector
in float32 with its CRC-32. Several processes may use it at once: those that look for the same texts
divide them, and a killed one loses what it encoded since the last `PIECE` texts. Nothing else
refers to the file: it may be deleted, and its vectors are computed again.
"""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from common.errors import BadInput, StorageError
from common.files import digest, writable
from common.folders import locked, share
from common.progress import progress

FILE = "vectors.sqlite"
PIECE = 512  # texts that are encoded and kept at a time
_WAIT = 60  # seconds for another process to finish its write
_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY)
_CHECK = 4  # bytes


class Kept:
    """An encoder, N texts -> (N, D) float32, that looks into the file first.

    Args:
        encode: an `eval.encode.Encode` of the texts' role.
        folder: of the file; made if missing.

    Attributes:
        encoded: how many texts it has encoded; those that it found do not count.

    Raises:
        BadInput, StorageError: the file is damaged, or cannot be written.
    """

    def __init__(self, encode: Any, folder: str | PathLike) -> None:
        self._encode, self._shown = copy.copy(encode), encode.progress
        self._encode.progress = False  # of every piece
        self._folder = Path(folder)
        self._origin = digest([encode.identity, encode.max_length])
        self.encoded = 0

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        keys = {text: sha256((self._origin + text).encode()).digest() for text in texts}
        in_order = sorted(keys, key=len, reverse=True)  # the texts of a piece have like lengths
        vectors: dict[str, np.ndarray] = {}
        with self._open() as file, progress(len(keys), "encode", "text", self._shown) as bar:

            def fill(piece: list[str], wait: bool) -> None:
                found = _found(file, piece, keys)
                if len(found) < len(piece):
                    with locked(self._folder / f"{FILE}-{keys[piece[0]].hex()}", wait):
                        found = _found(file, piece, keys)  # another process may have been here
                        missing = [text for text in piece if text not in found]
                        if missing:
                            new = dict(zip(missing, self._encode(missing), strict=True))
                            with file:
                                rows = [(keys[text], _checked(new[text])) for text in missing]
                                file.executemany(
                                    "INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows
                                )
                            found |= new
                            self.encoded += len(missing)
                vectors.update(found)
                bar.update(len(piece))

            jobs = {}
            for start in range(0, len(in_order), PIECE):
                jobs[str(start)] = partial(fill, in_order[start : start + PIECE])
            share(jobs)
        return np.stack([vectors[text] for text in texts])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        path = self._folder / FILE
        with writable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(path, timeout=_WAIT)) as file:
                file.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)"
                )
                yield file
        except sqlite3.Error as error:
            full = getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK
            raise (StorageError if full else BadInput)(
                f"{path}: {error}; vectors are kept there: give another --cache_dir, or delete it, "
                "and they are computed again"
            ) from error


def _checked(vector: np.ndarray) -> bytes:
    content = vector.astype("<f4").tobytes()
    return crc32(content).to_bytes(_CHECK, "big") + content


def _found(
    file: sqlite3.Connection, texts: Sequence[str], keys: Mapping[str, bytes]
) -> dict[str, np.ndarray]:
    """The vectors of the texts that are in the file, unharmed."""
    vectors = {}
    for text in texts:
        row = file.execute("SELECT vector FROM vectors WHERE key = ?", (keys[text],)).fetchone()
        if row and crc32(row[0][_CHECK:]) == int.from_bytes(row[0][:_CHECK], "big"):
            vectors[text] = np.frombuffer(row[0][_CHECK:], dtype="<f4")
    return vectors
