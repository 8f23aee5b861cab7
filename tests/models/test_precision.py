"""Weights that are cast together give the numbers of autocast, which casts them singly."""

import torch
from torch import nn

from models.fast import casting
from models.fast.casting import cast_together


class Autocasting:
    """Torch that says bf16 autocast is on.

    Torch itself must not say so: autocast would restore that at its end.
    """

    is_autocast_enabled = staticmethod(lambda device: True)
    get_autocast_dtype = staticmethod(lambda device: torch.bfloat16)

    def __getattr__(self, name):
        return getattr(torch, name)


def test_cast_together_is_autocast_to_the_bit(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4, bias=False)
    )
    frozen = nn.Linear(4, 4).requires_grad_(False)
    model.append(frozen)
    x, results, cast = torch.randn(5, 8), [], []
    monkeypatch.setattr(casting, "torch", Autocasting())
    for device in ("cpu", "cuda"):  # by name: all is computed on the CPU
        model.zero_grad()
        with (
            torch.autocast("cpu", dtype=torch.bfloat16),
            cast_together(model, torch.device(device)),
        ):
            cast.append([model[0].weight.dtype, model[2].weight.dtype, frozen.weight.dtype])
            loss = model(x).float().square().sum()
        loss.backward()
        assert all(
            isinstance(p, nn.Parameter) and p.dtype == torch.float32 for p in model.parameters()
        )
        results.append([loss, *(p.grad for p in model.parameters() if p.requires_grad)])
    assert cast == [[torch.float32] * 3, [torch.bfloat16, torch.float32, torch.float32]]
    assert all(torch.equal(left, right) for left, right in zip(*results, strict=True))
    assert not torch.is_autocast_enabled("cpu")
