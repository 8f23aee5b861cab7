"""ConSERT: every change of the embeddings as in the paper, padded and packed."""

from typing import get_args

import numpy as np
import pytest
import torch

from models.encoder import SentenceEncoder
from models.loading import load_backbone
from models.objectives import consert
from models.perturb import Perturbation
from tests.methods import mask_of

RATES = {"shuffle": 1.0, "token_cutoff": 0.3, "feature_cutoff": 0.25, "dropout": 0.4, "span": 0.3}


def changed(change, count=11, width=8, seed=3):
    return consert.perturb(count, width, np.random.default_rng(seed), change, RATES[change])


def test_shuffle_permutes_positions_and_nothing_else():
    positions, kept = changed("shuffle")
    assert sorted(positions) == list(range(11))
    assert list(positions) != list(range(11))
    assert kept.all()
    firsts = {changed("shuffle", seed=seed).positions[0] for seed in range(60)}
    assert len(firsts) == 11  # the special tokens too


@pytest.mark.parametrize(
    ("change", "axis", "size", "gone"), [("token_cutoff", 1, 8, 3), ("feature_cutoff", 0, 11, 2)]
)
def test_a_cutoff_zeroes_whole_rows_or_columns(change, axis, size, gone):
    positions, kept = changed(change)
    assert list(positions) == list(range(11))
    assert set(kept.sum(axis)) == {0, size}
    assert (kept.sum(axis) == 0).sum() == gone  # int(0.3 x 11), int(0.25 x 8)


def test_dropout_zeroes_single_values_at_its_rate():
    positions, kept = changed("dropout", 200, 500)
    assert list(positions) == list(range(200))
    assert kept.mean() == pytest.approx(0.6, abs=0.005)
    assert 0.4 < kept.mean(0).min() and 0.4 < kept.mean(1).min(), "no whole rows or columns"


def test_a_span_keeps_one_run_of_whole_rows():
    starts = set()
    for seed in range(60):
        positions, kept = changed("span", seed=seed)
        rows = np.flatnonzero(kept.any(1))
        assert kept[rows].all() and len(rows) == 7, "int(0.7 x 11)"
        assert list(positions) == list(range(11)) and rows[-1] - rows[0] == 6
        starts.add(int(rows[0]))
    assert starts == set(range(5))
    assert changed("span", count=1).kept.all(), "at least one token is kept"


def encoder_of(folder, packed, pooling="avg_top2", **options):
    return SentenceEncoder(load_backbone(folder), pooling, None, 64, packed, **options).eval()


def batch():
    ids = torch.randint(10, 90, (5, 9), generator=torch.Generator().manual_seed(2))
    return ids, mask_of([4, 9, 7, 9, 2])


def by_hand(folder, ids, positions, kept):
    """One sentence without padding: the backbone on embeddings that were changed by hand."""
    backbone = load_backbone(folder).eval()
    first = backbone.embeddings.padding_idx + 1 if backbone.config.model_type == "roberta" else 0
    states = [backbone.embeddings(input_ids=ids, position_ids=positions + first) * kept]
    for layer in backbone.encoder.layer:
        states.append(layer(states[-1], None))
    return sum(states[-2:])[0].mean(0) / 2


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("change", get_args(consert.Change)[1:])
def test_the_encoder_applies_the_drawn_change(folder, packed, change):
    ids, mask = batch()
    positions = torch.arange(9).repeat(5, 1)
    kept = torch.ones(5, 9, 32, dtype=torch.bool)
    for row, count in enumerate(mask.sum(1).tolist()):
        drawn = changed(change, count, 32, seed=row)
        positions[row, :count], kept[row, :count] = map(torch.from_numpy, drawn)
    encoder = encoder_of(folder, packed)
    with torch.no_grad():
        plain = encoder(ids, mask).pooled
        bits = torch.from_numpy(np.packbits(kept, axis=-1))
        got = encoder(ids, mask, None, Perturbation(positions, bits)).pooled
        for row, count in enumerate(mask.sum(1)):
            alone = (part[row : row + 1, :count] for part in (ids, positions, kept))
            expected = by_hand(folder, *alone)
            torch.testing.assert_close(got[row], expected, atol=2e-5, rtol=1e-4)
    assert (got - plain).norm(dim=1)[1] > 1e-2


def test_the_loss_and_the_artefact_pool_differently(folder):
    ids, mask = batch()
    encoder = encoder_of(folder, True, train_pooling="avg")
    with torch.no_grad():
        other = encoder_of(folder, True, "avg")
        assert torch.equal(encoder(ids, mask).pooled, other(ids, mask).pooled)
        assert torch.equal(encoder.embed(ids, mask), encoder_of(folder, True).embed(ids, mask))
        assert not torch.allclose(encoder(ids, mask).pooled, encoder.embed(ids, mask))
