"""In-domain retrieval on STS-B test: InfoCSE's Table 11 and DiffCSE's.

Neither paper published its code. The corpus is all 2,758 sentences, the first of every pair before
the second; a query is a sentence of one of the 97 pairs scored 5.0, and a hit at k if its partner
is among the k sentences of highest cosine, ties by row. InfoCSE's figures are multiples of 1/97
(the first sentence is the query); DiffCSE's are of 1/194 (both directions).

31 of the 97 queries and 8 of their partners also occur in other rows; the papers do not say how
they treat them. Here only the query's row is excluded, and only the partner's row is a hit.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.encode import Encoder
from eval.metrics.cosine import unit
from eval.scores import Result, example_ids, row
from eval.sts import STS_TEST, Pairs, merged

CUTS = (1, 5, 10)
_STSB = next(task for task in STS_TEST if task.name == "STS-B")


@dataclass(frozen=True)
class InDomainRetrieval:
    """STS-B test as a corpus, for which the first sentence of a pair is the query."""

    name: str = "STS-B retrieval"
    split: str = "test"

    def load(self, data_dir: str | Path) -> Pairs:
        """STS-B test, whose pairs are as many as published."""
        return merged(_STSB.load(data_dir))

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """Headline: recall@1 in percent; then recall@5 and recall@10."""
        pairs = self.load(data_dir)
        sentences, half = pairs.left + pairs.right, len(pairs.left)
        queries = [(i, half + i) for i, gold in enumerate(pairs.gold) if gold == 5.0]
        ranks = partner_ranks(encode, sentences, queries)
        how = "one direction, own left out"
        rows = []
        for k in CUTS:
            recall = 100 * float(np.mean(ranks < k))
            scored = row(self.name, self.split, f"recall@{k}", how, len(queries), recall)
            rows.append({**scored, "shown": True})
        named = [(sentences[query], sentences[target], "own") for query, target in queries]
        items = {"value": (ranks < 1).astype(np.float64), "example": example_ids(named)}
        return Result(rows, items)


def partner_ranks(
    encode: Encoder, sentences: list[str], queries: list[tuple[int, int]]
) -> np.ndarray:
    """The number of rows ranked before the partner of every query, (Q,).

    Args:
        encode: sentences -> vectors; every string is encoded once, so that equal strings tie
            exactly.
        sentences: the corpus, row by row.
        queries: (query row, partner row).
    """
    distinct = {sentence: i for i, sentence in enumerate(dict.fromkeys(sentences))}
    string = np.array([distinct[sentence] for sentence in sentences])  # (N,): of each row
    vectors = unit(encode(list(distinct)))
    ranks = []
    for query, partner in queries:
        order = np.argsort(-(vectors @ vectors[string[query]])[string], kind="stable")
        ranks.append(np.flatnonzero(order[order != query] == partner)[0])
    return np.array(ranks)


def tasks(split: str) -> tuple[InDomainRetrieval, ...]:
    """The task for the test split; nothing for `dev`."""
    return (InDomainRetrieval(),) if split == "test" else ()
