"""The loop of the published scripts: rows of an Arrow table, `tokenizer.pad` a batch, masking token by token."""

from __future__ import annotations

from datasets import Dataset
from torch import Tensor
from transformers import DataCollatorForLanguageModeling


def tokenised(sentences: list[list[int]], frame: tuple[list[int], list[int]], longest: int) -> Dataset:
    """Rows as SimCSE's and InfoCSE's `prepare_features` stores them: lists of two equal views."""
    prefix, suffix = frame
    inner = longest - len(prefix) - len(suffix)
    rows = [prefix + ids[:inner] + suffix for ids in sentences]
    return Dataset.from_dict(
        {
            "input_ids": [[ids, ids] for ids in rows],
            "attention_mask": [[[1] * len(ids)] * 2 for ids in rows],
            "token_type_ids": [[[0] * len(ids)] * 2 for ids in rows],
        }
    )


class PairCollator:
    """`OurDataCollatorWithPadding` of the published code: flatten the views, pad, mask, and back to (B, 2, L)."""

    def __init__(self, tokenizer, mask_rate: float) -> None:
        self.tokenizer = tokenizer
        self.mask = DataCollatorForLanguageModeling(tokenizer, mlm_probability=mask_rate)

    def __call__(self, features: list[dict]) -> dict[str, Tensor]:
        views = len(features[0]["input_ids"])
        flat = [{name: f[name][i] for name in f} for f in features for i in range(views)]
        batch = self.tokenizer.pad(flat, padding=True, return_tensors="pt")
        batch["mlm_input_ids"], batch["mlm_labels"] = self.mask.torch_mask_tokens(batch["input_ids"].clone())
        return {name: value.view(len(features), views, -1) for name, value in batch.items()}
