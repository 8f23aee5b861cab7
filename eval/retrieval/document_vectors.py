"""The vectors of a retrieval corpus, kept in shards so that a stopped run can go on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from common.errors import BadInput
from eval.encode import Encoder
from eval.retrieval.beir_files import BeirCorpus
from eval.vectors.store import VectorStore, claim

logger = logging.getLogger(__name__)
DOCUMENTS = 50_000  # in a shard, all held at once; a stopped run loses at most so many


@dataclass(frozen=True)
class DocumentVectors:
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
            self._check(number)
            yield number * self.size, np.load(self._path(number), mmap_mode="r")

    def fill(self, encode: Encoder, corpus: BeirCorpus) -> None:
        """Encode the missing shards, after checking the others; BadInput for one of another shape."""
        missing = [number for number in range(self._count) if not self._path(number).is_file()]
        for number in set(range(self._count)) - set(missing):
            self._check(number)
        if len(missing) < self._count:
            logger.info("%s: %d of %d shards are there", self.folder, self._count - len(missing), self._count)
        for number in missing:
            start = number * self.size
            vectors = encode(corpus.texts(start, min(start + self.size, self.documents)))
            self._store.write(_stem(number), [vectors], "choose another --embeddings, or TMPDIR without it")

    @property
    def _count(self) -> int:
        return -(-self.documents // self.size)

    @property
    def _store(self) -> VectorStore:
        return VectorStore(self.folder, "npy", "float32")

    def _path(self, number: int) -> Path:
        return self._store.files(_stem(number))[0]

    def _check(self, number: int) -> None:
        rows = min(self.size, self.documents - number * self.size)
        if damage := self._store.damage(_stem(number), rows, self.width):
            raise BadInput(f"{damage}; remove it, and it is computed again")


def _stem(number: int) -> str:
    return f"shard-{number:05}"


@contextmanager
def embedded(
    encode: Encoder, corpus: BeirCorpus, width: int, folder: Path | None = None, size: int = DOCUMENTS
) -> Iterator[DocumentVectors]:
    """All vectors of a corpus; only those not in `folder` yet are computed.

    Args:
        encode: texts -> (N, width); with a folder it must also have `identity`, which names all that decides the
            vectors besides the text, and `max_length`.
        corpus: the documents.
        width: entries of a vector.
        folder: where shards stay for the next run; None uses a temporary folder.
        size: documents in a shard.

    Raises:
        BadInput: the folder belongs to another corpus, model or setting, or holds a damaged shard.
    """
    if folder is None:
        with TemporaryDirectory(prefix="embeddings-") as temporary:
            vectors = DocumentVectors(Path(temporary), len(corpus), width, size)
            vectors.fill(encode, corpus)
            yield vectors
        return
    claim(folder, {"corpus": corpus.sha256, "documents": len(corpus), "model": encode.identity,
                   "max_length": encode.max_length, "shard_size": size}, "shard-*.npy")  # fmt: skip
    vectors = DocumentVectors(folder, len(corpus), width, size)
    vectors.fill(encode, corpus)
    yield vectors
