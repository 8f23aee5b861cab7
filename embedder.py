"""Encode and search texts from Python.

The interface follows SimCSE's own class (princeton-nlp/SimCSE, simcse/tool.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import numpy as np

from common.errors import BadInput
from common.folders import MANIFEST, SMALL, facts_of, locked, standing
from common.ranges import Count, Part, checked
from eval.encode import Encode, bf16_here, device_here
from eval.metrics.cosine import unit
from eval.store import Kept
from search.documents import cutter
from search.index import REMEDY, Document, Hit, Index, version, whole
from search.recipe import Recipe

logger = logging.getLogger(__name__)
COLUMNS = ("text_column", "title_column")
_SETTINGS = ("pooling", "max_length", "query_prompt", "document_prompt")


class Embedder:
    """A model with an index of texts.

    Args:
        model: a run, an export, a sentence-transformers folder, any Hugging Face encoder, or a hub
            id.
        pooling: required if the encoder does not define one.
        max_length: maximum tokens per text; default: the model's limit.
        device: default: a GPU if available.
        bf16: compute in bfloat16; default: only the index's vectors and its queries, where the
            processor or GPU has it.
        query_prompt, document_prompt: put before every query and document; default: the model's own
            prompts.
        progress: show a progress bar, or lines in a file.
        cache_dir: keeps the vectors of indexed texts, see `eval.store`.

    Attributes:
        index: set by `build_index` and `load_index`.
        encoder: the callable that the tasks of `eval` score: N texts -> (N, D).
        tokenizer: the model's.
        recipe: how to search with the model, if its folder says so.

    Raises:
        BadInput: the model does not exist; an argument, here or of a method, has another type.

    >>> documents = ["A dog sleeps.", "The server is down.", "A cat sleeps."]
    >>> model = Embedder("MODEL", pooling="avg")
    >>> model.encode(documents).shape
    (3, 32)
    >>> model.build_index(documents, lexical=True).save("runs/index")
    >>> Embedder.load_index("runs/index").search("server", top_k=1, weight=0)[0][0]
    'The server is down.'
    """

    @checked
    def __init__(
        self,
        model: str | PathLike,
        pooling: str | None = None,
        max_length: Count | None = None,
        device: str | None = None,
        bf16: bool | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        progress: bool = False,
        cache_dir: str | PathLike = "corpora/cache",
    ) -> None:
        from models.encoder import load_encoder  # here: importing a command must not load models

        name, prompts = fspath(model), {"query": query_prompt, "document": document_prompt}
        encoder, self.tokenizer = load_encoder(name, pooling, max_length, prompts)
        self.recipe = Recipe.of(name)
        self.device, self.cache_dir = device or device_here(), cache_dir
        encoder = encoder.to(self.device)
        self.encoder = Encode(encoder, self.tokenizer, bf16=bool(bf16), progress=progress)
        indexed = bf16_here(self.device) if bf16 is None else bf16
        self._searcher = Encode(encoder, self.tokenizer, bf16=indexed, progress=progress)
        self._facts: dict[str, Any] = {  # of an index
            "model": str(Path(name).absolute()) if Path(name).exists() else name,
            "pooling": pooling,
            "max_length": self.encoder.max_length,
            "query_prompt": query_prompt,
            "document_prompt": document_prompt,
            "window": 0,  # a document is one
            "stride": 0,
            "dtype": "float16",
        }
        # Those of tables, recorded for the next `python -m search build`.
        self.columns: dict[str, str | None] = dict.fromkeys(COLUMNS)
        self.index: Index | None = None
        self._known: dict[Path, Any] = {}  # folders as they were when they were loaded or saved

    @property
    def texts(self) -> list[str]:
        """The indexed texts."""
        return self.index.documents["text"].to_pylist() if self.index else []

    @property
    def vectors(self) -> np.ndarray:
        """The unit vectors of the index, (N, D) float32."""
        return np.array(self.index.vectors if self.index else np.empty((0, 0)), dtype=np.float32)

    @property
    def longest(self) -> int:
        """The tokens that the model reads of a document, without special ones and its prompt."""
        prompt = self.encoder.of("document").prompt
        before = len(self.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        return self.encoder.max_length - self.tokenizer.num_special_tokens_to_add() - before

    @checked
    def encode(
        self, texts: str | Iterable[str], role: Literal["query", "document"] | None = None
    ) -> np.ndarray:
        """The vectors, (N, D) float32; (D,) for a single text.

        With a role, the model's prompt for it is put before.
        """
        batch = _list([texts] if isinstance(texts, str) else texts)
        vectors = (self.encoder.of(role) if role else self.encoder)(batch)
        return vectors[0] if isinstance(texts, str) else vectors

    @checked
    def similarity(self, left: str | Iterable[str], right: str | Iterable[str]) -> np.ndarray:
        """Cosines of all pairs, (N, M); passing a single text drops that axis."""
        rows, columns = (unit(np.atleast_2d(self.encode(side))) for side in (left, right))
        axes = tuple(axis for axis, side in enumerate((left, right)) if isinstance(side, str))
        return (rows @ columns.T).squeeze(axes)

    @checked
    def build_index(
        self, texts: Iterable[str], lexical: bool | None = None, language: str | None = None
    ) -> Embedder:
        """Encode the texts to search; returns self.

        Args:
            texts: each a document, of which the model reads the first `longest` tokens.
            lexical: index their words too, so that `search` adds BM25 to the cosine; default: as
                the recipe, or not.
            language: of the words, see `eval.retrieval.lexical`; default: the recipe's, or English.
        """
        recipe = self.recipe or Recipe()
        lexical = self.recipe is not None and recipe.weight < 1 if lexical is None else lexical
        documents = [Document(str(number), "", text) for number, text in enumerate(_list(texts))]
        self.index_documents(documents, (language or recipe.language) if lexical else None)
        return self

    def index_documents(
        self, documents: Sequence[Document], language: str | None, window: int = 0, stride: int = 0
    ) -> int:
        """Index documents in windows, as `python -m search build`.

        Args:
            documents: at least one, each with another id.
            language: of BM25's words; None leaves BM25 out.
            window: tokens of a window, at most what the model reads; 0: a document is one window.
            stride: tokens from one window to the next; fewer if windows are.

        Returns:
            How many texts were encoded; others are in the index that is there or in `cache_dir`.
        """
        longest = self.longest
        if longest < 1:
            model = self._facts["model"]
            raise BadInput(f"{model}: its document prompt leaves no room for a document's tokens")
        if longest < window:
            window, stride = longest, max(1, stride * longest // window)
            logger.info("windows have %d tokens, one every %d: the model's limit", window, stride)
        logger.info("index: vectors in %s", "bfloat16" if self._searcher.bf16 else "float32")
        kept = Kept(self._searcher.of("document"), self.cache_dir)
        cut = cutter(self.tokenizer, window, stride) if window else whole
        self.index = Index.build(kept, documents, cut, language, self.index)
        self._facts |= {"window": window, "stride": stride}
        return kept.encoded

    @checked
    def add(self, texts: Iterable[str], ids: Iterable[str] | None = None) -> Embedder:
        """Add documents to the index; nothing else is encoded. Returns self.

        Args:
            texts: each a document.
            ids: theirs, which no document has yet; default: the next numbers.
        """
        documents, texts = self._built().all_documents(), _list(texts)
        known = {document.id for document in documents}
        if ids is None:
            next_one = 1 + max([int(name) for name in known if name.isdecimal()], default=-1)
            ids = [str(next_one + number) for number in range(len(texts))]
        names = _list(ids)
        if len(names) != len(texts):
            raise BadInput(f"{len(names)} ids for {len(texts)} texts: give one for each")
        for name, text in zip(names, texts, strict=True):
            if name in known:
                raise BadInput(f"id '{name}': a document has it already; remove that one first")
            known.add(name)
            documents.append(Document(name, "", text))
        return self._changed(documents)

    @checked
    def remove(self, documents: str | int | Iterable[str | int]) -> Embedder:
        """Remove documents from the index, which encodes nothing. Returns self.

        Args:
            documents: ids (text), or numbers in the index as those of hits; the numbers of the
                documents behind them change.
        """
        present = self._built().all_documents()
        numbers = {document.id: number for number, document in enumerate(present)}
        gone = set()
        if isinstance(documents, str) or not isinstance(documents, Iterable):
            documents = [documents]
        for name in documents:
            number = numbers.get(name) if isinstance(name, str) else name
            if number is None or not 0 <= number < len(present):
                raise BadInput(f"{name!r}: the index has no such document")
            gone.add(number)
        if len(gone) == len(present):
            raise BadInput("an index cannot be empty; build another one instead")
        return self._changed([one for number, one in enumerate(present) if number not in gone])

    def _changed(self, documents: Sequence[Document]) -> Embedder:
        lexical = self._built().lexical
        language = lexical.words.language if lexical else None
        self.index_documents(documents, language, self._facts["window"], self._facts["stride"])
        return self

    @checked
    def search(
        self,
        queries: str | Iterable[str],
        top_k: Count = 5,
        threshold: float | None = None,
        weight: Part | None = None,
        under: str | None = None,
    ) -> list[tuple[str, float]] | list[list[tuple[str, float]]]:
        """The best texts and their scores, best first: a list for a query, else a list of lists.

        The score is the cosine or, in an index with BM25, the sum of both, see
        `eval.retrieval.hybrid`.

        Args:
            queries: one query or several.
            top_k: maximum hits per query.
            threshold: minimum cosine of a hit.
            weight: of the cosine in an index with BM25; default: the recipe's, or 0.5.
            under: only documents with this id, or whose id is a path below it.
        """
        texts = self.index.documents["text"] if self.index else []
        least = -np.inf if threshold is None else threshold
        rows = self.hits([queries] if isinstance(queries, str) else queries, top_k, weight, under)
        hits = [
            [(texts[hit.document].as_py(), hit.score) for hit in row if hit.cosine >= least]
            for row in rows
        ]
        return hits[0] if isinstance(queries, str) else hits

    @checked
    def hits(
        self,
        queries: Iterable[str],
        top_k: Count = 5,
        weight: Part | None = None,
        under: str | None = None,
    ) -> list[list[Hit]]:
        """As `search`, with the document's number, the best window and both parts of the score."""
        queries, index = _list(queries), self._built()
        if weight is not None and weight < 1 and index.lexical is None:
            raise BadInput(
                f"weight {weight}: the index has no BM25; leave it out, or build another"
            )
        weight = (self.recipe or Recipe()).weight if weight is None else weight
        return index.search(
            self._searcher.of("query")(queries), queries, top_k, weight, self.device, under
        )

    @checked
    def save(
        self, folder: str | PathLike, dtype: Literal["float16", "float32"] | None = None
    ) -> None:
        """Write the index to a new folder, or in place of another index of this model.

        Args:
            folder: see `search.index`.
            dtype: of its vectors; default: as it was loaded, or float16.

        Raises:
            BadInput: there is something else, or another program has changed the index since.
            FolderInUse: another program is writing it.
        """
        index, folder = self._built(), Path(folder).resolve()
        facts = {**self._facts, **self.columns, "dtype": dtype or self._facts["dtype"]}
        facts |= {"bf16": self._searcher.bf16, "identity": self._identity}
        replace = False
        with locked(folder):
            if (there := standing(folder) / MANIFEST).exists():
                replace = facts_of(there.parent, REMEDY, SMALL).get("identity") == facts["identity"]
                if self._known.get(folder, found := version(folder)) != found:
                    raise BadInput(
                        f"{folder}: another program has changed it since it was loaded or saved "
                        "here; load it again, then add and remove documents"
                    )
            index.save(folder, facts, facts["dtype"], replace)
            self._facts["dtype"] = facts["dtype"]
            self._known[folder] = version(folder)

    @property
    def _identity(self) -> list[str]:
        """What determines the vectors of both roles, besides max_length."""
        prompts = [self._searcher.of(role).prompt for role in ("query", "document")]
        return [self._searcher.identity, *prompts]

    def _built(self) -> Index:
        if self.index is None:
            raise BadInput("there is no index yet; call build_index with the texts")
        return self.index

    @classmethod
    def load_index(
        cls,
        folder: str | PathLike,
        model: str | PathLike | None = None,
        verify: bool = False,
        pooling: str | None = None,
        **options,
    ) -> Embedder:
        """The index in a folder, with the model that built it.

        Args:
            folder: written by `save`.
            model: where the model is now; default: where it was.
            verify: compare the sha256 of large files too, and not only their sizes.
            pooling: of a `model` that does not define one; default: as the index was built.
            options: `device`, `progress` and `cache_dir`.

        Raises:
            BadInput: the folder is damaged, or the model or its prompts are not those that built
                it.
        """
        found, index = version(Path(folder)), Index.load(Path(folder), verify)
        source = index.model(model)
        settings = {name: index.facts[name] for name in _SETTINGS}
        settings["pooling"] = pooling or settings["pooling"]
        embedder = cls(source, **settings, **options)
        embedder._searcher.bf16 = index.facts["bf16"]
        embedder._facts |= {name: index.facts[name] for name in ("window", "stride", "dtype")}
        embedder.columns = {name: index.facts.get(name) for name in COLUMNS}
        if embedder._identity != index.facts["identity"]:
            raise BadInput(
                f"{folder}: {source} is not the model that built the index, or has other prompts; "
                "its vectors would not fit; give that model, or build another index"
            )
        embedder.index = index
        embedder._known[Path(folder).resolve()] = found
        return embedder


def _list(texts: Iterable[str]) -> list[str]:
    """The texts; BadInput for a string, a mapping or a table, whose letters or names they'd be."""
    if isinstance(texts, (str, Mapping)) or hasattr(texts, "columns"):
        raise BadInput(
            f"texts of type {type(texts).__name__}: give a list of strings (df['text'].tolist())"
        )
    if not (texts := list(texts)) or not all(isinstance(text, str) for text in texts):
        raise BadInput("texts to encode: give one or more strings")
    for number, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadInput(
                f"text {number}, {text[:40]!r}: half of a surrogate pair; bytes that are not UTF-8?"
            ) from error
    return texts
