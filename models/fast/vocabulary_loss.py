"""Cross entropy over a vocabulary without all logits in memory at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.views import IGNORED

# rows with logits in memory in float32, twice as many in bfloat16: 62 MB with BERT's vocabulary
CHUNK = 512
BLOCK = 16  # rows per softmax on a CPU, so that they stay in its cache


def vocabulary_loss(decoder: nn.Linear, states: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of -log softmax(decoder(states))[target] over the rows with a target.

    Args:
        decoder: the output matrix, (vocabulary, H), and its bias, if any.
        states: (M, H); products use the autocast dtype if autocast is on, the softmax float32.
        targets: (M,), IGNORED for a row without a loss.
    """
    return _SumOfCrossEntropies.apply(
        states, decoder.weight, decoder.bias, targets, torch.is_grad_enabled()
    )


class _SumOfCrossEntropies(torch.autograd.Function):
    """Computes gradients with the loss, chunk by chunk, while softmax minus target is in memory."""

    @staticmethod
    def forward(
        ctx, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, learns: bool
    ) -> Tensor:
        device_type = states.device.type
        precision = (
            torch.get_autocast_dtype(device_type)
            if torch.is_autocast_enabled(device_type)
            else weight.dtype
        )
        matrix, rows = weight.to(precision), states.to(precision)
        total = torch.zeros((), device=states.device)
        d_states = torch.empty_like(rows)
        shift = None if bias is None else bias.to(precision)
        d_weight, d_bias = None, None if bias is None else torch.zeros_like(bias)
        chunk = CHUNK * 4 // rows.element_size()
        for start in range(0, max(len(rows), 1), chunk):
            piece = slice(start, start + chunk)
            logits = F.linear(rows[piece], matrix, shift)
            total += _become_gradient(logits, targets[piece], d_bias)
            if not learns:
                continue
            torch.mm(logits, matrix, out=d_states[piece])
            if d_weight is None:
                d_weight = (logits.T @ rows[piece]).to(weight.dtype)
            elif precision == weight.dtype:
                d_weight.addmm_(logits.T, rows[piece])
            else:
                d_weight += logits.T @ rows[piece]
        if learns:
            ctx.gradients = d_states.to(states.dtype), d_weight, d_bias
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor):
        d_states, d_weight, d_bias = ctx.gradients
        # scaled in place, so only one copy of the matrix gradient exists; a second backward fails
        del ctx.gradients
        d_bias = None if d_bias is None else d_bias.mul_(gradient)
        return d_states.mul_(gradient), d_weight.mul_(gradient), d_bias, None, None


def _become_gradient(logits: Tensor, targets: Tensor, d_bias: Tensor | None) -> Tensor:
    """Sum the rows' cross entropies; replace the logits by their gradient, add the bias's."""
    total = torch.zeros((), device=logits.device)
    size = BLOCK if logits.device.type == "cpu" else len(logits)
    for part, target in zip(logits.split(size), targets.split(size), strict=True):
        real = target != IGNORED
        target = target.clamp(min=0).unsqueeze(1)
        soft = part if part.dtype == torch.float64 else part.float()
        picked, top = soft.gather(1, target).squeeze(1), soft.amax(1, keepdim=True)
        mass = soft.sub_(top).exp_().sum(1, keepdim=True)
        total += torch.where(real, (top + mass.log()).squeeze(1) - picked, 0.0).sum()
        weight = real.to(soft.dtype).unsqueeze(1)  # 0 without a target, whose gradient is 0
        soft.mul_(mass.reciprocal().mul_(weight)).scatter_add_(1, target, -weight)
        if d_bias is not None:
            d_bias += soft.sum(0)
        part.copy_(soft)
    return total
