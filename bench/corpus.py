"""Retrieval over a large corpus without a model: time and peak memory of reading, sharding and searching."""

import argparse
import hashlib
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from common.flags import positive
from common.memory import peak_mib
from eval.retrieval.beir import BeirTask
from eval.retrieval.beir_files import write_set

NAME = "generated"
QUERIES = 1000
WIDTH = 64  # of a vector
_WORDS = "river stone lamp orchard signal violin harbour copper meadow engine winter ladder".split()


class HashedTexts:
    """A stub encoder: pseudo-random vectors that depend only on the text."""

    max_length = 0  # never truncates
    identity = f"hashed texts, {WIDTH} wide"
    _odd = 2 * np.arange(1, WIDTH + 1, dtype=np.uint64) + 1

    def __call__(self, sentences: list[str]) -> np.ndarray:
        """N texts -> (N, WIDTH) float32 in [-0.5, 0.5)."""
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in sentences)
        mixed = np.frombuffer(digests, dtype="<u8")[:, None] * self._odd  # uint64 overflow does the mixing
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        return ((mixed >> np.uint64(40)).astype(np.float32)) / np.float32(2**24) - np.float32(0.5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=positive, default=1_000_000, help="generated documents")
    parser.add_argument("--folder", help="working folder, kept to resume (default: a temporary folder)")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row: seconds, peak memory in MiB and nDCG@10 x 100 of embedding and scoring a generated set.

    All texts are distinct and each query repeats its relevant document, so nDCG@10 must be 100.
    """
    with TemporaryDirectory() as temporary:
        return [run(args.documents, Path(args.folder or temporary) / f"{args.documents}")]


def run(documents: int, folder: Path) -> dict:
    """The row; a second call with the same folder resumes."""
    if not (folder / "beir" / NAME / "qrels" / "test.tsv").is_file():
        generate(folder / "beir" / NAME, documents)
    start = time.perf_counter()
    result = BeirTask(NAME, embeddings=str(folder / "embeddings")).score(HashedTexts(), folder)
    return {
        "name": "corpus",
        "documents": documents,
        "seconds": round(time.perf_counter() - start, 1),
        "peak_rss_mib": round(peak_mib()),
        "ndcg@10": result.rows[0]["value"],
    }


def generate(folder: Path, documents: int) -> None:
    """Write a corpus of short texts; each of `QUERIES` queries repeats one document, its only relevant one."""
    places = range(0, documents, max(1, documents // QUERIES))
    corpus = ({"_id": f"d{i}", "title": "", "text": text_of(i)} for i in range(documents))
    queries = ({"_id": f"q{i}", "text": text_of(i)} for i in places)
    write_set(folder, corpus, queries, test=((f"q{i}", f"d{i}") for i in places))


def text_of(number: int) -> str:
    """The text of a document: eight words chosen by its number, then the number, so that all texts differ."""
    words = [_WORDS[number // 12**place % 12] for place in range(8)]
    return " ".join([*words, str(number)])
