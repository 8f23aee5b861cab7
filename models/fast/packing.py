"""Positions of a batch's tokens and labels, as integers computed with numpy.

The collator computes them and they travel with the batch, so no step waits for a device to count.
Code that has only a mask (an evaluation) computes them from the mask's copy on the host.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from data.views import IGNORED

EDGE = 8  # the attention grid has a multiple of this many columns
ROWS = 128  # labelled tokens of a padded batch are padded to a multiple of this
# By name: the labelled views, and their labels, (number of these views, B, L).
Marked = Mapping[str, tuple[Sequence[int], np.ndarray]]


def filled(count: int) -> int:
    """Round `count` up by at most a sixteenth, to one of sixteen values between two powers of two.

    oneDNN caches a primitive for every shape: with a new number of tokens in every step, bfloat16
    training on a CPU would grow by tens of megabytes per step.
    """
    step = max(EDGE, 1 << max(0, count.bit_length() - 5))
    return _multiple(count, step)


def _multiple(count: int, step: int) -> int:
    return -(-max(count, 1) // step) * step


class Labels(NamedTuple):
    """Labelled tokens of a batch, filled up with unlabelled ones to a round number.

    Attributes:
        tokens: their indices among the computed tokens, (M,).
        targets: their labels, IGNORED for the filling, (M,).
        read: in a packed batch, the first tokens of the sentences and `tokens`, ascending, (R,).
        first_among, tokens_among: the indices in `read` of the first tokens, (B,), and of `tokens`,
            (M,).
    """

    tokens: Tensor
    targets: Tensor
    read: Tensor
    first_among: Tensor
    tokens_among: Tensor


class Grid:
    """A padded batch, (B, L): all positions are computed, vocabulary logits only at the labelled
    ones.

    Args:
        mask: True for a real token, (B, L).
        labels: by name, labels of the tokens, (B, L), IGNORED if absent.
        static: keep the number of shapes small: round the labels to a sixteenth of the positions.
    """

    def __init__(
        self, mask: np.ndarray, labels: Mapping[str, np.ndarray] | None = None, static: bool = False
    ) -> None:
        self.batch, self.columns = mask.shape
        self.static = static
        parts = self._tokens(mask)
        for name, values in (labels or {}).items():
            parts |= {
                f"{name} {part}": value for part, value in self._marked(parts, values).items()
            }
        self._sizes = {name: len(part) for name, part in parts.items()}
        self.numbers = torch.from_numpy(
            np.concatenate([np.empty(0, dtype=np.int64), *parts.values()])
        )

    def _tokens(self, mask: np.ndarray) -> dict[str, np.ndarray]:
        """The computed tokens: all, so there is nothing to list."""
        return {}

    def _marked(
        self, tokens: Mapping[str, np.ndarray], labels: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The fields of `Labels` for labels (B, L)."""
        chosen = np.flatnonzero(labels != IGNORED)
        size = (
            _multiple(len(chosen), max(1, labels.size // 16))
            if self.static
            else -(-len(chosen) // ROWS) * ROWS
        )
        filling = (0, size - len(chosen))
        targets = np.pad(labels.ravel()[chosen], filling, constant_values=IGNORED)
        return {"tokens": np.pad(chosen, filling), "targets": targets}

    @classmethod
    def of(cls, attention_mask: Tensor) -> Grid:
        """The grid of a mask, on the mask's device, which is synchronised."""
        return cls(attention_mask.cpu().numpy() != 0).to(attention_mask.device)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Grid:
        """Copy to another device, as one tensor."""
        return self._with(self.numbers.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Grid:
        """Copy to pinned memory; called by the data loader."""
        return self._with(self.numbers.pin_memory())

    def _with(self, numbers: Tensor) -> Grid:
        grid = copy.copy(self)
        grid.numbers = numbers
        return grid

    @property
    def parts(self) -> dict[str, Tensor]:
        """The integers by name."""
        return dict(zip(self._sizes, self.numbers.split(list(self._sizes.values())), strict=True))

    def labels(self, name: str | None, labels: Tensor) -> Labels:
        """The tokens with a label of that name; computed from `labels`, (B, L), if they did not come with the batch."""
        parts = self.parts
        fields = {part: parts.get(f"{name} {part}") for part in Labels._fields}
        if fields["tokens"] is None:
            tokens = {part: value.cpu().numpy() for part, value in parts.items()}
            marked = self._marked(tokens, labels.cpu().numpy())
            fields |= {
                part: torch.from_numpy(value).to(labels.device) for part, value in marked.items()
            }
        return Labels(**fields)


class Layout(Grid):
    """The N tokens of a packed batch, in a grid of B rows and `length` columns.

    They are the real tokens and the first padding positions, as many as make N a round number; with
    `static` a multiple of an eighth of the grid.

    Attributes:
        length: L rounded up to a multiple of EDGE.
        full: whether the whole grid is real tokens.
        parts: `slots`, the index of each token in the flattened grid, ascending, (N,); `source`,
            its index in the flattened mask, where columns beyond the mask count as the last one,
            (N,); `first`, the index of each sentence's first token among the N, (B,).
    """

    def _tokens(self, mask: np.ndarray) -> dict[str, np.ndarray]:
        self.length = _multiple(self.columns, EDGE)
        kept = np.zeros((self.batch, self.length), dtype=bool)
        kept[:, : self.columns] = mask
        self.full = bool(kept.all()) and not self.static
        kept[:, 0] = True  # even if the padding is on the left
        kept = self._closed(kept.ravel(), True, 8)
        slots = np.flatnonzero(kept)
        row, column = np.divmod(slots, self.length)
        source = row * self.columns + np.minimum(column, self.columns - 1)
        return {"slots": slots, "source": source, "first": np.cumsum(kept)[:: self.length] - 1}

    def _marked(
        self, tokens: Mapping[str, np.ndarray], labels: np.ndarray
    ) -> dict[str, np.ndarray]:
        slots, source, first = (tokens[name] for name in ("slots", "source", "first"))
        targets = np.where(slots % self.length < self.columns, labels.ravel()[source], IGNORED)
        spare = np.ones(len(slots), dtype=bool)
        spare[first] = False
        chosen = np.flatnonzero(self._closed(targets != IGNORED, spare, 16))
        read = np.union1d(first, chosen)
        among = {
            "first_among": np.searchsorted(read, first),
            "tokens_among": np.searchsorted(read, chosen),
        }
        return {"tokens": chosen, "targets": targets[chosen], "read": read, **among}

    def _closed(self, chosen: np.ndarray, spare: np.ndarray | bool, share: int) -> np.ndarray:
        """Choose the first spare positions too, as many as make the number of chosen ones round."""
        count, size = int(chosen.sum()), self.batch * self.length
        goal = _multiple(count, max(1, size // share)) if self.static else filled(count)
        closed = chosen.copy()
        closed[np.flatnonzero(~chosen & spare)[: goal - count]] = True
        return closed


class Mask(NamedTuple):
    """Which positions of a batch are real tokens, (B, L), and their layout, if it came with the batch."""

    real: Tensor
    layout: Grid | None = None


@dataclass(frozen=True)
class Packing:
    """The layouts that travel with a batch: of all views together, of each view, and of those with
    a masked twin.

    Args:
        grid: Layout for a packed model, Grid for a padded one.
        chunk: also make layouts for chunks of this many sentences; 0: only for the whole batch.
        static: see `Grid`; the number of columns is then a multiple of EDGE.
    """

    grid: type[Grid]
    chunk: int = 0
    static: bool = False

    def columns(self, count: int) -> int:
        """How many columns a batch of `count` gets."""
        return _multiple(count, EDGE) if self.static else count

    def layouts(self, mask: np.ndarray, marked: Marked) -> dict[tuple, Grid]:
        """The layouts of a mask (V, B, L), keyed by views, first sentence and end."""
        views, count, _ = mask.shape
        groups = {
            tuple(range(views)),
            *((view,) for view in range(views)),
            *(tuple(of) for of, _ in marked.values()),
        }
        size = self.chunk or count
        rows = {(0, count), *((cut, min(cut + size, count)) for cut in range(0, count, size))}
        layouts = {}
        for views, (start, stop) in itertools.product(groups, rows):
            part = mask[list(views), start:stop]
            labels = {
                name: ids[:, start:stop] for name, (of, ids) in marked.items() if tuple(of) == views
            }
            labels = {name: ids.reshape(-1, ids.shape[-1]) for name, ids in labels.items()}
            layouts[views, start, stop] = self.grid(
                part.reshape(-1, part.shape[-1]), labels, self.static
            )
        return layouts

    def of_targets(self, ids: np.ndarray, mask: np.ndarray) -> dict[tuple, Grid]:
        """The layouts, as group `target`, of texts (V, B, L) that a decoder predicts: columns 1 on."""
        views = tuple(range(len(ids)))
        following = np.where(mask, ids, IGNORED)[..., 1:]
        layouts = self.layouts(mask[..., 1:], {"target": (views, following)})
        return {("target", *rows): layout for (of, *rows), layout in layouts.items() if of == views}
