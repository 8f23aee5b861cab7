"""Vectors of a large corpus on disk, in shards that are whole or not there, so that a stopped run can go on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from common.errors import BadInput
from eval.kept import claim, writing
from eval.retrieval.files import Corpus
from eval.task import Encoder

logger = logging.getLogger(__name__)
DOCUMENTS = 50_000  # in a shard: the texts held at once, and the most that a stopped run loses


@dataclass(frozen=True)
class Shards:
    """The vectors of one corpus in a folder.

    Attributes:
        folder: holds `shard-00000.npy` and so on, each (at most `size`, `width`) float32.
        documents: how many there are in all.
        width: entries of a vector.
        size: documents in a shard.
    """

    folder: Path
    documents: int
    width: int
    size: int

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """(index of the first document, memory-mapped vectors), one shard mapped at a time."""
        for number in range(self._count):
            yield number * self.size, self._open(number)

    def fill(self, encode: Encoder, corpus: Corpus) -> None:
        """Encode the shards that are not there; those that are must have the right shape."""
        missing = [number for number in range(self._count) if not self._path(number).is_file()]
        for number in set(range(self._count)) - set(missing):
            self._open(number)
        if len(missing) < self._count:
            logger.info("%s: %d of %d shards are there", self.folder, self._count - len(missing), self._count)
        for number in missing:
            start = number * self.size
            self._write(number, encode(corpus.texts(start, min(start + self.size, self.documents))))

    @property
    def _count(self) -> int:
        return -(-self.documents // self.size)

    def _path(self, number: int) -> Path:
        return self.folder / f"shard-{number:05}.npy"

    def _open(self, number: int) -> np.ndarray:
        path = self._path(number)
        try:
            vectors = np.load(path, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise BadInput(f"{path}: not a whole shard ({error}); remove it, and it is computed again") from error
        shape = (min(self.size, self.documents - number * self.size), self.width)
        if vectors.shape != shape or vectors.dtype != np.float32:
            found = f"{vectors.dtype} {vectors.shape}, expected float32 {shape}"
            raise BadInput(f"{path}: holds {found}; remove it, and it is computed again")
        return vectors

    def _write(self, number: int, vectors: np.ndarray) -> None:
        path = self._path(number)
        remedy = "choose another --embeddings, or TMPDIR without it"
        with writing(path, remedy) as part, part.open("wb") as file:
            np.save(file, vectors.astype(np.float32, copy=False))


@contextmanager
def embedded(
    encode: Encoder, corpus: Corpus, width: int, folder: Path | None = None, size: int = DOCUMENTS
) -> Iterator[Shards]:
    """All vectors of a corpus, computed as far as they are not in `folder` yet.

    Args:
        encode: texts -> (N, width); with a folder it must also have `identity`, which names whatever decides the
            vectors besides the text, and `max_length`.
        corpus: the documents.
        width: entries of a vector.
        folder: where shards stay for the next run; None keeps them in a temporary folder while they are used.
        size: documents in a shard.

    Raises:
        BadInput: the folder belongs to another corpus, model or setting, or holds a shard that is not whole.
    """
    if folder is None:
        with TemporaryDirectory(prefix="embeddings-") as temporary:
            yield _filled(Shards(Path(temporary), len(corpus), width, size), encode, corpus)
    else:
        manifest = {"corpus": corpus.sha256, "documents": len(corpus), "model": encode.identity,
                    "max_length": encode.max_length, "shard_size": size}  # fmt: skip
        claim(folder, manifest, "shard-*.npy")
        yield _filled(Shards(folder, len(corpus), width, size), encode, corpus)


def _filled(shards: Shards, encode: Encoder, corpus: Corpus) -> Shards:
    shards.fill(encode, corpus)
    return shards
