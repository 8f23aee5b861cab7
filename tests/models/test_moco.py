"""Losses with a memory, sentence by sentence: what is in the queue counts as a negative."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.methods import build_model, make_batch

ROWS, QUEUE, TAU = 5, 8, 0.05


def build(folder, method):
    return build_model(method, folder, queue_size=QUEUE, temperature=TAU)


@torch.no_grad()
def by_hand(model, method, batch, queue):
    """The loss, and the keys that follow the earlier ones."""
    memory, (first, second) = model.objectives[0].memory, batch["input_ids"]

    def vector(backbone, projection, ids):
        state = backbone(input_ids=ids[None]).last_hidden_state[0, :1]
        return projection(state)[0]

    slow = model.projection if method == "esimcse" else memory.keys.projection
    query = [vector(model.encoder.backbone, model.projection, ids) for ids in first]
    keyed = first if method == "esimcse" else second
    kept = [vector(memory.keys.encoder.backbone, slow, ids) for ids in keyed]
    positive = (
        kept
        if method == "moco"
        else [vector(model.encoder.backbone, model.projection, ids) for ids in second]
    )
    total = 0.0
    for i, q in enumerate(query):
        logits = [F.cosine_similarity(q, k, dim=0).item() / TAU for k in [*positive, *queue]]
        total += math.log(sum(math.exp(x) for x in logits)) - logits[i]
    return total / ROWS, kept


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
        torch.testing.assert_close(
            queue.contents().roll(-oldest, 0), torch.stack(held), atol=1e-5, rtol=1e-4
        )
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
