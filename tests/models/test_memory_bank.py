"""The loss with a memory bank against a loop, and what is drawn from it."""

import torch
from pytest import approx

from models.objectives.base import Batch, Encoded
from models.objectives.memory_bank import BankContrast, drawn
from tests.methods import build_model, make_batch
from tests.models.test_contrast import slow_info_nce

ROWS, TAU = 5, 0.1


def test_negatives_are_the_stored_vectors_of_earlier_steps(tiny_bert):
    model = build_model("memory_bank", tiny_bert, negatives=4, bank_size=12, temperature=TAU)
    bank, generator = [], torch.Generator().manual_seed(3)
    for step in range(5):
        batch = make_batch("memory_bank", tiny_bert, torch.ones(ROWS, 8), seed=step)
        with torch.no_grad():
            states = [model.encoder.backbone(input_ids=ids)[0] for ids in batch["input_ids"]]
            first, second = (model.projection(state[:, 0]) for state in states)
        held = min(ROWS * step, 12)
        slots = {number % 12: vector for number, vector in enumerate(bank)}  # the newest in a slot
        negatives = [slots[slot] for slot in drawn(held, step, 4)]
        expected = slow_info_nce(first, second, TAU, negatives)
        out = model(**batch, seed=step)
        assert len(negatives) == min(4, held) and out.loss.item() == approx(expected, rel=1e-4)
        bank += [*second]
        out.loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p += 0.02 * torch.randn(p.shape, generator=generator)
        model.zero_grad()


def test_every_slot_of_a_full_bank_is_drawn_and_none_twice_in_a_step():
    """What is pushed are batches, here as many as divide the bank."""
    bank, seen = BankContrast(TAU, count=8, size=64, width=2), set()
    for step in range(100):
        numbers = torch.arange(8.0).add(8 * step).remainder(64)  # of the slot where each will be
        encoded = Encoded(None, None, None, None)
        encoded.projected = numbers.view(1, 8, 1).expand(2, 8, 2)
        _, _, stored = bank.vectors(encoded, Batch(None, None, seed=step))
        assert len({*stored[:, 0].tolist()}) == len(stored) == min(8, 8 * step)
        seen |= {*stored[:, 0].tolist()} if step > 8 else set()
    assert seen == {*range(64)}
