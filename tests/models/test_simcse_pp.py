"""SimCSE++ against loops over sentences and dimensions; its third view has no dropout."""

import math

import pytest
import torch

from models.objectives import simcse_pp
from tests.methods import build_model, make_batch
from tests.models.test_contrast import cosine, softmax


def off_dropout(first, second, clean, temperature, scale):
    """The formula, number by number."""
    total = 0.0
    for i, c in enumerate(clean):
        cosines = [cosine(c, other) for j, other in enumerate(clean) if j != i]
        cosines.insert(0, scale * cosine(first[i], second[i]))
        total -= math.log(softmax([value / temperature for value in cosines])[0])
    return total / len(clean)


def dimensions(first, second, temperature):
    """The formula, number by number: rows of `first.T` are the values of a dimension."""

    def standard(values):
        mean = sum(values) / len(values)
        variance = sum((v - mean) ** 2 for v in values) / len(values)
        return [(v - mean) / math.sqrt(variance + 1e-5) for v in values]

    left, right = ([standard(values) for values in view.T.tolist()] for view in (first, second))
    total = 0.0
    for d, a in enumerate(left):
        products = [sum(x * y for x, y in zip(a, b, strict=True)) for b in right]
        total -= math.log(softmax([value / len(a) / temperature for value in products])[d])
    return total / len(left)


@pytest.mark.parametrize("packed", [False, True])
def test_negatives_are_the_sentences_as_they_are_evaluated(tiny_bert, packed):
    folder = str(tiny_bert)
    flags = {"temperature": 0.01, "positive_scale": 0.9}  # exponentials beyond float32
    model, seen = build_model("simcse_pp", folder, packed, dropout=0.3, **flags), []
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
    expected = off_dropout(first, second, clean, 0.01, 0.9)
    assert out.terms["contrastive"].item() == pytest.approx(expected, rel=1e-4)
    assert out.terms["dimensions"].item() == pytest.approx(dimensions(first, second, 5.0), rel=1e-4)
    loss = out.terms["contrastive"] + 0.1 * out.terms["dimensions"]
    assert out.loss.item() == pytest.approx(loss.item())


def test_either_part_can_stand_alone(tiny_bert):
    method, arguments = simcse_pp.METHOD, simcse_pp.Arguments
    assert len(method.views(arguments(off_dropout=False))) == 2
    alone, plain = [("contrastive", None)], [("contrastive", None), ("dimensions", 2)]
    for flags, terms in (({"dimension_weight": 0}, alone), ({"off_dropout": False}, plain)):
        encoder = build_model("simcse", tiny_bert).encoder
        built = method.build(arguments(**flags), encoder, None, "")
        assert [(part.term, part.views) for part in built] == terms
