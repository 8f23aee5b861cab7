"""The two-way loss against a loop over anchors; the masked span's place, length and exceptions."""

import numpy as np
import pytest
import torch

from data.views import MASK
from models.objectives import mirror_bert
from models.objectives.mirror_bert import mask_span
from tests.models.test_consert import slow_nt_xent

IDS = np.arange(10, 30)


def spanned(seed, ids=IDS, length=2):
    return mask_span(ids, np.ones(len(ids), bool), np.random.default_rng(seed), length)


def test_the_loss_equals_its_formula_for_every_anchor():
    first, second = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    [made] = mirror_bert.METHOD.build(mirror_bert.Arguments(temperature=0.3), None, None, None)
    assert made.loss(first, second).item() == pytest.approx(
        slow_nt_xent(first, second, 0.3), rel=1e-5
    )


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
    for length in (1, 2, 4):
        assert all(
            spanned(seed, IDS[:5], length).tolist() == IDS[:5].tolist() for seed in range(20)
        )
    assert spanned(0, IDS[:6], 6).tolist() == IDS[:6].tolist()
    assert MASK in spanned(0, IDS[:6], 5)
    assert len(spanned(0, IDS[:0])) == 0


def test_the_second_view_alone_is_masked():
    first, second = mirror_bert.METHOD.views(mirror_bert.Arguments())
    edited = second.edit(IDS, np.ones(20, bool), np.random.default_rng(1))
    assert first.edit is None and MASK in edited
    plain = mirror_bert.METHOD.views(mirror_bert.Arguments(span_tokens=0))
    assert [view.edit for view in plain] == [None, None]
