"""The vectors of a retrieval corpus, in shards on disk, so that a stopped run can resume."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
        store: holds `shard-00000.npy` and so on, each (at most `size`, `width`) float32.
        documents: in all shards.
        width: entries of a vector.
        size: documents in a shard.
    """

    store: VectorStore
    documents: int
    width: int
    size: int

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """(index of the first document, memory-mapped vectors), one shard mapped at a time."""
        for start in range(0, self.documents, self.size):
            self._check(start)
            yield start, np.load(self._path(start), mmap_mode="r")

    def fill(self, encode: Encoder, corpus: BeirCorpus) -> None:
        """Encode the missing shards, after checking the others; BadInput for one of another shape."""
        starts = range(0, self.documents, self.size)
        there = [start for start in starts if self._path(start).is_file()]
        for start in there:
            self._check(start)
        if there:
            logger.info("%s: %d of %d shards exist already", self.store.folder, len(there), len(starts))
        for start in sorted({*starts} - {*there}):
            vectors = encode(corpus.texts(start, start + self._rows(start)))
            self.store.write(self._stem(start), [vectors], "choose another --embeddings, or TMPDIR without it")

    def _stem(self, start: int) -> str:
        return f"shard-{start // self.size:05}"

    def _rows(self, start: int) -> int:
        return min(self.size, self.documents - start)

    def _path(self, start: int) -> Path:
        return self.store.files(self._stem(start))[0]

    def _check(self, start: int) -> None:
        if damage := self.store.damage(self._stem(start), self._rows(start), self.width):
            raise BadInput(f"{damage}; remove it, and it is computed again")


@contextmanager
def embedded(
    encode: Encoder, corpus: BeirCorpus, width: int, folder: Path | None = None, size: int = DOCUMENTS
) -> Iterator[DocumentVectors]:
    """All vectors of a corpus; shards in `folder` are not computed again.

    Args:
        encode: texts -> (N, width); with a folder it also needs `identity` and `max_length`, as `eval.encode.Encode`.
        corpus: the documents.
        width: entries of a vector.
        folder: keeps the shards for the next run; None uses a temporary folder.
        size: documents in a shard.

    Raises:
        BadInput: the folder belongs to another corpus, model or setting, or holds a damaged shard.
    """
    if folder is not None:
        claim(folder, {"corpus": corpus.sha256, "documents": len(corpus), "model": encode.identity,
                       "max_length": encode.max_length, "shard_size": size}, "shard-*.npy")  # fmt: skip
    with nullcontext(folder) if folder else TemporaryDirectory(prefix="embeddings-") as place:
        vectors = DocumentVectors(VectorStore(Path(place), "npy"), len(corpus), width, size)
        vectors.fill(encode, corpus)
        yield vectors
