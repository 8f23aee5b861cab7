"""Repetition: how many, where, and what stays."""

import numpy as np

from models.objectives.esimcse import repeat

IDS = np.arange(10, 40)
STARTS = np.ones(100, bool)


def runs(ids, seed, rate=0.32):
    return repeat(ids, STARTS[: len(ids)], np.random.default_rng(seed), rate)


def test_counts_are_uniform_up_to_their_limit():
    added = [len(runs(IDS, seed, 0.3)) - 30 for seed in range(4000)]
    assert set(added) == set(range(9))
    share = np.bincount(added) / len(added)
    assert np.abs(share - 1 / 9).max() < 5 * (0.1 / len(added)) ** 0.5


def test_a_count_as_coded_stays_below_ten_and_can_be_nothing():
    lengths = {len(runs(np.arange(100), seed, 0.5)) for seed in range(500)}
    assert max(lengths) == 109 and min(lengths) == 100
    assert all(len(runs(IDS[:3], seed)) == 3 for seed in range(50))  # below int(0.32 * 5) = 1
    # Below int(0.32 * 7) = 2: special tokens count.
    assert {len(runs(IDS[:5], seed)) for seed in range(99)} == {5, 6}
    assert len(runs(IDS[:0], 1)) == 0


def test_repeated_subwords_stand_beside_themselves():
    places = np.zeros(30)
    for seed in range(2000):
        made = runs(IDS, seed)
        tokens, counts = np.unique(made, return_counts=True)
        assert np.array_equal(tokens, IDS) and counts.max() <= 2
        assert np.array_equal(made, np.repeat(IDS, counts))
        places += counts - 1
    assert places.min() > 0.7 * places.mean()  # every place is as likely
