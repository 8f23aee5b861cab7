"""States at the labels of a batch; fixed numbers of them are enough for every batch."""

from contextlib import nullcontext

import pytest
import torch

from data.views import IGNORED
from models import fast
from models.fast.packed import Packed
from models.fast.tokens import Padded, States
from tests.methods import CASES, build_model, make_batch, mask_of


def batch(seed, rows, columns=13, left=False):
    """A mask, and labels of about a third of its tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, columns + 1, (rows, 1), generator=generator)
    mask = torch.arange(columns) < lengths
    mask = mask.flip(1) if left else mask
    labels = torch.randint(5, 99, mask.shape, generator=generator)
    chosen = mask & (torch.rand(mask.shape, generator=generator) < 0.3)
    return mask.long(), labels.where(chosen, IGNORED)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("kind", [Padded, Packed])
@pytest.mark.parametrize("seed", range(5))
def test_states_at_the_labels_are_those_of_their_tokens(kind, seed, left):
    """Counted, and with a fixed number: every label once, with its own state."""
    mask, labels = batch(seed, rows=30, left=left)
    grid = torch.arange(mask.numel()).view(*mask.shape, 1).float()
    inputs = {"attention_mask": mask[None], "masked_labels": labels[None]}
    shares = fast.shares_of(inputs)
    expected = sorted(zip(labels[labels != IGNORED].tolist(), grid[labels != IGNORED], strict=True))
    for scope in (nullcontext(), fast.fixed(shares)):
        with scope:
            tokens = kind.of(mask)
            read, late = States(tokens, tokens.pack(grid).unsqueeze(0)).both(labels)
        assert read[:, 0].tolist() == grid[:, 0, 0].tolist()
        real = late.labels != IGNORED
        states = late.states.reshape(-1, 1)[real]
        assert sorted(zip(late.labels[real].tolist(), states, strict=True)) == expected


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_with_fixed_numbers_a_loss_is_the_same_and_only_the_batchs_shares_decide_them(
    tiny_bert, case, packed
):
    model = build_model(case, tiny_bert, packed=packed, spread=0.1).eval()
    shapes = []
    for lengths in ([3, 9, 5, 2, 10], [4, 9, 5, 2, 10]):
        made = make_batch(case, tiny_bert, mask_of(lengths))
        expected = model(**made).loss.item()
        shares = fast.shares_of(made)
        with fast.fixed(shares):
            assert model(**made).loss.item() == pytest.approx(expected, rel=1e-4, abs=1e-6)
            shapes.append((shares.tokens, Packed.of(made["attention_mask"][0]).slots.shape))
    assert shapes[0] == shapes[1]
