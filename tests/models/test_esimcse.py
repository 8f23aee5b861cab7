"""Repetition: how many, where, and what stays."""

import numpy as np
import pytest

from models.objectives import esimcse
from models.objectives.esimcse import repeat

IDS = np.arange(10, 40)
STARTS = np.array([i % 3 != 1 for i in range(30)])  # words of one or two pieces


def runs(ids, seed, rate=0.32, unit="subword", count="code"):
    starts = STARTS[: len(ids)]
    return repeat(ids, starts, np.random.default_rng(seed), rate, unit, count)


def undo(made):
    """Remove what directly repeats what stands before it."""
    return [t for i, t in enumerate(made) if i == 0 or made[i - 1] != t]


@pytest.mark.parametrize(("count", "most"), [("code", 8), ("paper", 9)])
def test_counts_are_uniform_up_to_their_limit(count, most):
    added = [len(runs(IDS, seed, 0.3, count=count)) - 30 for seed in range(4000)]
    assert set(added) == set(range(most + 1))
    share = np.bincount(added) / len(added)
    assert np.abs(share - 1 / (most + 1)).max() < 5 * (0.1 / len(added)) ** 0.5


def test_a_count_as_coded_stays_below_ten_and_can_be_nothing():
    long = np.arange(100)
    starts = np.ones(100, bool)
    lengths = {
        len(repeat(long, starts, np.random.default_rng(s), 0.5, "subword", "code"))
        for s in range(500)
    }
    assert max(lengths) == 109 and min(lengths) == 100
    assert all(len(runs(IDS[:3], seed)) == 3 for seed in range(50))  # below int(0.32 * 5) = 1
    assert {len(runs(IDS[:5], seed)) for seed in range(99)} == {
        5,
        6,
    }  # below int(0.32 * 7) = 2: special tokens count
    words = {len(runs(IDS[:4], seed, unit="word")) for seed in range(99)}
    assert words == {4, 5, 6}  # below max(2, int(0.32 * 3))
    assert {len(runs(IDS[:3], seed, count="paper")) for seed in range(50)} == {3, 4, 5}  # max(2, 0)
    assert len(runs(IDS[:0], 1)) == 0


def test_repeated_subwords_stand_beside_themselves():
    places = np.zeros(30)
    for seed in range(2000):
        made = runs(IDS, seed)
        assert undo(made.tolist()) == IDS.tolist()
        _, counts = np.unique(made, return_counts=True)
        assert counts.max() <= 2
        places += counts - 1
    assert places.min() > 0.7 * places.mean()  # every place is as likely


def test_a_word_is_repeated_with_all_of_its_pieces():
    words = np.split(IDS, np.flatnonzero(STARTS)[1:])
    seen = set()
    for seed in range(300):
        made, at = runs(IDS, seed, unit="word").tolist(), 0
        for word in words:
            assert made[at : at + len(word)] == word.tolist()
            at += len(word)
            if made[at : at + len(word)] == word.tolist():
                seen.add(len(word))
                at += len(word)
        assert at == len(made)
    assert seen == {1, 2}


@pytest.mark.parametrize(
    ("unit", "count", "last"), [("word", "code", 0), ("word", "paper", 1), ("subword", "code", 1)]
)
def test_the_last_word_is_never_repeated_as_coded(unit, count, last):
    """The official code draws words from range(0, n - 1), and subwords from all but [CLS] and [SEP]."""
    repeated = np.zeros(len(IDS))
    for seed in range(2000):
        values, counts = np.unique(runs(IDS, seed, unit=unit, count=count), return_counts=True)
        assert values.tolist() == IDS.tolist()
        repeated += counts - 1
    assert (repeated[-1] > 0) == last
    before = repeated[:-1]
    assert before.min() > 0.7 * before.mean(), "every other place is as likely"
    assert len(runs(IDS[:1], 3, unit=unit, count=count)) in ((1,) if count == "code" else (1, 2))


def test_the_second_view_alone_is_edited():
    first, second = esimcse.METHOD.views(esimcse.Arguments())
    assert first.edit is None and second.edit is not None
    assert len(second.edit(IDS, STARTS, np.random.default_rng(3))) >= 30
