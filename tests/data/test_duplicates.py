from collections import Counter

import numpy as np
import pytest

from data import draws
from data.corpus import Corpus, write_corpus
from data.duplicates import false_negatives
from data.sampler import KeyedSampler


@pytest.mark.parametrize(("batch", "longest"), [(4, 32), (7, 32), (7, 2), (1, 32), (100, 32)])
def test_sentences_that_share_a_batch_with_an_equal_one_are_counted(tmp_path, batch, longest):
    rng = np.random.default_rng(3)
    rows = [[rng.integers(1, 4, rng.integers(1, 4)).tolist()] for _ in range(60)]
    rows += [[[1, 2]], [[2, 1]], [[1, 2, 0]]]
    write_corpus(tmp_path, ((row, None) for row in rows), {})
    order, size = draws.permutation(5, 0, 63), min(batch, 63)
    expected = 0
    for start in range(0, 63 // size * size, size):
        seen = Counter(tuple(rows[i][0][:longest]) for i in order[start : start + size])
        expected += sum(count for count in seen.values() if count > 1)
    assert false_negatives(Corpus(tmp_path), KeyedSampler(5, 63, batch), longest) == (expected, 63 // size * size)
    assert expected > 0 or batch == 1


def test_distinct_sentences_are_none(tmp_path):
    write_corpus(tmp_path, (([[1 + row % 50, 1 + row // 50]], None) for row in range(500)), {})
    assert false_negatives(Corpus(tmp_path), KeyedSampler(5, 500, 100), 32)[0] == 0
