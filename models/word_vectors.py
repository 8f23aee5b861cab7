"""Word vectors (GloVe: Pennington et al. 2014) as a backbone without layers, so that everything
works with them.

A sentence is split like sentence-transformers' `WhitespaceTokenizer`, whose average of GloVe
vectors gives the papers' 61.32: at whitespace. Each word is looked up as written, then without
surrounding punctuation, then in lower case; a stop word in any of these forms is dropped, and so is
pure punctuation. Anything else not found is an unknown word. Unknown words are tokens, so that they
can be counted, but do not enter the average; a sentence without any known word has the zero vector.

Importing this file registers the classes with transformers' `Auto` classes.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizer,
)
from transformers.modeling_outputs import BaseModelOutput

NO_WORD, UNKNOWN = (
    "[no word]",
    "[unknown word]",
)  # contain whitespace, so no sentence splits into them
SPECIAL = (NO_WORD, UNKNOWN)  # the first rows of the table, both zero


class WordVectorsConfig(PreTrainedConfig):
    """The size of a table of word vectors."""

    model_type = "word_vectors"

    def __init__(self, vocab_size: int = len(SPECIAL), hidden_size: int = 1, **kwargs) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        super().__init__(**kwargs)


class WordVectors(PreTrainedModel):
    """A table of vectors with the interface of an encoder: its one layer returns the embeddings."""

    config_class = WordVectorsConfig
    base_model_prefix = "word_vectors"

    def __init__(self, config: WordVectorsConfig, table: Tensor | None = None) -> None:
        super().__init__(config)
        size = (config.vocab_size, config.hidden_size)
        self.embeddings = nn.Embedding(
            *size, device="meta"
        )  # skips a random initialisation that takes seconds
        self.embeddings.weight = nn.Parameter(torch.empty(size) if table is None else table)
        self.post_init()

    @classmethod
    def of(cls, table: Tensor) -> WordVectors:
        """Wrap a table, (V, D) float32, whose first rows are those of `SPECIAL`, without a copy."""
        return cls(WordVectorsConfig(*table.shape), table)

    def _init_weights(self, module: nn.Module) -> None:
        """Do nothing: the table is given or loaded."""

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, output_hidden_states: bool = False
    ):
        """(B, L) ids -> (B, L, D); the mask is not used."""
        vectors = self.embeddings(input_ids)
        return BaseModelOutput(
            vectors, hidden_states=(vectors, vectors) if output_hidden_states else None
        )


class WordTokenizer(PreTrainedTokenizer):
    """Maps sentences to rows of the table; see the module docstring.

    Args:
        vocab_file: one word per line, in the order of the table after `SPECIAL`.
        stop_words: words to drop.
    """

    vocab_files_names: ClassVar[dict[str, str]] = {"vocab_file": "vocab.txt"}
    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file: str, stop_words: Sequence[str] = (), **kwargs) -> None:
        words = Path(vocab_file).read_bytes().decode("utf-8").split("\n")[:-1]
        self._words = [*SPECIAL, *words]
        self._rows = {word: row for row, word in enumerate(self._words)}
        self._stop_words = frozenset(stop_words)
        kwargs |= {"pad_token": NO_WORD, "unk_token": UNKNOWN, "special_tokens_pattern": "none"}
        super().__init__(stop_words=sorted(stop_words), **kwargs)

    @property
    def vocab_size(self) -> int:
        return len(self._words)

    @property
    def rules(self) -> dict:
        """Everything that determines the ids of a sentence."""
        return {"words": self._words, "stop_words": sorted(self._stop_words)}

    def get_vocab(self) -> dict[str, int]:
        return dict(self._rows)

    def tokenize(self, text: str, **kwargs) -> list[str]:
        """Words as spelled in the table, `UNKNOWN` for others; `NO_WORD` if nothing is left."""
        words = (self._lookup(word) for word in text.split())
        return [word for word in words if word] or [NO_WORD]

    def _lookup(self, word: str) -> str | None:
        """Return the word in the table, `UNKNOWN`, or None for a stop word and for punctuation."""
        bare = word.strip(string.punctuation)
        for form in (word, bare, bare.lower()):
            if form in self._stop_words:
                return None
            if form in self._rows:
                return form
        return UNKNOWN if bare else None

    def _convert_token_to_id(self, token: str) -> int:
        return self._rows[token]

    def _convert_id_to_token(self, index: int) -> str:
        return self._words[index]

    def _pad(self, encoded_inputs, *args, **kwargs):
        """Pad as usual (one sentence), but mask unknown words like padding."""
        encoded_inputs["attention_mask"] = [
            int(row >= len(SPECIAL)) for row in encoded_inputs["input_ids"]
        ]
        return super()._pad(encoded_inputs, *args, **kwargs)

    def save_vocabulary(
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str]:
        path = Path(save_directory) / ((filename_prefix or "") + "vocab.txt")
        path.write_bytes(
            "".join(word + "\n" for word in self._words[len(SPECIAL) :]).encode("utf-8")
        )
        return (str(path),)


AutoConfig.register(WordVectorsConfig.model_type, WordVectorsConfig)
AutoModel.register(WordVectorsConfig, WordVectors)
AutoTokenizer.register(WordVectorsConfig, slow_tokenizer_class=WordTokenizer)
