"""Gradient caching: a whole batch's gradient with the graph of a few sentences (Gao et al. 2021).

A contrastive loss needs all vectors at once, but the encoder's gradient needs only d loss / d
vector. So: encode every chunk without a graph; compute the loss of the whole batch with the vectors
as leaves, including head and batch statistics; encode every chunk again, with the same random
numbers, and backpropagate the leaves' gradients. Token losses are computed chunk by chunk in
between, and a momentum encoder makes its keys chunk by chunk. The gradient is exact: that of the
same forward, in the same chunks, with all graphs kept. Dropout draws other numbers for chunks than
for a whole batch, from the same distribution. Source: arXiv 2101.06983, section 3.2.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor

from models.collectives import average, means_over_tokens
from models.objectives.base import Batch, Encoded, add_up
from models.training import EncoderForTraining, TrainingOutput


class GradientCache:
    """Forward and backward of one batch, `size` sentences at a time.

    Args:
        model: unwrapped: `backward` averages the gradients over the processes itself, since DDP
            would wait for every parameter's gradient in the last backward pass, and the head's
            comes earlier.
        size: sentences per chunk, with all their views.
        precision: opens the autocast context; a new one per forward, since autocast caches weights
            that were cast without a graph until it closes.
    """

    def __init__(
        self, model: EncoderForTraining, size: int, precision: Callable[[], AbstractContextManager]
    ) -> None:
        self.model, self.size, self.precision = model, size, precision

    def backward(
        self, batch: Batch, scale: float = 1.0, synchronise: bool = True
    ) -> TrainingOutput:
        """Add the gradient of `scale` times the loss to the parameters; return the unscaled loss.

        `synchronise` averages the gradients, including those accumulated before, over the
        processes.
        """
        chunks = batch.split(self.size)
        device = batch.input_ids.device
        states, vectors = [], []
        for chunk in chunks:
            states.append(random_state(device))
            with torch.no_grad(), self.precision():
                encoded = self.model.encode(chunk)
            vectors.append(_read(encoded))
        leaves = [torch.cat(parts, dim=1).requires_grad_() for parts in zip(*vectors, strict=True)]
        output = self._losses(leaves, batch, chunks, scale)
        after = random_state(device)
        parts = [_split(leaf.grad, self.size, len(chunks)) for leaf in leaves]
        for chunk, state, *gradient in zip(chunks, states, *parts, strict=True):
            set_random_state(state, device)
            with self.precision():
                encoded = self.model.encode(chunk)
            _back(_read(encoded), gradient)
        set_random_state(after, device)
        if synchronise:
            average(p.grad for p in self.model.parameters() if p.grad is not None)
        return output

    def _losses(
        self, leaves: list[Tensor], batch: Batch, chunks: list[Batch], scale: float
    ) -> TrainingOutput:
        """Compute all terms, and their gradients for leaves, head and objectives' networks."""
        pooled, cls, *others = leaves
        tokens = others[0] if others else None
        encoder, head = self.model.encoder, self.model.head
        encoded = Encoded(pooled, cls, encoder, head, chunk_size=self.size, tokens=tokens)
        with self.precision():
            self.model.project(encoded, batch)
            whole = [
                objective for objective in self.model.objectives if objective.tokens(batch) is None
            ]
            loss, terms = add_up(
                [term for part in whole for term in part(encoded, batch).items()], pooled.device
            )
        # The head's output, as the token losses read it, is a leaf too: the head's backward runs
        # once, at the end.
        projected = None
        if encoded.local_projected is not None:
            projected = encoded.local_projected.detach().requires_grad_()
        token_loss = self._per_chunk(
            replace(encoded, local_projected=projected), batch, chunks, scale, terms
        )
        gradient = None if projected is None else projected.grad
        _back([loss * scale, encoded.local_projected], [torch.ones_like(loss), gradient])
        return TrainingOutput(loss=loss.detach() + token_loss, terms=terms)

    def _per_chunk(
        self,
        encoded: Encoded,
        batch: Batch,
        chunks: list[Batch],
        scale: float,
        terms: dict[str, Tensor],
    ) -> Tensor:
        """Backpropagate objectives with `tokens` per chunk; add their terms; return the loss."""
        loss = torch.zeros((), device=batch.input_ids.device)
        counted = [
            (part, count)
            for part in self.model.objectives
            if (count := part.tokens(batch)) is not None
        ]
        ones = [torch.ones((), device=batch.input_ids.device)] * len(counted)
        shares = means_over_tokens(ones, [count for _, count in counted])
        for number, chunk in enumerate(chunks):
            rows = slice(number * self.size, (number + 1) * self.size)
            for (objective, _), share in zip(counted, shares, strict=True):
                with self.precision():
                    chunk_terms = objective(_rows(encoded, rows), chunk)
                for name, term in chunk_terms.items():
                    part = share * term.value
                    _back([scale * term.weight * part], [torch.ones_like(part)])
                    terms[name] = terms.get(name, 0) + part.detach()
                    loss = loss + term.weight * part.detach()
        return loss


def random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return the states of the generators that dropout on `device` uses."""
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), on_device


def set_random_state(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    """Restore a `random_state`."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)


def _read(encoded: Encoded) -> list[Tensor]:
    """Return the parts of the encoder's output that a loss may read."""
    return [part for part in (encoded.pooled, encoded.cls, encoded.tokens) if part is not None]


def _rows(encoded: Encoded, rows: slice) -> Encoded:
    """Return what an objective with `tokens` sees of a chunk."""
    local = None if encoded.local_projected is None else encoded.local_projected[:, rows]
    return replace(encoded, pooled=encoded.pooled[:, rows], local_projected=local, rows=rows)


def _split(gradient: Tensor | None, size: int, count: int) -> list[Tensor | None]:
    """Split a leaf's gradient by chunk; None if no loss read the leaf."""
    return [None] * count if gradient is None else list(gradient.split(size, dim=1))


def _back(outputs: Sequence[Tensor | None], gradients: Sequence[Tensor | None]) -> None:
    """Backward from the outputs that have both a graph and a gradient."""
    reached, given = [], []
    for output, gradient in zip(outputs, gradients, strict=True):
        if gradient is not None and output is not None and output.requires_grad:
            reached.append(output)
            given.append(gradient)
    if reached:
        torch.autograd.backward(reached, given)
