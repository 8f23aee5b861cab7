"""Frequent tokens: how much does average pooling improve without the most frequent tokens?

Source: ConSERT (arXiv 2105.11741) section 5.1 and Figure 4: bert-base rises from 53.86 to 61.66
(mean of the STS sets) when 34 tokens are removed. As in the paper:
- [CLS] and [SEP] count as tokens, and are the two most frequent ones;
- tokens are counted over the sentences of STS-B test, repeated sentences included;
- a removed token is only excluded from the average: the other tokens still attend to it;
- the average is over the last two layers (section 4.1; 53.86 is from its Table 2).
The model's own pooling and head are not used. Sentences that would lose every token keep their full
average.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from eval.encode import Encode
from eval.metrics.correlation import spearman
from eval.metrics.cosine import pair_cosines
from eval.scores import AVERAGE, Result, row
from eval.sts import STS_TEST, Pairs, merged

WITHOUT_TOKENS = "spearman without {} tokens"  # the metric of ConSERT's figure 4


def most_frequent(ids: Sequence[Sequence[int]], count: int) -> list[int]:
    """The `count` most frequent token ids, most frequent first; ties by id."""
    counts = Counter(token for sentence in ids for token in sentence)
    return sorted(counts, key=lambda token: (-counts[token], token))[:count]


class AverageWithout(nn.Module):
    """`embed` concatenates a sentence's averages without its k most frequent tokens, for every k.

    Args:
        backbone: a Hugging Face encoder.
        max_length: tokens per sentence.
        average: hidden states, each (B, L, H), and mask (B, L) -> (B, H), as in `models.pooling`.
        frequent: token ids, most frequent first.
        removed: the values of k.
    """

    def __init__(
        self,
        backbone: nn.Module,
        max_length: int,
        average: Callable,
        frequent: Sequence[int],
        removed: Sequence[int],
    ) -> None:
        super().__init__()
        self.backbone, self.max_length = backbone, max_length
        self.average, self.removed = average, removed
        self.frequent = torch.tensor(frequent)

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(B, L) ids and mask -> (B, K x H)."""
        output = self.backbone(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True
        )
        frequent = self.frequent.to(input_ids.device)
        parts = []
        for count in self.removed:
            kept = attention_mask * ~torch.isin(input_ids, frequent[:count])
            kept = torch.where(kept.any(1, keepdim=True), kept, attention_mask)
            parts.append(self.average(output.hidden_states, kept))
        return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class FrequentTokens:
    """ConSERT's figure 4: the average of the seven STS sets without frequent tokens.

    Each is rounded to two decimals. Scoring gives one row per number in `removed`. `average` is
    over the last two layers, see `AverageWithout`.
    """

    removed: tuple[int, ...]
    average: Callable
    name: str = AVERAGE
    split: str = "test"

    def load(self, data_dir: str | Path) -> dict[str, Pairs]:
        return {task.name: merged(task.load(data_dir)) for task in STS_TEST}

    def score(self, encode: Encode, data_dir: str | Path) -> Result:
        """`encode.module` is a SentenceEncoder, whose own pooling and head are not used."""
        sets, tokenizer, length = self.load(data_dir), encode.tokenizer, encode.max_length
        stsb = sets["STS-B"].left + sets["STS-B"].right
        counted = tokenizer(stsb, truncation=True, max_length=length)["input_ids"]
        frequent = most_frequent(counted, max(self.removed))
        backbone = encode.module.backbone
        module = AverageWithout(backbone, length, self.average, frequent, self.removed)
        without = Encode(module, tokenizer, bf16=encode.bf16, progress=encode.progress)
        scores = []  # (sets, K)
        for pairs in sets.values():
            vectors = without(pairs.left + pairs.right)
            vectors = vectors.reshape(2, len(pairs.gold), len(self.removed), -1)
            sides = zip(*vectors.transpose(0, 2, 1, 3), strict=True)  # (N, H) each, K times
            similarity = [pair_cosines(left, right) for left, right in sides]
            scores.append(spearman(np.array(similarity), np.array([pairs.gold] * len(similarity))))
        count = sum(len(pairs.gold) for pairs in sets.values())
        rows = []
        for k, mean in zip(self.removed, np.round(scores, 2).mean(axis=0), strict=True):
            metric = WITHOUT_TOKENS.format(k)
            rows.append(row(AVERAGE, "test", metric, "mean of tasks", count, mean))
        return Result(rows)
