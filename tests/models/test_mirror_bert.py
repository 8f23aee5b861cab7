"""The masked span's place, length and exceptions."""

import numpy as np
import pytest

from data.views import MASK
from models.objectives.mirror_bert import mask_span

IDS = np.arange(10, 30)


def spanned(seed, ids=IDS, length=2):
    return mask_span(ids, np.ones(len(ids), bool), np.random.default_rng(seed), length)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_one_mask_token_stands_for_a_span_anywhere(length):
    places = np.zeros(len(IDS) - length + 1)
    for seed in range(3000):
        made = spanned(seed, length=length)
        [start] = np.flatnonzero(made == MASK)
        assert made.tolist() == [*IDS[:start], MASK, *IDS[start + length :]]
        places[start] += 1
    share = places / places.sum()
    assert np.abs(share - 1 / len(places)).max() < 5 * (1 / len(places) / 3000) ** 0.5


def test_short_sentences_stay():
    for ids, length in ((IDS[:5], 1), (IDS[:5], 2), (IDS[:5], 4), (IDS[:6], 6), (IDS[:0], 2)):
        assert all(spanned(seed, ids, length).tolist() == ids.tolist() for seed in range(20))
    assert MASK in spanned(0, IDS[:6], 5)
