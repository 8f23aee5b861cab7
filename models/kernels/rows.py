"""Scatter and gather of rows."""

from __future__ import annotations

import torch
from torch import Tensor


def spread(rows: Tensor, places: Tensor, size: int) -> Tensor:
    """Scatter rows (N, W) to distinct places among `size` rows, zeros elsewhere."""
    return _Spread.apply(rows, places, size)


def collect(rows: Tensor, places: Tensor) -> Tensor:
    """Gather the rows at distinct places, (size, W) -> (N, W); the adjoint of `spread`."""
    return _Collect.apply(rows, places)


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, places: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(places)
        return rows.new_zeros(size, rows.shape[1]).index_copy_(0, places, rows)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return gradient.index_select(0, *ctx.saved_tensors), None, None


class _Collect(torch.autograd.Function):
    """Indexing with a backward that copies: places are distinct, so nothing needs to be summed."""

    @staticmethod
    def forward(ctx, rows: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.size = len(rows)
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        (places,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.size, gradient.shape[1]).index_copy_(0, places, gradient), None
