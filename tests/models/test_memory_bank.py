"""The loss with a memory bank sentence by sentence, and what is drawn from it."""

import math

import torch
from pytest import approx
from torch.nn import functional as F

from models.objectives.memory_bank import drawn
from tests.methods import build_model, make_batch

ROWS, TAU = 5, 0.1


def test_negatives_are_the_stored_vectors_of_earlier_steps(tiny_bert):
    model = build_model("memory_bank", tiny_bert, queue_size=4, bank_size=12, temperature=TAU)
    bank, generator = [], torch.Generator().manual_seed(3)
    for step in range(5):
        batch = make_batch("memory_bank", tiny_bert, torch.ones(ROWS, 8), seed=step)
        with torch.no_grad():
            views = [
                [
                    model.projection(model.encoder.backbone(input_ids=ids[None])[0][:, 0])[0]
                    for ids in view
                ]
                for view in batch["input_ids"]
            ]
        held, pushed = min(ROWS * step, 12), ROWS * step
        slots = {number % 12: vector for number, vector in enumerate(bank)}  # the newest in a slot
        chosen = (
            range(held) if held <= 4 else [(pushed % held + held // 4 * k) % held for k in range(4)]
        )
        negatives = [slots[slot] for slot in chosen]
        total = 0.0
        for i, query in enumerate(views[0]):
            logits = [
                F.cosine_similarity(query, key, dim=0).item() / TAU
                for key in [*views[1], *negatives]
            ]
            total += math.log(sum(map(math.exp, logits))) - logits[i]
        out = model(**batch)
        assert len(negatives) == min(4, held) and out.loss.item() == approx(total / ROWS, rel=1e-4)
        bank += views[1]
        out.loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p += 0.02 * torch.randn(p.shape, generator=generator)
        model.zero_grad()


def test_all_stored_vectors_get_their_turn_and_none_twice_in_a_step():
    for held, count in ((7, 9), (64, 64), (100, 7), (1000, 64)):
        seen = set()
        for step in range(held):
            positions = drawn(held, torch.tensor(step), count).tolist()
            assert len({*positions}) == len(positions) == min(held, count) and max(positions) < held
            seen |= {*positions}
        assert seen == {*range(held)}
