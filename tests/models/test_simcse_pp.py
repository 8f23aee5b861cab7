"""SimCSE++ against loops over sentences and dimensions; its third view has no dropout."""

import math

import pytest
import torch

from models.objectives import simcse_pp
from tests.methods import build_model, make_batch


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def off_dropout(first, second, clean, temperature, scale):
    """The formula, number by number."""
    first, second, clean = first.tolist(), second.tolist(), clean.tolist()
    total = 0.0
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        positive = math.exp(scale * cosine(a, b) / temperature)
        negatives = [c for j, c in enumerate(clean) if j != i]
        others = sum(math.exp(cosine(clean[i], c) / temperature) for c in negatives)
        total -= math.log(positive / (positive + others))
    return total / len(first)


def dimensions(first, second, temperature):
    """The formula, number by number: rows of `first.T` are the values of a dimension."""

    def standard(values):
        mean = sum(values) / len(values)
        variance = sum((v - mean) ** 2 for v in values) / len(values)
        return [(v - mean) / math.sqrt(variance + 1e-5) for v in values]

    left, right = ([standard(values) for values in view.T.tolist()] for view in (first, second))
    total = 0.0
    for d, a in enumerate(left):
        scores = [
            sum(x * y for x, y in zip(a, b, strict=True)) / len(a) / temperature for b in right
        ]
        total -= scores[d] - math.log(sum(map(math.exp, scores)))
    return total / len(left)


def test_the_losses_are_the_formulas():
    first, second, clean = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))
    for temperature, scale in ((0.3, 1.0), (0.1, 0.9)):
        loss = simcse_pp.off_dropout_nce(first, second, clean, temperature, scale)
        assert loss.item() == pytest.approx(
            off_dropout(first, second, clean, temperature, scale), rel=1e-5
        )
    for temperature in (5.0, 0.1):
        loss = simcse_pp.dimension_wise(first, second, temperature)
        assert loss.item() == pytest.approx(dimensions(first, second, temperature), rel=1e-5)
    assert simcse_pp.off_dropout_nce(first, first, first, 1e-4, 1.0).item() == pytest.approx(
        0, abs=1e-6
    )


@pytest.mark.parametrize("packed", [False, True])
def test_negatives_are_the_sentences_as_they_are_evaluated(tiny_bert, packed):
    folder = str(tiny_bert)
    model, seen = build_model("simcse_pp", folder, packed, dropout=0.3), []
    batch = make_batch("simcse_pp", folder, torch.ones(6, 9))
    batch["input_ids"] = batch["input_ids"][:1].expand(3, -1, -1)
    batch["dropout_rates"] = torch.tensor([math.nan, math.nan, 0.0]).view(3, 1, 1).expand(3, 6, 1)
    model.encoder.register_forward_hook(lambda module, given, made: seen.append(made.pooled))
    out = model(**batch)
    out.loss.backward()
    first, second, clean = model.projection(seen[0]).unflatten(0, (3, 6)).detach()
    assert (first - second).norm(dim=1).min() > 1e-2
    given = batch["input_ids"][0], batch["attention_mask"][0]
    want = model.projection(model.eval().encoder(*given).pooled)
    torch.testing.assert_close(clean, want, rtol=1e-4, atol=1e-5)
    assert out.terms["contrastive"].item() == pytest.approx(
        off_dropout(first, second, clean, 0.1, 1.0), rel=1e-4
    )
    assert out.terms["dimensions"].item() == pytest.approx(dimensions(first, second, 5.0), rel=1e-4)
    assert out.loss.item() == pytest.approx(
        sum(out.terms.values()).item() - 0.9 * out.terms["dimensions"].item()
    )


def test_either_part_can_stand_alone(tiny_bert):
    method, arguments = simcse_pp.METHOD, simcse_pp.Arguments
    assert len(method.views(arguments(off_dropout=False))) == 2
    alone, plain = [("contrastive", None)], [("contrastive", None), ("dimensions", 2)]
    for flags, terms in (({"dimension_weight": 0}, alone), ({"off_dropout": False}, plain)):
        encoder = build_model("simcse", str(tiny_bert)).encoder
        assert [
            (part.term, part.views) for part in method.build(arguments(**flags), encoder, None, "")
        ] == terms
