"""Losses with a queue against loops; the momentum encoder against its closed form."""

import pytest
import torch

from models.encoder import SentenceEncoder
from models.heads import projection_named
from models.loading import load_backbone
from models.objectives.moco import MomentumEncoder
from tests.methods import build_model, make_batch
from tests.models.test_contrast import slow_info_nce

ROWS, QUEUE, TAU = 5, 8, 0.05


def build(folder, method):
    return build_model(method, folder, queue_size=QUEUE, temperature=TAU)


@torch.no_grad()
def by_hand(model, method, batch, queue):
    """The loss, and the keys that follow the earlier ones."""
    memory, (first, second) = model.objectives[0].memory, batch["input_ids"]

    def vectors(backbone, projection, ids):
        return projection(backbone(input_ids=ids).last_hidden_state[:, 0])

    slow = model.projection if method == "esimcse" else memory.keys.projection
    backbone = model.encoder.backbone
    query = vectors(backbone, model.projection, first)
    kept = vectors(memory.keys.encoder.backbone, slow, first if method == "esimcse" else second)
    positive = kept if method == "moco" else vectors(backbone, model.projection, second)
    return slow_info_nce(query, positive, TAU, queue), [*kept]


@pytest.mark.parametrize("method", ["moco", "esimcse"])
def test_the_loss_counts_the_queue_and_the_queue_holds_the_last_keys(tiny_bert, method):
    model, held = build(tiny_bert, method), []
    generator = torch.Generator().manual_seed(3)
    for step in range(3):
        batch = make_batch("simcse", tiny_bert, torch.ones(ROWS, 8), seed=step)
        expected, keys = by_hand(model, method, batch, held)
        without, _ = by_hand(model, method, batch, [])
        loss = model(**batch).loss
        assert loss.item() == pytest.approx(expected, rel=1e-4)
        assert (expected > without + 0.01) == (step > 0), "negatives that matter"
        held = (held + keys)[-QUEUE:]
        queue = model.objectives[0].memory.queue
        oldest = int(queue.pushed) % QUEUE if len(held) == QUEUE else 0
        ordered = queue.contents().roll(-oldest, 0)
        torch.testing.assert_close(ordered, torch.stack(held), atol=1e-5, rtol=1e-4)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p += 0.02 * torch.randn(p.shape, generator=generator) * p.requires_grad
        model.after_step()
        model.zero_grad()


def test_keys_carry_no_gradient_and_the_trained_head_none_from_them(tiny_bert):
    """With the trained head on the keys, MoCo's gradient is that of constant keys."""
    gradients = []
    for head in ("online", "momentum"):  # equal at the start: the second is a copy
        model = build(tiny_bert, "moco")
        if head == "online":
            model.objectives[0].memory.keys.projection = None
        model(**make_batch("simcse", tiny_bert, torch.ones(ROWS, 8))).loss.backward()
        assert all(p.grad is None for p in model.objectives[0].memory.parameters())
        gradients.append([p.grad for p in model.projection.parameters()])
    assert all(gradient.abs().max() > 1e-4 for gradient in gradients[0])
    for gradient, other in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("method", ["moco", "esimcse"])
def test_keys_are_projected_in_float32_as_queries_are(tiny_bert, method):
    model = build(tiny_bert, method)
    batch, memory = make_batch("simcse", tiny_bert, torch.ones(ROWS, 8)), model.objectives[0].memory
    view = 0 if method == "esimcse" else 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(**batch)
        pooled = memory.keys(batch["input_ids"][view], batch["attention_mask"][view])
    slow = model.projection if method == "esimcse" else memory.keys.projection
    assert torch.equal(memory.queue.contents(), slow(pooled.float()))


@pytest.mark.parametrize(("method", "dropout"), [("moco", True), ("esimcse", False)])
def test_keys_never_learn_and_have_dropout_only_in_moco(tiny_bert, method, dropout):
    model = build_model(method, tiny_bert, dropout=0.3)
    keys = model.objectives[0].memory.keys
    ids, mask = torch.arange(10, 38).view(4, 7), torch.ones(4, 7).long()
    first, second = keys(ids, mask), keys(ids, mask)
    assert torch.equal(first, second) != dropout and not first.requires_grad
    torch.testing.assert_close(keys.eval()(ids, mask), model.eval().encoder(ids, mask).pooled)


def test_the_moving_average_after_n_steps_has_its_closed_form(tiny_bert):
    encoder = SentenceEncoder(load_backbone(str(tiny_bert)), "cls_before_pooler", None, 64)
    projection = projection_named("batch_norm", 32, 0.3)
    slow = MomentumEncoder(encoder, projection, 0.9, dropout=False)
    start = {name: p.clone() for name, p in encoder.named_parameters()}
    step = {name: torch.randn_like(p) for name, p in start.items()}
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
