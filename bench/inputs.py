"""What is measured on: models of random weights, and batches with the lengths of real sentences."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig

from data.masking import choose_tokens, corrupt

# Tokens (WordPiece of bert-base-uncased, special ones included, cut at 32) of the first 11,914 lines of SimCSE's
# wiki1m_for_simcse.txt: LENGTHS[n] sentences have n tokens. Mean 21.9; 27 % are cut.
LENGTHS = [0, 0, 0, 34, 151, 236, 284, 275, 247, 231, 252, 256, 273, 302, 332, 373, 347, 384, 376, 363, 371, 392, 371,
           400, 352, 330, 323, 303, 298, 315, 253, 261, 3229]  # fmt: skip
MODELS = {
    "bert-base": {},  # BertConfig's defaults are its sizes
    "mini": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
    "tiny": {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64,
             "vocab_size": 1000, "initializer_range": 0.3},  # for tests: vectors that differ
}  # fmt: skip
CLS, SEP, MASK = 101, 102, 103
_FIRST_WORD = 200


def config_of(model: str, dropout: float = 0.1) -> BertConfig:
    """The configuration of a model by name."""
    return BertConfig(**MODELS[model], hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)


def skip_from(config: BertConfig) -> int:
    """The layer the auxiliary head reads: 6 of 12, 3 of 6, as the shipped configurations."""
    return config.num_hidden_layers // 2


def batch(config: BertConfig, rows: int, longest: int, seed: int) -> dict[str, Tensor]:
    """A batch as the collator makes it: two equal views and their masked twins, (2, rows, L)."""
    generator = np.random.default_rng(seed)
    lengths = generator.choice(len(LENGTHS), rows, p=np.array(LENGTHS) / sum(LENGTHS)).clip(max=longest)
    position = np.arange(lengths.max())
    mask = np.tile(position < lengths[:, None], (2, 1, 1))
    ids = generator.integers(_FIRST_WORD, config.vocab_size, (rows, len(position)))
    ids[:, 0] = CLS
    ids[np.arange(rows), lengths - 1] = SEP
    ids = np.where(mask, ids, config.pad_token_id)
    words = mask & (ids >= _FIRST_WORD)
    chosen = choose_tokens(words, 0.4, generator.random(ids.shape))
    masked, labels = corrupt(ids, chosen, "bert", MASK, config.vocab_size, generator.random(ids.shape))
    made = {"input_ids": ids, "attention_mask": mask, "masked_input_ids": masked, "masked_labels": labels}
    return {name: torch.from_numpy(value.astype(np.int64)) for name, value in made.items()}
