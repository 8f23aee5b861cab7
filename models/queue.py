"""A first-in first-out memory of vectors, saved with the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from common.errors import StorageError


class VectorQueue(nn.Module):
    """The last `size` vectors pushed, (size, width); empty at the start (MoCo, arXiv 1911.05722, section 3.2).

    The buffers are persistent: a resumed run finds its negatives. Every process must push the same rows.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        try:
            vectors = torch.zeros(size, width)
        except (RuntimeError, TypeError) as error:  # no memory; a number that torch has no size for
            raise StorageError(
                f"--queue_size {size}: so many vectors of {width} do not fit in memory; lower it"
            ) from error
        self.register_buffer("vectors", vectors)
        self.register_buffer("pushed", torch.zeros((), dtype=torch.long))  # in all, so the next place is its remainder
        self._full = False  # what is full stays full: no device has to be asked again

    def contents(self) -> Tensor:
        """What is held, (M, width) with M <= size, in the order of the buffer."""
        if not self._full:
            held = int(self.pushed)
            self._full = held >= len(self.vectors)
            return self.vectors[:held].clone()
        return self.vectors.clone()  # the next push must not change what a backward pass still needs

    @torch.no_grad()
    def push(self, rows: Tensor) -> None:
        """Append (N, width); the oldest give way. Of more rows than fit the last are kept."""
        size = len(self.vectors)
        skipped = max(0, len(rows) - size)
        kept = rows[skipped:].to(self.vectors.dtype)
        places = (self.pushed + skipped + torch.arange(len(kept), device=self.vectors.device)) % size
        self.vectors[places] = kept
        self.pushed += len(rows)
