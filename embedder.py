"""Encode and search texts from Python.

The interface follows SimCSE's own class (princeton-nlp/SimCSE, simcse/tool.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Literal

import numpy as np

from common.errors import BadInput
from common.ranges import Count, Part, checked
from eval.encode import Encode, device_here
from eval.metrics.cosine import unit
from search.index import Document, Hit, Index
from search.recipe import Recipe

_SETTINGS = ("pooling", "max_length", "bf16", "query_prompt", "document_prompt")


class Embedder:
    """A model with an index of texts.

    Args:
        model: a run, an export, a sentence-transformers folder, any Hugging Face encoder, or a hub
            id.
        pooling: required if the encoder does not define one.
        max_length: maximum tokens per text; default: the model's limit.
        device: default: a GPU if available.
        bf16: compute in bfloat16.
        query_prompt, document_prompt: put before every query and document; default: the model's own
            prompts.
        progress: show a progress bar, or lines in a file.

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
        bf16: bool = False,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        progress: bool = False,
    ) -> None:
        from models.encoder import load_encoder  # here: importing a command must not load models

        name, prompts = fspath(model), {"query": query_prompt, "document": document_prompt}
        encoder, self.tokenizer = load_encoder(name, pooling, max_length, prompts)
        self.recipe = Recipe.of(name)
        self.device = device or device_here()
        self.encoder = Encode(encoder.to(self.device), self.tokenizer, bf16=bf16, progress=progress)
        self._source = {
            "model": str(Path(name).absolute()) if Path(name).exists() else name,
            "pooling": pooling,
            "max_length": self.encoder.max_length,
            "bf16": bf16,
            "query_prompt": query_prompt,
            "document_prompt": document_prompt,
        }
        self.index: Index | None = None

    @property
    def texts(self) -> list[str]:
        """The indexed texts."""
        return self.index.documents["text"].to_pylist() if self.index else []

    @property
    def vectors(self) -> np.ndarray:
        """The unit vectors of the index, (N, D) float32."""
        return (
            np.concatenate([*self.index.vectors.rows()])
            if self.index
            else np.empty((0, 0), dtype=np.float32)
        )

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
            texts: each a document.
            lexical: index their words too, so that `search` adds BM25 to the cosine; default: as
                the recipe, or not.
            language: of the words, see `eval.retrieval.lexical`; default: the recipe's, or English.
        """
        recipe = self.recipe or Recipe()
        lexical = self.recipe is not None and recipe.weight < 1 if lexical is None else lexical
        documents = [Document(str(number), "", text) for number, text in enumerate(_list(texts))]
        encode = partial(self.encode, role="document")
        self.index = Index.build(
            encode, documents, language=(language or recipe.language) if lexical else None
        )
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
        queries = _list(queries)
        weight = (self.recipe or Recipe()).weight if weight is None else weight
        return self._built().search(
            self.encode(queries, "query"), queries, top_k, weight, self.device, under
        )

    @checked
    def save(
        self, folder: str | PathLike, dtype: Literal["float16", "float32", "int8"] = "float16"
    ) -> None:
        """Write the index to a new folder, see `search.index`; `dtype` is that of its vectors."""
        self._built().save(Path(folder), {**self._source, "identity": self._identity}, dtype)

    @property
    def _identity(self) -> list[str]:
        """What determines the vectors of both roles, besides max_length."""
        prompts = [self.encoder.of(role).prompt for role in ("query", "document")]
        return [self.encoder.identity, *prompts]

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
            options: `device` and `progress`.

        Raises:
            BadInput: the folder is damaged, or the model or its prompts are not those that built
                it.
        """
        index = Index.load(Path(folder), verify)
        source = model or index.facts["model"]
        settings = {name: index.facts[name] for name in _SETTINGS}
        settings["pooling"] = pooling or settings["pooling"]
        embedder = cls(source, **settings, **options)
        if embedder._identity != index.facts["identity"]:
            raise BadInput(
                f"{folder}: {source} is not the model that built the index, or has other prompts; "
                "its vectors would not fit; give that model, or build the index again"
            )
        embedder.index = index
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
