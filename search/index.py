"""An index of documents: vectors, BM25 and texts, in memory or in a folder.

A document is searched by its windows, one for a short text, and the best of them stands for it.
Both scores are those of windows; `eval.retrieval.hybrid` says how they are added. The folder has

    infocse.json    the manifest, with the model's identity, the settings and the counts
    vectors.npy     unit vectors (windows, D) in float16, see `eval.vectors`
    windows.npy     document, first and end character of every window, (windows, 3) int64, in order
    documents.arrow id, title and text of every document
    bm25/           the arrays and words of bm25s, if the index has them

and is complete or absent, see `common.folders`. Vectors and texts are read as needed; an index that
is open stays what it was when its folder is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from common.errors import BadInput, brief
from common.folders import MANIFEST, SMALL, Facts, facts_of, filling, standing
from eval.metrics.cosine import unit
from eval.retrieval.hybrid import WEIGHT, best, fused
from eval.retrieval.lexical import Lexical
from eval.vectors import blocks, read, write

FORMAT = 4
WINDOW, STRIDE = 200, 100  # tokens of a window, and from one to the next, unless others are given
ENCODED = 20_000  # windows at a time
BLOCK = 512  # vectors that are compared at a time: in float32 they fit the cache of a core
SCORES = 2**26  # held at once, 256 MiB
REMEDY = "if it is an index, remove it, and `python -m search build` writes it again"


class Document(NamedTuple):
    """A text with its title, which the text contains too, and an id."""

    id: str
    title: str
    text: str


class Hit(NamedTuple):
    """A document for a query.

    Attributes:
        document: its number in the index.
        start, end: the best window, characters of the document's text.
        score: both parts weighed, see `eval.retrieval.hybrid`; the cosine in an index without BM25.
        cosine: of query and window.
        bm25: of the window; None in an index without BM25.
    """

    document: int
    start: int
    end: int
    score: float
    cosine: float
    bm25: float | None


def whole(text: str) -> list[tuple[int, int]]:
    """A text as one window."""
    return [(0, len(text))]


class Index:
    """Windows of documents to search.

    Args:
        documents: id, title and text.
        windows: document, start and end, (W, 3), sorted; every document has one at least.
        vectors: of the windows, (W, D), of length 1, in float16 or float32.
        lexical: BM25 of the windows.

    Attributes:
        facts: of an index that was loaded: what its manifest says.
    """

    facts: Mapping[str, Any] = {}

    def __init__(
        self,
        documents: pa.Table,
        windows: np.ndarray,
        vectors: np.ndarray,
        lexical: Lexical | None = None,
    ) -> None:
        self.documents, self.windows, self.vectors = documents, windows, vectors
        self.lexical = lexical
        self._first = np.flatnonzero(np.diff(windows[:, 0], prepend=-1))  # window of every document
        self._end = np.append(self._first[1:], len(windows))

    @classmethod
    def build(
        cls,
        encode: Callable[[list[str]], np.ndarray],
        documents: Sequence[Document],
        cut: Callable[[str], list[tuple[int, int]]] = whole,
        language: str | None = "english",
        old: Index | None = None,
    ) -> Index:
        """Encode documents.

        Args:
            encode: texts -> (N, D).
            documents: at least one.
            cut: text -> start and end of its windows, at least one.
            language: of BM25's words; None leaves BM25 out.
            old: an index by the same encoder: windows with the same text keep their vectors.
        """
        cuts = [
            (number, *window)
            for number, document in enumerate(documents)
            for window in cut(document.text)
        ]
        windows = np.array(cuts, dtype=np.int64)
        texts = [documents[number].text[start:end] for number, start, end in windows.tolist()]
        vectors: dict[str, np.ndarray] = {}
        if old is not None:
            rows = np.array(old.vectors, dtype=np.float32)
            vectors.update(zip(old.window_texts(), rows, strict=True))
        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        for start in range(0, len(new), ENCODED):
            piece = new[start : start + ENCODED]
            vectors.update(zip(piece, unit(encode(piece)).astype(np.float32), strict=True))
        columns = map(list, zip(*documents, strict=True))
        arrays = [pa.array(column, pa.large_string()) for column in columns]
        table = pa.table(arrays, list(Document._fields))
        lexical = Lexical.of(texts, language) if language else None
        return cls(table, windows, np.stack([vectors[text] for text in texts]), lexical)

    def model(self, given: str | PathLike | None = None) -> str:
        """Where the model of a loaded index is: as given, or where it was.

        Raises:
            BadInput: it is not there any more.
        """
        if given is not None:
            return fspath(given)
        path: str = self.facts["model"]
        if Path(path).is_absolute() and not Path(path).exists():
            raise BadInput(f"{path}: the index's model is not there any more; give its --model")
        return path

    def window_texts(self) -> list[str]:
        """The text of every window."""
        texts = self.documents["text"].to_pylist()
        return [texts[number][start:end] for number, start, end in self.windows.tolist()]

    def document(self, number: int) -> Document:
        return Document(*(self.documents[name][number].as_py() for name in Document._fields))

    def all_documents(self) -> list[Document]:
        columns = [self.documents[name].to_pylist() for name in Document._fields]
        return [Document(*row) for row in zip(*columns, strict=True)]

    def search(
        self,
        vectors: np.ndarray,
        queries: Sequence[str],
        k: int,
        weight: float = WEIGHT,
        device: str = "cpu",
        under: str | None = None,
    ) -> list[list[Hit]]:
        """The best documents for every query, best first, ties by order in the index.

        Args:
            vectors: of the queries, (Q, D).
            queries: their texts, for BM25.
            k: maximum hits per query.
            weight: of the cosines, from 0 to 1; the rest is BM25's.
            device: where vectors are compared.
            under: only documents with this id, or whose id is a path below it.
        """
        if not 0 <= weight <= 1:
            raise BadInput(
                f"search: weight {weight} must be from 0 (BM25 alone) to 1 (cosine alone)"
            )
        among = np.arange(len(self.documents)) if under is None else self._below(under)
        hits, size = [], max(1, SCORES // len(self.windows))
        left = torch.from_numpy(unit(vectors).astype(np.float32)).to(device)
        for start in range(0, len(queries), size):
            rows = zip(
                self._cosines(left[start : start + size]),
                queries[start : start + size],
                strict=True,
            )
            hits += [self._hits(cosines, query, k, weight, among) for cosines, query in rows]
        return hits

    @torch.no_grad()
    def _cosines(self, queries: torch.Tensor) -> np.ndarray:
        """(Q, D) -> (Q, W) float32."""
        cosines = torch.empty(len(queries), len(self.vectors))
        for start in range(0, len(self.vectors), BLOCK):
            rows = torch.from_numpy(self.vectors[start : start + BLOCK]).to(queries.device)
            cosines[:, start : start + BLOCK] = queries @ rows.float().T
        return cosines.numpy()

    def _below(self, path: str) -> np.ndarray:
        """The numbers of the documents at or below a path."""
        path, ids = Path(path).as_posix(), self.documents["id"]
        if path == ".":
            return np.arange(len(ids))
        found = pc.or_(pc.equal(ids, path), pc.starts_with(ids, f"{path}/"))
        if not pc.any(found).as_py():
            raise BadInput(
                f"'{path}': the index has no document below it; its ids are like '{ids[0]}'"
            )
        return np.flatnonzero(found.to_numpy())

    def _hits(
        self, cosines: np.ndarray, query: str, k: int, weight: float, among: np.ndarray
    ) -> list[Hit]:
        words = self.lexical.scores(query) if self.lexical else None
        scores = cosines if words is None else fused(cosines, words, weight)
        if not np.isfinite(scores).all():  # a large file, which is not hashed at loading
            raise BadInput("the index has a number that is not finite; build it again")
        highest = np.maximum.reduceat(scores, self._first)
        if words is not None and weight == 0 and words.any():  # BM25 alone needs a word
            among = among[highest[among] > 0]
        documents = among[best(highest[among], k)]
        hits = []
        for first, end in zip(self._first[documents], self._end[documents], strict=True):
            window = first + int(np.argmax(scores[first:end]))
            document, begin, stop = self.windows[window].tolist()
            score, cosine = float(scores[window]), float(cosines[window])
            bm25 = None if words is None else float(words[window])
            hits.append(Hit(document, begin, stop, score, cosine, bm25))
        return hits

    def save(
        self,
        folder: Path,
        model: Mapping[str, Any],
        dtype: str = "float16",
        replace: bool = False,
    ) -> None:
        """Write the index to a new folder, or in place of an old one; `model` is recorded.

        Raises:
            BadInput: the folder exists, without `replace`.
            CheckpointRefused: another command is writing it.
        """
        facts = {"index": FORMAT, **model, "documents": len(self.documents), "dtype": dtype}
        facts["language"] = self.lexical.words.language if self.lexical else None
        with filling(folder.resolve(), facts, replace) as new:
            facts["windows"], facts["width"] = write(new, blocks(self.vectors), dtype)
            np.save(new / "windows.npy", self.windows)
            with pa.ipc.new_file(new / "documents.arrow", self.documents.schema) as file:
                file.write_table(self.documents, max_chunksize=ENCODED)
            if self.lexical:
                self.lexical.save(new / "bm25")

    @classmethod
    def load(cls, folder: Path, verify: bool = False) -> Index:
        """An index whose vectors, texts and BM25 scores stay on the disk.

        If the folder is replaced while its files are opened, the new one is loaded.

        Args:
            folder: written by `save`.
            verify: compare the sha256 of large files too, and not only their sizes.

        Raises:
            BadInput: it is no index, of another version, or not as it was written.
        """
        while True:
            before = version(folder)
            try:
                index = cls._load(standing(folder), verify)
            except (BadInput, OSError):
                if version(folder) == before:
                    raise
            else:
                if version(folder) == before:
                    return index

    @classmethod
    def _load(cls, folder: Path, verify: bool) -> Index:
        facts: Facts = {}
        if (folder / MANIFEST).exists():
            facts = facts_of(folder, REMEDY, None if verify else SMALL)
        if "index" not in facts:
            raise BadInput(
                f"{folder}: no index, which `python -m search build` writes: {MANIFEST} is missing "
                "or says something else"
            )
        if facts["index"] != FORMAT:
            found = f"an index of format {facts['index']}, this version reads {FORMAT}"
            raise BadInput(f"{folder}: {found}; {REMEDY}")
        try:
            documents = pa.ipc.open_file(pa.memory_map(str(folder / "documents.arrow"))).read_all()
            windows, vectors = np.load(folder / "windows.npy"), read(folder)
            lexical = None
            if facts["language"]:
                lexical = Lexical.load(folder / "bm25", facts["language"], facts["windows"])
        except (OSError, ValueError, EOFError, pa.ArrowException) as error:  # in a large file
            raise BadInput(f"{folder}: damaged index ({brief(error)}); {REMEDY}") from error
        index = cls(documents, windows, vectors, lexical)
        index.facts = facts
        return index


def version(folder: Path) -> tuple[int, int] | None:
    """What changes when a folder is replaced; None if there is none."""
    try:
        manifest = (standing(folder) / MANIFEST).stat()
    except OSError:
        return None
    return manifest.st_ino, manifest.st_mtime_ns
