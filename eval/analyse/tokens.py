"""Frequent tokens: how much does average pooling improve without the most frequent tokens?

Source: ConSERT (arXiv 2105.11741) section 5.1 and Figure 4: bert-base rises from 53.86 to 61.66 (mean of the STS sets)
when 34 tokens are removed. As in the paper:
- [CLS] and [SEP] count as tokens, and are the two most frequent ones;
- tokens are counted over the sentences of STS-B test, repeated sentences included;
- a removed token is only excluded from the average: the other tokens still attend to it;
- the average is over the last two layers (section 4.1; 53.86 is from its Table 2).
The model's own pooling and head are not used. Sentences that would lose every token keep their full average.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from eval.encode import Encode
from eval.scores import AVERAGE, Result, row
from eval.sts import STS_TEST, Pairs, correlation, cosines, merged

WITHOUT_TOKENS = "spearman without {} tokens"  # the metric of ConSERT's figure 4


def most_frequent(ids: Sequence[Sequence[int]], count: int) -> list[int]:
    """The `count` most frequent token ids, most frequent first; ties by id."""
    counts = Counter(token for sentence in ids for token in sentence)
    return sorted(counts, key=lambda token: (-counts[token], token))[:count]


class AverageWithout(nn.Module):
    """`embed` concatenates a sentence's averages without the k most frequent tokens, for every k, in one forward pass.

    Args:
        backbone: a Hugging Face encoder.
        average: hidden states, each (B, L, H), and mask (B, L) -> (B, H), as in `models.pooling`.
        frequent: token ids, most frequent first.
        removed: the values of k.
    """

    def __init__(self, backbone: nn.Module, average: Callable, frequent: Sequence[int], removed: Sequence[int]) -> None:
        super().__init__()
        self.backbone = backbone
        self.average = average
        self.frequent = torch.tensor(frequent)
        self.removed = removed

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(B, L) ids and mask -> (B, K x H)."""
        output = self.backbone(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True)
        frequent = self.frequent.to(input_ids.device)
        parts = []
        for count in self.removed:
            kept = attention_mask * ~torch.isin(input_ids, frequent[:count])
            kept = torch.where(kept.any(1, keepdim=True), kept, attention_mask)
            parts.append(self.average(output.hidden_states, kept))
        return torch.cat(parts, dim=1)


class TokenAverages:
    """A model's tokens and average vectors, with the tokenizer, length and precision of `encode`."""

    def __init__(self, encode: Encode, backbone: nn.Module, average: Callable) -> None:
        self._encode, self._backbone, self._average = encode, backbone, average

    def ids(self, sentences: list[str]) -> list[list[int]]:
        """The token ids of every sentence, special tokens included, truncated to the model's length."""
        return self._encode.tokenizer(sentences, truncation=True, max_length=self._encode.max_length)["input_ids"]

    def averages(self, sentences: list[str], frequent: Sequence[int], removed: Sequence[int]) -> np.ndarray:
        """For every k in `removed`, the average vector without the first k tokens of `frequent`, (N, K, H)."""
        module = AverageWithout(self._backbone, self._average, frequent, removed)
        base = self._encode
        module.max_length = base.max_length
        vectors = Encode(module, base.tokenizer, bf16=base.bf16, progress=base.progress)(sentences)
        return vectors.reshape(len(sentences), len(removed), -1)

    def spearman(self, pairs: Pairs, frequent: Sequence[int], removed: Sequence[int]) -> list[float]:
        """Spearman x 100 over the pairs for every k in `removed`, as `averages`."""
        left, right = np.split(self.averages(pairs.left + pairs.right, frequent, removed), 2)
        return [correlation(cosines(left[:, k], right[:, k]), np.array(pairs.gold)) for k in range(len(removed))]


@dataclass(frozen=True)
class FrequentTokens:
    """ConSERT's figure 4: the average of the seven STS sets without the most frequent tokens.

    Tokens are counted over STS-B test, as in the figure; scoring gives one row per number in `removed`: the mean over
    the seven sets, each rounded to two decimals. `average` is over the last two layers (ConSERT section
    4.1), see `AverageWithout`.
    """

    removed: tuple[int, ...]
    average: Callable
    name: str = AVERAGE
    split: str = "test"

    def load(self, data_dir: str | Path) -> dict[str, Pairs]:
        return {task.name: merged(task.load(data_dir)) for task in STS_TEST}

    def score(self, encode: Encode, data_dir: str | Path) -> Result:
        """`encode.module` is a SentenceEncoder, whose own pooling and head are not used."""
        sets = self.load(data_dir)
        tokens = TokenAverages(encode, encode.module.backbone, self.average)
        frequent = most_frequent(tokens.ids(sets["STS-B"].left + sets["STS-B"].right), max(self.removed))
        scores = np.array([tokens.spearman(pairs, frequent, self.removed) for pairs in sets.values()])  # (sets, K)
        count = sum(len(pairs.gold) for pairs in sets.values())
        means = zip(self.removed, scores.round(2).mean(axis=0), strict=True)
        rows = [row(AVERAGE, "test", WITHOUT_TOKENS.format(k), "mean of tasks", count, mean) for k, mean in means]
        return Result(rows)
