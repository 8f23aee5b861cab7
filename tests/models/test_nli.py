"""The NLI classifier and the adversarial view against slow computations."""

import math

import pytest
import torch
from torch import nn

from data.views import View
from models.encoder import SentenceEncoder
from models.loading import load_backbone
from models.objectives import nli
from models.objectives.base import Batch, Encoded
from models.perturb import Perturbation
from tests.methods import mask_of
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
def encoder(tiny_bert):
    return SentenceEncoder(load_backbone(str(tiny_bert)), "avg", None, 64, True).eval()


def objective(encoder, **options):
    [made] = nli.METHOD.build(nli.Arguments(**options), encoder, None, "")
    torch.manual_seed(0)
    nn.init.normal_(made.classifier.weight, std=0.5)
    return made


def batch(views=2):
    ids = torch.randint(10, 90, (views, 4, 8), generator=torch.Generator().manual_seed(5))
    mask = mask_of([8, 5, 8, 8]).expand(views, -1, -1)
    return Batch(ids, mask, labels=torch.tensor([[0, 2, 1, 1]]))


def encode(encoder, made):
    ids, mask = made.input_ids, made.attention_mask
    output = encoder(ids.flatten(0, 1), mask.flatten(0, 1))
    pooled = output.pooled.view(*ids.shape[:2], -1)
    encoded = Encoded(pooled, output.cls.view_as(pooled), encoder, None, pooled)
    encoded.projected = pooled
    return encoded


@pytest.mark.parametrize("features", ["paper", "code"])
def test_the_classifier_is_equation_2(encoder, features):
    made = objective(encoder, features=features, contrastive_weight=0.0)
    rows = batch()
    encoded = encode(encoder, rows)
    terms = made(encoded, rows)
    assert list(terms) == ["classification"]
    weight, bias = made.classifier.weight.tolist(), made.classifier.bias.tolist()
    expected = slow_cross_entropy(*encoded.pooled, rows.labels[0], weight, bias, features == "code")
    assert terms["classification"].value.item() == pytest.approx(expected, rel=1e-4)
    assert not made.reads_projection


def test_only_the_contrastive_term_asks_for_copies():
    def views(**flags):
        return nli.METHOD.views(nli.Arguments(**flags))

    plain = {"view_1": "none", "view_2": "none"}
    assert len(views(contrastive_weight=0.0)) == len(views(view_2="adversarial")) == 2
    assert [view.perturb is None for view in views()] == [True, True, False, False]
    assert len(views(view_1="shuffle", view_2="dropout")) == 6
    assert views(**plain) == [View()] * 4
    assert views(**plain, contrastive_weight=0.0) == [View()] * 2


def test_premises_are_compared_with_premises_and_hypotheses_with_hypotheses(encoder):
    made = objective(encoder)
    rows = batch(4)
    encoded = encode(encoder, rows)
    term = made(encoded, rows)["contrastive"]
    pairs = zip(encoded.pooled[:2], encoded.pooled[2:], strict=True)
    expected = sum(2 * slow_nt_xent(*texts, 0.1) for texts in pairs)
    assert term.value.item() == pytest.approx(expected, rel=1e-5)
    assert term.weight == 0.15


def loss_when_moved(encoder, made, rows, added):
    ids, mask = rows.input_ids.flatten(0, 1), rows.attention_mask.flatten(0, 1)
    pooled = encoder(ids, mask, None, Perturbation(added=added)).pooled.view(2, 4, -1)
    return float(made.loss(pooled, rows.labels[0]).detach())


def test_the_adversarial_view_moves_along_the_losses_steepest_direction(encoder, monkeypatch):
    made = objective(encoder, view_2="adversarial", adversarial_size=0.5)
    rows, moved = batch(), []
    real = nli.fast_gradient
    monkeypatch.setattr(
        nli, "fast_gradient", lambda g, size: moved.append((g, real(g, size))) or moved[-1][1]
    )
    made(encode(encoder, rows), rows)
    [(gradient, added)] = moved
    torch.testing.assert_close(added.flatten(1).norm(dim=1), torch.full((8,), 0.5))
    # Finite differences: along the change and along random directions the loss changes as the
    # gradient says.
    generator, steepest = torch.Generator().manual_seed(9), float(gradient.norm())
    for direction in [gradient, *torch.randn(3, *gradient.shape, generator=generator)]:
        direction = direction / direction.norm() * (added != 0)
        up, down = (loss_when_moved(encoder, made, rows, by * direction) for by in (1e-2, -1e-2))
        slope = float((gradient * direction).sum())
        assert (up - down) / 2e-2 == pytest.approx(slope, abs=1e-3 * steepest)
    stay = loss_when_moved(encoder, made, rows, 0 * added)
    assert loss_when_moved(encoder, made, rows, added) > stay


def test_the_adversarial_view_trains_the_encoder_but_not_through_its_direction(encoder):
    made = objective(encoder, view_2="adversarial")
    rows = batch()
    made(encode(encoder, rows), rows)["contrastive"].value.backward()
    assert made.classifier.weight.grad is None  # the change is a number, no graph
    assert all(p.grad is not None for p in encoder.backbone.encoder.parameters())
