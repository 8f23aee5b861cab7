"""The momentum encoder against its closed form."""

import pytest
import torch

from models.encoder import SentenceEncoder
from models.heads import projection_named
from models.loading import load_backbone
from models.objectives.moco import MomentumEncoder


@pytest.fixture
def parts(tiny_bert):
    encoder = SentenceEncoder(load_backbone(str(tiny_bert)), "cls_before_pooler", None, 64)
    return encoder, projection_named("batch_norm", 32, 0.3)


def test_the_moving_average_after_n_steps_has_its_closed_form(parts):
    encoder, projection = parts
    slow = MomentumEncoder(encoder, projection, 0.9, dropout=False)
    start = {name: p.clone() for name, p in encoder.named_parameters()}
    step = {
        name: torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
        for name, p in start.items()
    }
    for n in range(1, 6):
        for name, p in encoder.named_parameters():
            p.data = start[name] + n * step[name]
        projection.inner_norm.running_mean += 1
        slow.follow(encoder, projection)
    # k_n = k_0 + step * sum over t of (1 - m) m^(n - t) t
    moved = sum(0.1 * 0.9 ** (5 - t) * t for t in range(1, 6))
    for name, p in slow.encoder.named_parameters():
        torch.testing.assert_close(p, start[name] + moved * step[name], atol=1e-5, rtol=1e-4)
    assert torch.equal(slow.projection.inner_norm.running_mean, projection.inner_norm.running_mean)


def test_a_key_encoder_never_learns_and_has_dropout_only_where_asked(parts):
    encoder, _ = parts
    ids, mask = (
        torch.randint(10, 90, (4, 7), generator=torch.Generator().manual_seed(0)),
        torch.ones(4, 7).long(),
    )
    for dropout in (True, False):
        slow = MomentumEncoder(encoder, None, 0.99, dropout).train()
        assert not any(p.requires_grad for p in slow.parameters())
        first, second = slow(ids, mask), slow(ids, mask)
        assert not first.requires_grad
        assert torch.equal(first, second) != dropout
        assert not slow.eval().encoder.training
    torch.testing.assert_close(slow(ids, mask), encoder.eval()(ids, mask).pooled)
