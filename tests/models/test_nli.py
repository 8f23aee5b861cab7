"""The NLI classifier and the adversarial view against slow computations."""

import math

import pytest
import torch
from torch import nn

from data.views import View
from models.objectives import nli
from models.objectives.base import Batch
from models.perturb import Perturbation
from tests.methods import build_model, make_batch, mask_of
from tests.models.test_contrast import slow_nt_xent, softmax


def slow_cross_entropy(first, second, labels, weight, bias, squares):
    total = 0.0
    for u, v, label in zip(first.tolist(), second.tolist(), labels.tolist(), strict=True):
        f = u + v + [abs(a - b) for a, b in zip(u, v, strict=True)]
        f += [max(a, b) ** 2 for a, b in zip(u, v, strict=True)] * squares
        scores = [sum(w * x for w, x in zip(row, f, strict=True)) for row in weight]
        total -= math.log(softmax([s + b for s, b in zip(scores, bias, strict=True)])[label])
    return total / len(labels)


@pytest.fixture
def built(tiny_bert):
    """A model without a head, whose classifier matters, and its batch."""

    def made(**options):
        model = build_model("nli", tiny_bert, True, "none", pooling="avg", **options)
        nn.init.normal_(model.objectives[0].classifier.weight, std=0.5)
        return model.eval(), make_batch("nli", tiny_bert, mask_of([8, 5, 8, 8]), **options)

    return made


@pytest.mark.parametrize("features", ["paper", "code"])
def test_the_classifier_is_equation_2(built, features):
    model, batch = built(features=features, contrastive_weight=0.0)
    [objective] = model.objectives
    vectors, terms = model.encode(Batch.of(**batch)).pooled, model(**batch).terms
    weight, bias = (p.tolist() for p in objective.classifier.parameters())
    given = *vectors, batch["labels"][0], weight, bias
    expected = slow_cross_entropy(*given, squares=features == "code")
    assert terms.keys() == {"classification"} and not objective.reads_projection
    assert terms["classification"].item() == pytest.approx(expected, rel=1e-4)


def test_only_the_contrastive_term_asks_for_copies():
    def views(**flags):
        return nli.METHOD.views(nli.Arguments(**flags))

    plain = {"view_1": "none", "view_2": "none"}
    assert len(views(contrastive_weight=0.0)) == len(views(view_2="adversarial")) == 2
    assert [view.perturb is None for view in views()] == [True, True, False, False]
    assert len(views(view_1="shuffle", view_2="dropout")) == 6
    assert views(**plain) == [View()] * 4
    assert views(**plain, contrastive_weight=0.0) == [View()] * 2


def test_premises_are_compared_with_premises_and_hypotheses_with_hypotheses(built):
    model, batch = built(contrastive_weight=0.15)
    vectors, output = model.encode(Batch.of(**batch)).pooled, model(**batch)
    pairs = zip(vectors[:2], vectors[2:], strict=True)
    expected = sum(2 * slow_nt_xent(*texts, 0.1) for texts in pairs)
    assert output.terms["contrastive"].item() == pytest.approx(expected, rel=1e-5)
    loss = output.terms["classification"].item() + 0.15 * expected
    assert output.loss.item() == pytest.approx(loss, rel=1e-5)


def test_the_adversarial_view_moves_along_the_losses_steepest_direction(built, monkeypatch):
    model, batch = built(view_2="adversarial", adversarial_size=0.5)
    moved, real = [], nli.fast_gradient

    def kept(gradient, size):
        moved.append((gradient, real(gradient, size)))
        return moved[0][1]

    monkeypatch.setattr(nli, "fast_gradient", kept)
    model(**batch)
    [(gradient, added)] = moved
    torch.testing.assert_close(added.flatten(1).norm(dim=1), torch.full((8,), 0.5))
    ids, mask = (batch[name].flatten(0, 1) for name in ("input_ids", "attention_mask"))

    def loss(by):
        pooled = model.encoder(ids, mask, None, Perturbation(added=by)).pooled.view(2, 4, -1)
        return float(model.objectives[0].loss(pooled, batch["labels"][0]).detach())

    # Finite differences: along the change and along random directions the loss changes as the
    # gradient says.
    generator, steepest = torch.Generator().manual_seed(9), float(gradient.norm())
    for direction in [gradient, *torch.randn(3, *gradient.shape, generator=generator)]:
        direction = direction / direction.norm() * (added != 0)
        slope = float((gradient * direction).sum())
        measured = (loss(1e-2 * direction) - loss(-1e-2 * direction)) / 2e-2
        assert measured == pytest.approx(slope, abs=1e-3 * steepest)
    assert loss(added) > loss(0 * added)


def test_the_adversarial_view_trains_the_encoder_but_not_through_its_direction(built):
    model, batch = built(view_2="adversarial")
    batch = Batch.of(**batch)
    encoded = model.encode(batch)
    model.project(encoded, batch)
    model.objectives[0](encoded, batch)["contrastive"].value.backward()
    # The change is a number, no graph.
    assert model.objectives[0].classifier.weight.grad is None
    assert all(p.grad is not None for p in model.encoder.backbone.encoder.parameters())
