"""Cross entropy over a vocabulary whose logits never exist at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from views import IGNORED

CHUNK = 512  # rows whose logits exist at a time: 62 MB in float32 with BERT's vocabulary


def packed_token_loss(
    transform: nn.Module, decoder: nn.Linear, states: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Sum of the cross entropies of packed states (1, M, H) behind the transform, and the number of targets."""
    return vocabulary_loss(decoder, transform(states)[0], targets), (targets != IGNORED).sum()


def vocabulary_loss(decoder: nn.Linear, states: Tensor, targets: Tensor) -> Tensor:
    """The sum of -log softmax(decoder(states))[target] over the rows that have a target.

    Args:
        decoder: the output matrix and its bias, (vocabulary, H).
        states: (M, H); products are in the autocast type where autocast is on, the soft-max in float32.
        targets: (M,), IGNORED where a row carries no loss.
    """
    return _SumOfCrossEntropies.apply(states, decoder.weight, decoder.bias, targets, torch.is_grad_enabled())


class _SumOfCrossEntropies(torch.autograd.Function):
    """Computes the gradients with the loss, chunk by chunk: soft-max minus target is at hand there and is let go."""

    @staticmethod
    def forward(ctx, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, learns: bool) -> Tensor:
        kind = states.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        matrix, rows = weight.to(precision), states.to(precision)
        total = torch.zeros((), device=states.device)
        d_states = torch.empty_like(rows)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        for start in range(0, len(rows), CHUNK):
            piece = slice(start, start + CHUNK)
            wanted = targets[piece]
            log_p = F.log_softmax(F.linear(rows[piece], matrix, bias.to(precision)).float(), dim=-1)
            total += F.nll_loss(log_p, wanted, ignore_index=IGNORED, reduction="sum")
            if learns:
                _add_gradients(log_p, wanted, matrix, rows[piece], d_states[piece], d_weight, d_bias)
        if learns:
            ctx.gradients = d_states.to(states.dtype), d_weight, d_bias
        return total

    @staticmethod
    def backward(ctx, gradient: Tensor):
        d_states, d_weight, d_bias = ctx.gradients
        del ctx.gradients  # scaled in place, so that the matrix' gradient exists once; a second backward fails
        return d_states.mul_(gradient), d_weight.mul_(gradient), d_bias.mul_(gradient), None, None


def _add_gradients(log_p, targets, matrix, rows, d_rows, d_weight, d_bias) -> None:
    """Soft-max minus one-hot target is the gradient of the logits; `log_p` is used up."""
    d_logits = log_p.exp_()
    d_logits[torch.arange(len(targets), device=targets.device), targets.clamp(min=0)] -= 1
    d_logits.index_fill_(0, (targets == IGNORED).nonzero().squeeze(1), 0)
    d_bias += d_logits.sum(0)
    d_logits = d_logits.to(matrix.dtype)
    torch.mm(d_logits, matrix, out=d_rows)
    if matrix.dtype == d_weight.dtype:
        d_weight.addmm_(d_logits.T, rows)
    else:
        d_weight += d_logits.T @ rows
