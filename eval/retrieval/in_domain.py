"""In-domain retrieval on STS-B test: InfoCSE's Table 11 and DiffCSE's; neither paper published its code.

The corpus is all 2,758 sentences, first ones before second ones; a query is a sentence of one of the 97 pairs scored
5.0, and it is a hit at k where its partner is among the k sentences of highest cosine, ties by row. InfoCSE's
figures are multiples of 1/97 (first sentence asks for second), DiffCSE's of 1/194 (both directions).

31 of the 97 queries and 8 of their partners occur in other rows too, and the papers do not say what happens then:
`own` leaves out only the query's own row, and only the partner's row is a hit; `identical` compares strings: it
leaves out every row with the query's string, and any row with the partner's is a hit. A partner whose string is the
query's is kept, and then only its own row is a hit; no such pair is among the 97.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.errors import BadInput
from eval.encode import Encoder, unit
from eval.scores import Result, row
from eval.sts import STS_TEST, Pairs, merged

QUERIES = 97
CUTS = (1, 5, 10)
_STSB = next(task for task in STS_TEST if task.name == "STS-B")


@dataclass(frozen=True)
class InDomainRetrieval:
    """STS-B test as a corpus.

    Attributes:
        directions: `one`, first sentence -> second; `both`, each sentence of a pair asks for the other.
        duplicates: `own` or `identical`, see above.
    """

    directions: str = "one"
    duplicates: str = "own"
    name: str = "STS-B retrieval"
    split: str = "test"

    def load(self, data_dir: str | Path) -> Pairs:
        """STS-B test; BadInput where it does not have the published pairs, 97 of them scored 5.0."""
        pairs = merged(_STSB.load(data_dir))
        found = pairs.gold.count(5.0)
        if found != QUERIES:
            raise BadInput(
                f"STS-B test has {found} pairs scored 5.0 under {data_dir}, published are {QUERIES}: the file is "
                "changed; `python -m data.prepare sts` fetches the original"
            )
        return pairs

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """Headline: recall@1 in percent; then recall@5 and recall@10."""
        pairs = self.load(data_dir)
        sentences, half = pairs.left + pairs.right, len(pairs.left)
        asked = [(i, half + i) for i, gold in enumerate(pairs.gold) if gold == 5.0]
        if self.directions == "both":
            asked += [(target, query) for query, target in asked]
        ranks = partner_ranks(encode, sentences, asked, self.duplicates == "identical")
        how = f"{self.directions} direction{'s' * (self.directions == 'both')}, {self.duplicates} left out"
        rows = [row(self.name, self.split, f"recall@{k}", how, len(asked), 100 * np.mean(ranks < k)) for k in CUTS]
        return Result(rows, {"value": (ranks < 1).astype(np.float64)}, shown=len(CUTS))


def partner_ranks(
    encode: Encoder, sentences: list[str], asked: list[tuple[int, int]], identical: bool = False
) -> np.ndarray:
    """For every (query row, partner row), how many rows stand before the first hit, (Q,).

    Args:
        encode: sentences -> vectors; every string is encoded once, so that equal strings tie exactly.
        sentences: the corpus, row by row.
        asked: the queries and what they ask for.
        identical: strings instead of rows are left out and found.
    """
    distinct = {sentence: i for i, sentence in enumerate(dict.fromkeys(sentences))}
    string = np.array([distinct[sentence] for sentence in sentences])  # (N,): the string of each row
    vectors = unit(encode(list(distinct)))
    ranks = []
    for query, partner in asked:
        order = np.argsort(-(vectors @ vectors[string[query]])[string], kind="stable")
        out = string == string[query] if identical else np.arange(len(string)) == query
        out[partner] = False
        hit = (string == string[partner]) & ~out if identical else np.arange(len(string)) == partner
        ranks.append(np.flatnonzero(hit[order[~out[order]]])[0])
    return np.array(ranks)


def tasks(split: str, directions: str, duplicates: str) -> tuple[InDomainRetrieval, ...]:
    """The one task, of the test split; nothing for `dev`."""
    return (InDomainRetrieval(directions, duplicates),) if split == "test" else ()
