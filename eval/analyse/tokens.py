"""Frequent tokens: how much does average pooling improve without the most frequent tokens?

Source: ConSERT (arXiv 2105.11741) section 5.1 and Figure 4: bert-base rises from 53.86 to 61.66 (mean of the STS sets)
when 34 tokens are removed. As in the paper:
- [CLS] and [SEP] count as tokens, and are the two most frequent ones;
- tokens are counted over the scored sentences (in the paper always STS-B test), repeated sentences included;
- a removed token is only excluded from the average: the other tokens still attend to it;
- the average is over the last two layers (section 4.1; 53.86 is from its Table 2).
The model's own pooling and head are not used. Sentences that would lose every token keep their full average; their
number is reported.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from eval.analyse.analysis import Analysis, Material, Subject
from eval.encode import Encode
from eval.sts import Pairs, correlation, cosines

REMOVED = (0, 1, 2, 4, 8, 16, 32, 64, 128)


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

    def names(self, ids: Sequence[int]) -> list[str]:
        return self._encode.tokenizer.convert_ids_to_tokens(list(ids))

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


def measure_frequent_tokens(subject: Subject, material: Material) -> dict:
    """Spearman x 100 for each number of removed tokens, the best one, and the tokens by frequency."""
    pairs = material.pairs
    sentences = pairs.left + pairs.right
    ids = subject.tokens.ids(sentences)
    frequent = most_frequent(ids, max(REMOVED))
    spearman = subject.tokens.spearman(pairs, frequent, REMOVED)
    best = int(np.argmax(spearman))
    contents = [set(tokens) for tokens in dict(zip(sentences, ids, strict=True)).values()]
    return {
        "spearman_of_average": spearman[0],
        "best_spearman": spearman[best],
        "best_removed": REMOVED[best],
        "pairs": len(pairs.gold),
        "removed": list(REMOVED),
        "spearman": spearman,
        "emptied": [sum(content.issubset(frequent[:k]) for content in contents) for k in REMOVED],
        "tokens": subject.tokens.names(frequent),
    }


FREQUENT_TOKENS = Analysis(
    about="Spearman of average pooling without the most frequent tokens (ConSERT Figure 4)",
    measure=measure_frequent_tokens,
    headlines={
        "spearman_of_average": ("Spearman x 100 of the tokens' average", ".2f"),
        "best_spearman": ("the best without frequent tokens", ".2f"),
        "best_removed": ("tokens removed for it", "d"),
    },
    needs_pairs=True,
)
