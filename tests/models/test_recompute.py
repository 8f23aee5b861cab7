"""What is computed again is what was computed, to the bit; and it is not kept."""

import copy
import weakref

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from models import fast
from models.fast.kernels.recompute import Recomputed, exchange_activations, recomputing
from models.fast.packed import Packed
from models.loading import load_backbone
from tests import methods


def gradients(backbone, packed, device, bf16):
    """Of a sum of squares; `device` cpu: computed again, meta: kept."""
    ids = torch.arange(60).view(4, 15) % 50 + 5
    mask = methods.mask_of([15, 3, 9, 7])
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16), recomputing(torch.device(device)):
        if packed:
            packing = Packed.of(mask)
            states = packing.run(backbone.encoder.layer, packing.embed(backbone, ids))
        else:
            states = backbone(input_ids=ids, attention_mask=mask).last_hidden_state
    (states.float() ** 2).sum().backward()
    return [parameter.grad for parameter in backbone.parameters()]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bf16", [False, True])
def test_gradients_are_the_same_to_the_bit(folder, packed, bf16):
    backbone = load_backbone(folder).train()
    fast.choose(backbone, True)
    other = copy.deepcopy(backbone)
    exchange_activations(other)
    assert set(other.state_dict()) == set(backbone.state_dict())
    pairs = zip(gradients(backbone, packed, "meta", bf16), gradients(other, packed, "cpu", bf16), strict=True)
    assert all((one is None and two is None) or torch.equal(one, two) for one, two in pairs)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_output_of_the_activation_is_freed(device):
    first, second, activation, seen = nn.Linear(8, 32), nn.Linear(32, 8), Recomputed(ACT2FN["gelu"]), []
    activation.register_forward_hook(lambda module, given, made: seen.append(weakref.ref(made.untyped_storage())))
    with recomputing(torch.device(device)):
        made = second(activation(first(torch.randn(5, 8))))
    assert (seen[0]() is None) == (device == "cpu")
    made.sum().backward()


def test_only_outputs_that_the_next_module_keeps_are_recomputed():
    """An output that is read twice, or by something that keeps nothing, changes nothing else."""
    activation = Recomputed(ACT2FN["gelu"])
    weight = torch.randn(6, 6, requires_grad=True)
    found = []
    for again in (False, True):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
        with recomputing(torch.device("cpu" if again else "meta")):
            made = activation(x)
            total = (made @ weight).sum() + (made * made).sum() + activation(x * 2).sum() + (x.exp() @ weight).sum()
        found.append(torch.autograd.grad(total, [x, weight]))
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)


LENGTHS = [6, 9] * 3
AGAIN = [(case, True) for case in ("simcse", "infocse", "tsdae", "nli, adversarial", "stage 1")]
AGAIN += [(case, False) for case in ("infocse, no detach", "consert", "ct", "stage 1")]


@pytest.mark.parametrize(("case", "packed"), AGAIN)
def test_recomputed_layers_have_the_same_gradients(tiny_bert, case, packed):
    """With dropout; `--gradient_checkpointing` of the Trainer."""
    found = []
    for again in (False, True):
        if case == "stage 1":
            model, made = methods.stage_one(tiny_bert, packed, dropout=0.1), methods.stage_one_batch(tiny_bert, LENGTHS)
            layers = model.lm.bert.encoder.layer
        else:
            model = methods.build_model(case, tiny_bert, packed, dropout=0.1)
            made = methods.make_batch(case, tiny_bert, methods.mask_of(LENGTHS))
            layers = model.encoder.backbone.encoder.layer
        computed = []
        layers[1].attention.register_forward_hook(lambda *_, of=computed: of.append(1))
        if again:
            model.gradient_checkpointing_enable()
        torch.manual_seed(3)
        model(**made).loss.backward()
        found.append(([p.grad for p in model.parameters()], len(computed)))
    (plain, once), (other, twice) = found
    assert twice > once
    assert all((one is None and two is None) or torch.equal(one, two) for one, two in zip(plain, other, strict=True))
