"""Sampled dropout: which rate every operation has, and how the rates are distributed."""

import numpy as np
import pytest
import torch

from models.encoder import SentenceEncoder
from models.fast import dropout as sampled
from models.fast.dropout import Dropout
from models.fast.packed import Packed
from models.fast.tokens import Padded
from models.loading import load_backbone
from models.objectives import s_simcse
from tests.methods import build_model, make_batch, mask_of

LENGTHS = [3, 9, 5, 12, 7, 9]
# Embeddings; of each layer attention weights, attention output, feed-forward output.
OPERATIONS = 1 + 3 * 4


def encoder_of(folder, packed, pooling="cls_before_pooler"):
    return build_model("s_simcse", folder, packed, dropout=0.1, pooling=pooling).encoder


def sentences(folder):
    batch = make_batch("simcse", folder, mask_of(LENGTHS))
    return batch["input_ids"][0], batch["attention_mask"][0]


@pytest.mark.parametrize("packed", [False, True])
def test_rates_end_with_their_call(tiny_bert, packed):
    """They reach no later call and no evaluation."""
    encoder, rates = encoder_of(tiny_bert, packed), torch.full((len(LENGTHS), 1), 0.5)
    batch, plain = sentences(tiny_bert), []
    for given in ([], [rates], []):
        torch.manual_seed(4)
        plain.append(encoder(*batch, *given).pooled)
    assert torch.equal(plain[0], plain[2]) and not torch.equal(plain[0], plain[1])
    encoder.eval()
    assert torch.equal(encoder(*batch, rates).pooled, encoder(*batch).pooled)


@pytest.mark.parametrize("count", [1, OPERATIONS])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pooling", ["cls_before_pooler", "avg"])
def test_every_operation_drops_at_its_own_rate(folder, packed, pooling, count, monkeypatch):
    """In the network's order, and each row at its sentence's rate; one rate is that of all."""
    encoder, seen = encoder_of(folder, packed, pooling=pooling), []
    draw = sampled._draw

    def kept(*given):
        seen.append(given[:2])
        return draw(*given)

    monkeypatch.setattr(sampled, "_draw", kept)
    assert encoder.dropout_operations == OPERATIONS
    ids, mask = sentences(folder)
    rates = torch.rand(len(LENGTHS), count, generator=torch.Generator().manual_seed(5)) * 0.6
    rates[2] = torch.nan  # the model's own
    encoder(ids, mask, rates)
    rates = rates.nan_to_num(0.1).expand(-1, OPERATIONS)
    row = (Packed if packed else Padded).of(mask).row
    assert len(seen) == OPERATIONS
    for number, (shape, drawn) in enumerate(seen):
        assert (len(shape) == 4) == (number % 3 == 1), "attention weights come first in a layer"
        of_tokens = drawn.numel() != len(LENGTHS)
        of_cls = pooling == "cls_before_pooler" and number > 10
        assert of_tokens == (number == 0 or (packed and number % 3 != 1 and not of_cls))
        assert torch.equal(drawn.flatten(), (rates[row] if of_tokens else rates)[:, number])


def test_rates_have_the_distribution_asked_for():
    uniform = (np.arange(20000) + 0.5) / 20000
    rates = s_simcse.quantile(uniform, s_simcse.Arguments())
    assert (rates.min(), rates.max(), rates.mean()) == pytest.approx((0.0, 0.2, 0.1), abs=1e-4)
    assert rates.std() == pytest.approx(0.2 / 12**0.5, rel=1e-3)
    beta = s_simcse.quantile(uniform, s_simcse.Arguments(rate_distribution="beta", rate_high=0.4))
    assert beta.mean() == pytest.approx(0.4 / 2, rel=1e-3)
    assert beta.var() == pytest.approx(0.16 / 20, rel=1e-2)  # a b / ((a + b)^2 (a + b + 1))
    listed = s_simcse.quantile(uniform, s_simcse.Arguments(rate_distribution="list"))
    assert np.unique(listed, return_counts=True)[1].tolist() == [6667, 6666, 6667]
    assert np.unique(listed).tolist() == [0.05, 0.1, 0.15]


@pytest.mark.parametrize("per_operation", [False, True])
def test_attention_weights_keep_their_rate_if_linear_only(tiny_bert, per_operation):
    rates = {"rate_low": 0.3, "rate_high": 0.6, "per_operation": per_operation}
    args = s_simcse.Arguments(linear_only=True, **rates)
    encoder = SentenceEncoder(load_backbone(str(tiny_bert)), "cls_before_pooler")
    s_simcse.METHOD.build(args, encoder, None, str(tiny_bert))
    [view, _] = s_simcse.METHOD.views(args)
    uniform = np.random.default_rng(0).random((5, OPERATIONS))
    rates = view.dropout.quantile(uniform)
    kept = {number for number in range(OPERATIONS) if np.isnan(rates[:, number]).all()}
    drops = [name for name, child in encoder.backbone.named_modules() if isinstance(child, Dropout)]
    assert kept == {number for number, name in enumerate(drops) if "attention.self" in name}
    expected = uniform if per_operation else np.repeat(uniform[:, :1], OPERATIONS, 1)
    others = [number for number in range(OPERATIONS) if number not in kept]
    assert rates[:, others] == pytest.approx(0.3 + 0.3 * expected[:, others])
    assert view.dropout.per_operation
