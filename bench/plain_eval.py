"""A SentEval-style STS evaluation: fixed batches in file order of length, padding, no deduplication, every split.

It encodes what SentEval encodes: for STS-B and SICK-R all three splits, although one is read; keeps all hidden
states, as SimCSE's batcher asks for them; and computes the cosines one by one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

from eval.sts import Pairs, read_columns
from eval.text_files import DOWNSTREAM
from models.pooling import POOLINGS

BATCH = 128


class PlainEncode:
    """Sentences to vectors in the order given, 128 at a time."""

    def __init__(self, encoder, tokenizer, bf16: bool) -> None:
        self.encoder, self.tokenizer, self.bf16 = encoder.eval(), tokenizer, bf16

    @torch.no_grad()
    def __call__(self, sentences: list[str]) -> np.ndarray:
        parts = []
        for start in range(0, len(sentences), BATCH):
            batch = self.tokenizer(
                sentences[start : start + BATCH], padding=True, truncation=True, max_length=512, return_tensors="pt"
            )
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
                ids, mask = batch["input_ids"], batch["attention_mask"]
                states = self.encoder.backbone(input_ids=ids, attention_mask=mask, output_hidden_states=True)
                pooled = POOLINGS[self.encoder.pooling].pool(states.hidden_states, mask)
            parts.append(pooled.float().numpy())
        return np.concatenate(parts)


def spearman(encode: PlainEncode, pairs: Pairs) -> float:
    """Score of pairs sorted by length as SentEval sorts them."""
    order = sorted(range(len(pairs.gold)), key=lambda i: (len(pairs.left[i].split()), len(pairs.right[i].split())))
    left = encode([pairs.left[i] for i in order])
    right = encode([pairs.right[i] for i in order])
    cosines = [np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in zip(left, right, strict=True)]
    return 100 * float(spearmanr(cosines, [pairs.gold[i] for i in order]).statistic)


def every_split(encode: PlainEncode, data_dir: Path, name: str) -> dict[str, float]:
    """STS-B or SICK-R as SentEval runs them: all three splits encoded, whichever is read."""
    return {split: spearman(encode, _SETS[name](data_dir / DOWNSTREAM, split)) for split in ("train", "dev", "test")}


def _stsb(folder: Path, split: str) -> Pairs:
    return read_columns(folder / "STS" / "STSBenchmark" / f"sts-{split}.csv", 4, 5, 6)


def _sick(folder: Path, split: str) -> Pairs:
    file = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}[split]
    return read_columns(folder / "SICK" / file, "relatedness_score", "sentence_A", "sentence_B")


_SETS = {"STS-B": _stsb, "SICK-R": _sick}
