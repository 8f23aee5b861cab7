"""Packed equals padded: losses, gradients, vectors; weights that are cast ahead change nothing."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from data.views import IGNORED
from models import fast
from models.auxiliary import LowerLayers, load_masked_lm
from models.fast import casting
from models.fast.casting import cast_matrices, cast_together
from models.fast.packed import Packed
from models.fast.packing import filled
from models.fast.tokens import Padded, States
from models.pooling import POOLINGS
from tests import methods
from tests.methods import CASES, assert_same_step, build_model, make_batch, mask_of, step

GENERATOR = torch.Generator().manual_seed(8)
LENGTHS = {"drawn": torch.randint(3, 65, (16,), generator=GENERATOR).tolist()}
LENGTHS |= {"random": [2, 7, 11, 3, 9, 5, 13, 4], "one token": [1, 1, 6, 2]}
LENGTHS |= {"all of one token": [1, 1, 1], "one length": [8, 8, 8, 8], "longest": [64, 3, 40, 17]}
# Between two special tokens.
LENGTHS |= {"one word": [3, 3, 12, 3, 3], "all of one word": [3, 3, 3, 3]}


def pair(folder, case="infocse", **options):
    """Padded and packed, without batch norm, which over a few rows multiplies rounding."""
    return [build_model(case, folder, packed, spread=0.1, **options) for packed in (False, True)]


def batch_of(folder, lengths, case="infocse"):
    return make_batch(case, folder, mask_of(lengths))


def assert_equal(padded, packed, batch):
    """The last bits of float32 sums in another order differ from processor to processor."""
    assert_same_step(step(padded, batch), step(packed, batch), rel=2e-5)


# Its positions start behind the padding index.
ROBERTA = ("infocse_rtd", "consert", "promptbert", "tsdae, words")
BOTH = [("bert", case) for case in CASES] + [("roberta", case) for case in ROBERTA]


@pytest.mark.parametrize(("family", "case"), BOTH)
def test_losses_and_gradients_equal_the_padded_ones(tiny, family, case):
    """In float64 too, at a length that leaves little to compare."""
    folder = str(tiny(family))
    models = pair(folder, case)
    assert_equal(*models, batch_of(folder, LENGTHS["random"], case))
    assert_equal(*(model.double() for model in models), batch_of(folder, LENGTHS["one word"], case))


POOLED = [("bert", name) for name in POOLINGS if name != "cls"] + [("roberta", "avg_top2")]


@pytest.mark.parametrize(("family", "pooling"), POOLED)
def test_every_pooling_at_every_length(tiny, family, pooling):
    folder = str(tiny(family))
    models = [model.encoder.eval() for model in pair(folder, "simcse", pooling=pooling)]
    for lengths in LENGTHS.values():
        batch, results = batch_of(folder, lengths, "simcse"), []
        for encoder in models:
            encoder.zero_grad()
            encoded = encoder(batch["input_ids"][0], batch["attention_mask"][0])
            (encoded.pooled * torch.arange(32)).sum().backward()
            results.append((encoded.pooled, encoded.cls, [p.grad for p in encoder.parameters()]))
        (pooled, cls, gradients), (other_pooled, other_cls, others) = results
        assert (pooled - other_pooled).abs().max() < 1e-5 and pooled.std() > 0.1
        assert (cls - other_cls).abs().max() < 1e-5
        whole = torch.cat([g.flatten() for g in gradients]).norm()
        for g, other in zip(gradients, others, strict=True):
            assert (g - other).norm() <= 1e-5 * g.norm() + 1e-6 * whole


def test_stage_one_equals_the_padded_call(folder):
    models = [methods.stage_one(folder, packed).double() for packed in (False, True)]
    for lengths in ("random", "drawn", "one token", "one word", "longest"):
        batch = methods.stage_one_batch(folder, LENGTHS[lengths])
        assert_equal(*models, batch)
        padded, packed = (model.probe(**batch) for model in models)
        assert packed == pytest.approx(padded, rel=1e-5)
    batch = methods.stage_one_batch(folder, LENGTHS["random"])
    # A label on the first token is no exception.
    batch["masked_labels"][0, :3, 0] = torch.tensor([11, 12, 13])
    assert_equal(*models, batch)


def test_a_batch_without_a_masked_token_has_loss_zero_and_gradients_for_every_parameter(folder):
    batch = batch_of(folder, LENGTHS["random"])
    batch["masked_labels"].fill_(-100)
    _, model = pair(folder)
    terms, gradients, _ = step(model, batch)
    assert terms["aux_mlm"].item() == 0
    assert set(gradients) == {name for name, p in model.named_parameters() if p.requires_grad}


def test_bfloat16_stays_as_near_to_the_padded_call_as_that_to_float32(folder):
    """Both round to 8 bits in another order: 2 % in the loss, the gradient's direction."""
    batch, seen = batch_of(folder, LENGTHS["random"]), []
    for model in pair(folder):
        cast_matrices(model.objectives[1], torch.bfloat16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        assert all(p.grad.dtype == torch.float32 for p in model.parameters() if p.grad is not None)
        gradient = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        seen.append((loss.item(), torch.cat(gradient)))
    assert seen[1][0] == pytest.approx(seen[0][0], rel=0.02)
    assert F.cosine_similarity(seen[0][1], seen[1][1], dim=0) > 0.98


def test_frozen_matrices_held_in_bfloat16_change_no_bit_under_autocast(folder):
    lower = LowerLayers(load_masked_lm(folder).base_model, 2).eval().requires_grad_(False)
    batch = batch_of(folder, LENGTHS["random"])
    ids, mask = batch["input_ids"][0], batch["attention_mask"][0]
    states = []
    for held in (False, True):
        if held:
            cast_matrices(lower.layers, torch.bfloat16)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            states.append(lower(ids, mask).all)
    assert torch.equal(*states)
    kinds = {value.dtype for value in lower.layers.state_dict().values()}
    assert kinds == {torch.bfloat16, torch.float32}


def labelled(seed, left, rows=30, columns=13):
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
    mask, labels = labelled(seed, left)
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
def test_fixed_numbers_change_no_loss_and_only_the_shares_decide_them(tiny_bert, case, packed):
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


def test_the_number_of_tokens_is_rounded():
    for count in range(1, 5000):
        assert count <= filled(count) <= max(8, count * 17 / 16 + 8)
    assert len({filled(count) for count in range(1024, 2048)}) <= 17
    assert len(Packed.of(mask_of(LENGTHS["drawn"])).slots) == filled(sum(LENGTHS["drawn"]))


def test_cast_together_is_autocast_to_the_bit(monkeypatch):
    torch.manual_seed(0)
    layers = nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4, bias=False)
    frozen = nn.Linear(4, 4).requires_grad_(False)
    model = nn.Sequential(*layers, frozen)
    x, results, cast = torch.randn(5, 8), [], []
    # Not torch itself: its autocast would restore at the end what it says.
    said = {"is_autocast_enabled": lambda _: True, "get_autocast_dtype": lambda _: torch.bfloat16}
    monkeypatch.setattr(casting, "torch", SimpleNamespace(**vars(torch) | said))
    for device in map(torch.device, ("cpu", "cuda")):  # by name: all is computed on the CPU
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16), cast_together(model, device):
            cast.append([model[0].weight.dtype, model[2].weight.dtype, frozen.weight.dtype])
            loss = model(x).float().square().sum()
        loss.backward()
        for p in model.parameters():
            assert isinstance(p, nn.Parameter) and p.dtype == torch.float32
        results.append([loss, *(p.grad for p in model.parameters() if p.requires_grad)])
    assert cast == [[torch.float32] * 3, [torch.bfloat16, torch.float32, torch.float32]]
    assert all(torch.equal(left, right) for left, right in zip(*results, strict=True))
    assert not torch.is_autocast_enabled("cpu")
