"""Encode and search texts from Python.

    from embedder import Embedder

    model = Embedder("runs/my-simcse")
    model.encode(["A sentence.", "Another one."])  # (2, D)
    model.build_index(documents).search("a question", top_k=5)  # [(text, cosine), ...]

The interface follows SimCSE's own class (princeton-nlp/SimCSE, simcse/tool.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Literal

import numpy as np

from common.errors import BadInput, first_line
from eval.encode import Encode, device_here, unit
from eval.retrieval.search import in_blocks
from eval.retrieval.search import top_k as best
from models.encoder import load_encoder

Hit = tuple[str, float]
_SURROGATE = re.compile("[\ud800-\udfff]")


class Embedder:
    """A model with an index of texts.

    Args:
        model: a run, an export, a sentence-transformers folder, any Hugging Face encoder, or a hub id.
        pooling: required if the encoder does not define one.
        max_length: maximum tokens per text; default: the model's limit.
        device: default: a GPU if available.
        bf16: compute in bfloat16.
        query_prompt, document_prompt: put before every query and document; default: the model's own prompts.

    Attributes:
        texts: the indexed texts, set by `build_index`.
        vectors: their unit vectors, (N, D) float32.

    Raises:
        BadInput: the model does not exist.
    """

    def __init__(
        self,
        model: str | PathLike,
        pooling: str | None = None,
        max_length: int | None = None,
        device: str | None = None,
        bf16: bool = False,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        prompts = {"query": query_prompt, "document": document_prompt}
        encoder, tokenizer = load_encoder(fspath(model), pooling, max_length, prompts)
        self.device = device or device_here()
        try:
            encoder.to(self.device)
        except (AssertionError, RuntimeError) as error:  # torch without CUDA; an unknown name, no memory
            raise BadInput(f"device '{self.device}': cannot be used ({first_line(error)})") from error
        self._encode = Encode(encoder, tokenizer, bf16=bf16)
        self.texts: list[str] = []
        self.vectors = np.empty((0, 0), dtype=np.float32)

    def encode(self, texts: str | Iterable[str], role: Literal["query", "document"] | None = None) -> np.ndarray:
        """The vectors, (N, D) float32; (D,) for a single text. With a role, the model's prompt for it is put before."""
        batch = [texts] if isinstance(texts, str) else _list(texts)
        if not batch or not all(isinstance(text, str) for text in batch):
            raise BadInput("texts to encode: give one or more strings")
        if any(map(_SURROGATE.search, batch)):
            raise BadInput("texts to encode: one has half a surrogate pair, which is not valid Unicode")
        vectors = (self._encode.of(role) if role else self._encode)(batch)
        return vectors[0] if isinstance(texts, str) else vectors

    def similarity(self, one: str | Sequence[str], other: str | Sequence[str]) -> np.ndarray:
        """Cosines of all pairs, (N, M); passing a single text drops that axis."""
        left, right = (unit(np.atleast_2d(self.encode(side))) for side in (one, other))
        axes = tuple(axis for axis, side in enumerate((one, other)) if isinstance(side, str))
        return (left @ right.T).squeeze(axes)

    def build_index(self, texts: Iterable[str]) -> Embedder:
        """Encode the texts to search; returns self."""
        if isinstance(texts, str):
            raise BadInput("build_index: give a list of texts, not a single one")
        texts = _list(texts)
        vectors = unit(self.encode(texts, "document")).astype(np.float32)
        self.texts, self.vectors = texts, vectors  # together: after an error the old index stays whole
        return self

    def search(
        self, queries: str | Sequence[str], top_k: int = 5, threshold: float | None = None
    ) -> list[Hit] | list[list[Hit]]:
        """The nearest texts by cosine, best first: a list for a single query, else a list of lists.

        Args:
            queries: one query or several.
            top_k: maximum hits per query.
            threshold: minimum cosine of a hit.
        """
        if not self.texts:
            raise BadInput("search: there is no index yet; call build_index with the texts")
        if not isinstance(top_k, (int, np.integer)) or top_k < 1:
            raise BadInput(f"search: top_k {top_k} must be an integer of at least 1")
        query_vectors = unit(np.atleast_2d(self.encode(queries, "query"))).astype(np.float32)
        nearest = best(query_vectors, in_blocks(self.vectors), min(top_k, len(self.texts)), self.device)
        hits = [
            [(self.texts[i], float(cosine)) for cosine, i in zip(*row, strict=True)
             if threshold is None or cosine >= threshold]
            for row in zip(*nearest, strict=True)
        ]  # fmt: skip
        return hits[0] if isinstance(queries, str) else hits


def _list(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, Mapping) or hasattr(texts, "columns") or not isinstance(texts, Iterable):
        raise BadInput(f"texts of type {type(texts).__name__}: give strings (of a DataFrame, df['text'].tolist())")
    return list(texts)
