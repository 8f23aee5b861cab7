"""Losses on the first entries of vectors (Matryoshka) against loops over plain numbers."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.losses.matryoshka import shrink
from torch import nn

from models.contrast import nt_xent
from models.objectives import esimcse, rankcse, simcse, simcse_pp, spans
from models.objectives.base import Contrast
from tests.models.test_contrast import slow_info_nce

WIDTHS = (6, 3)


def narrow(objective, vectors):
    objective.widths = WIDTHS
    return objective(SimpleNamespace(projected=vectors), None)


@pytest.mark.parametrize("views", [2, 3])
def test_each_width_has_a_loss_over_vectors_cut_to_it(views):
    vectors = torch.randn(views, 5, 8, generator=torch.Generator().manual_seed(0))
    terms = narrow(simcse.Contrastive(0.5, weight=0.7), vectors)
    assert list(terms) == ["contrastive", "contrastive_6", "contrastive_3"]
    for (_, term), width in zip(terms.items(), (8, *WIDTHS), strict=True):
        query, key, *hard = vectors[..., :width]
        assert float(term.value) == pytest.approx(slow_info_nce(query, key, 0.5, *hard), rel=1e-5)
        assert term.weight == 0.7


def test_the_terms_are_those_of_sentence_transformers():
    vectors = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    theirs = MultipleNegativesRankingLoss(nn.Identity(), scale=20.0)
    for term, width in zip(narrow(simcse.Contrastive(0.05), vectors).values(), (8, *WIDTHS), strict=True):
        expected = theirs.compute_loss_from_embeddings([shrink(view, width) for view in vectors], None)
        torch.testing.assert_close(term.value, expected)


@pytest.mark.parametrize(
    "loss",
    [spans.two_way_nce, nt_xent, partial(simcse_pp.off_dropout_nce, scale=1.1), rankcse.consistency],
    ids=["spans", "consert", "simcse_pp", "rankcse"],
)
def test_a_width_s_term_is_the_term_of_vectors_with_zeros_behind_it(loss):
    loss = partial(loss, temperature=0.5)
    vectors = torch.randn(3 if "scale" in loss.keywords else 2, 5, 8, generator=torch.Generator().manual_seed(0))
    terms = narrow(Contrast(loss, term="near"), vectors)
    for width in WIDTHS:
        alone = loss(*(vectors * (torch.arange(8) < width)))
        torch.testing.assert_close(terms[f"near_{width}"].value, alone)
        assert not torch.isclose(alone, terms["near"].value)


def test_queued_vectors_are_cut_too_and_keys_are_queued_once():
    class Memory(nn.Module):
        head = "online"

        def __init__(self):
            super().__init__()
            self.queue = esimcse.moco.VectorQueue(20, 8)
            self.encode = lambda *_: torch.ones(5, 8)

    made = torch.Generator().manual_seed(0)
    vectors, queued = torch.randn(2, 5, 8, generator=made), torch.randn(4, 8, generator=made)
    objective = esimcse.QueuedContrastive(Memory(), 0.5)
    objective.memory.queue.push(queued)
    terms = narrow(objective, vectors)
    for width in WIDTHS:
        expected = slow_info_nce(*vectors[..., :width], 0.5, queued[:, :width])
        assert float(terms[f"contrastive_{width}"].value) == pytest.approx(expected, rel=1e-5)
    assert len(objective.memory.queue.contents()) == 9
