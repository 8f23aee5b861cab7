"""Vectors kept by the text that they are of: one file for all commands, models and settings.

`vectors.sqlite` has a row for every text of every encoder: the sha256 of the encoder's identity
(weights, tokenizer, pooling, precision, prompt), the maximum length and the text; then the vector
in float32 with its CRC-32. Several processes may use it at once, and a killed one loses what it
encoded since the last `PIECE` texts. Nothing else refers to the file: it may be deleted, and its
vectors are computed again.
"""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from common.errors import BadInput, StorageError
from common.files import digest, writable
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
        with self._open() as file:
            vectors = {}
            for text, key in keys.items():
                row = file.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
                if row and crc32(row[0][_CHECK:]) == int.from_bytes(row[0][:_CHECK], "big"):
                    vectors[text] = np.frombuffer(row[0][_CHECK:], dtype="<f4")
            missing = [text for text in keys if text not in vectors]
            missing.sort(key=len, reverse=True)  # so that the texts of a piece have like lengths
            with progress(len(missing), "encode", "text", self._shown) as bar:
                for start in range(0, len(missing), PIECE):
                    piece = missing[start : start + PIECE]
                    new = dict(zip(piece, self._encode(piece), strict=True))
                    with file:
                        rows = [(keys[text], _checked(vector)) for text, vector in new.items()]
                        file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
                    vectors |= new
                    self.encoded += len(piece)
                    bar.update(len(piece))
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
                f"{path}: {error}; vectors are kept there (--cache_dir). It may be deleted: they "
                "are computed again"
            ) from error


def _checked(vector: np.ndarray) -> bytes:
    content = vector.astype("<f4").tobytes()
    return crc32(content).to_bytes(_CHECK, "big") + content
