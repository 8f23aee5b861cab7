"""Where the tokens and the labels of a batch are, as integers found with numpy.

The collator finds them, they travel with the batch, and nothing on a device has to be counted while a step runs.
Whatever runs on a mask alone (an evaluation) finds them there, from the mask's copy on the host.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from common.views import IGNORED

EDGE = 8  # the grid of attention has a multiple of so many columns
ROWS = 128  # labelled tokens of a padded batch are computed in multiples of it
# By name: the views that carry labels, and the labels, (number of these views, B, L).
Marked = Mapping[str, tuple[Sequence[int], np.ndarray]]


def filled(count: int) -> int:
    """`count` rounded up by at most a sixteenth, to one of sixteen values between two powers of two.

    oneDNN keeps a primitive for every shape it has seen: with a new number of tokens in every step, bfloat16 training
    on a CPU would grow by tens of megabytes a step.
    """
    step = max(EDGE, 1 << max(0, count.bit_length() - 5))
    return _multiple(count, step)


def _multiple(count: int, step: int) -> int:
    return -(-max(count, 1) // step) * step


class Labels(NamedTuple):
    """Tokens of a batch that carry a label, and others to a round number.

    Attributes:
        tokens: which of the tokens that are computed, (M,).
        targets: their labels, IGNORED for the others, (M,).
        read: in a packed batch the first tokens of the sentences and these, rising, (R,).
        first_among, tokens_among: the place in `read` of the ones, (B,), and of the others, (M,).
    """

    tokens: Tensor
    targets: Tensor
    read: Tensor
    first_among: Tensor
    tokens_among: Tensor


class Grid:
    """A padded batch, (B, L): all of its positions are computed, and the vocabulary's logits at the labelled ones.

    Args:
        mask: True for a real token, (B, L).
        labels: by name, labels of the tokens, (B, L), IGNORED where there is none.
        static: round to few numbers, so that steps have one of a few shapes: labels to a sixteenth of the positions.
    """

    def __init__(self, mask: np.ndarray, labels: Mapping[str, np.ndarray] | None = None, static: bool = False) -> None:
        self.batch, self.columns = mask.shape
        self.static = static
        parts = self._tokens(mask)
        for name, found in (labels or {}).items():
            parts |= {f"{name} {part}": value for part, value in self._marked(parts, found).items()}
        self._sizes = {name: len(part) for name, part in parts.items()}
        self.numbers = torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *parts.values()]))

    def _tokens(self, mask: np.ndarray) -> dict[str, np.ndarray]:
        """Which tokens are computed."""
        return {}

    def _marked(self, tokens: Mapping[str, np.ndarray], labels: np.ndarray) -> dict[str, np.ndarray]:
        """What `Labels` has, for labels (B, L)."""
        chosen = np.flatnonzero(labels != IGNORED)
        wanted = _multiple(len(chosen), max(1, labels.size // 16)) if self.static else -(-len(chosen) // ROWS) * ROWS
        beyond = (0, wanted - len(chosen))
        targets = np.pad(labels.ravel()[chosen], beyond, constant_values=IGNORED)
        return {"tokens": np.pad(chosen, beyond), "targets": targets}

    @classmethod
    def of(cls, attention_mask: Tensor) -> Grid:
        """Of a mask on any device, which is waited for; there too."""
        return cls(attention_mask.cpu().numpy() != 0).to(attention_mask.device)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Grid:
        """The same on another device, in one copy."""
        return self._with(self.numbers.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Grid:
        """The same in memory that a GPU reads by itself; the loader calls it."""
        return self._with(self.numbers.pin_memory())

    def _with(self, numbers: Tensor) -> Grid:
        made = copy.copy(self)
        made.numbers = numbers
        return made

    @property
    def parts(self) -> dict[str, Tensor]:
        """The integers by name."""
        return dict(zip(self._sizes, self.numbers.split(list(self._sizes.values())), strict=True))

    def labels(self, name: str, labels: Tensor) -> Labels:
        """The tokens that carry a label of that name; from the labels (B, L) where these did not travel along."""
        parts = self.parts
        found = {part: parts.get(f"{name} {part}") for part in Labels._fields}
        if found["tokens"] is None:
            known = {part: value.cpu().numpy() for part, value in parts.items()}
            made = self._marked(known, labels.cpu().numpy())
            found |= {part: torch.from_numpy(value).to(labels.device) for part, value in made.items()}
        return Labels(**found)


class Layout(Grid):
    """The tokens of a batch that are computed without its padding, (N,), in a grid of B rows and `length` columns.

    Beside the real tokens they are as many padding positions as make N a round number: the first ones there are. With
    `static` that is a multiple of an eighth of the grid.

    Attributes:
        length: L rounded up to a multiple of EDGE.
        full: whether all of the grid are real tokens.
        parts: `slots`, the place of each token in the flattened grid, rising, (N,); `source`, its place in the
            flattened mask, where columns beyond the mask's count as the last one, (N,); `first`, the index of each
            sentence's first token among the N, (B,).
    """

    def _tokens(self, mask: np.ndarray) -> dict[str, np.ndarray]:
        self.length = _multiple(self.columns, EDGE)
        kept = np.zeros((self.batch, self.length), dtype=bool)
        kept[:, : self.columns] = mask
        self.full = bool(kept.all()) and not self.static
        kept[:, 0] = True  # also where the padding is on the left
        kept = self._closed(kept.ravel(), True, 8)
        slots = np.flatnonzero(kept)
        row, column = np.divmod(slots, self.length)
        source = row * self.columns + np.minimum(column, self.columns - 1)
        return {"slots": slots, "source": source, "first": np.cumsum(kept)[:: self.length] - 1}

    def _marked(self, tokens: Mapping[str, np.ndarray], labels: np.ndarray) -> dict[str, np.ndarray]:
        slots, source, first = (tokens[name] for name in ("slots", "source", "first"))
        targets = np.where(slots % self.length < self.columns, labels.ravel()[source], IGNORED)
        spare = np.ones(len(slots), dtype=bool)
        spare[first] = False
        chosen = np.flatnonzero(self._closed(targets != IGNORED, spare, 16))
        read = np.union1d(first, chosen)
        among = {"first_among": np.searchsorted(read, first), "tokens_among": np.searchsorted(read, chosen)}
        return {"tokens": chosen, "targets": targets[chosen], "read": read, **among}

    def _closed(self, chosen: np.ndarray, spare: np.ndarray | bool, share: int) -> np.ndarray:
        """A mask with as many of its first gaps, where they are spare, closed as make the chosen a round number."""
        count, size = int(chosen.sum()), self.batch * self.length
        wanted = _multiple(count, max(1, size // share)) if self.static else filled(count)
        made = chosen.copy()
        made[np.flatnonzero(~chosen & spare)[: wanted - count]] = True
        return made


@dataclass(frozen=True)
class Packing:
    """What batches take along.

    Args:
        kind: a Layout for a packed model, a Grid for a padded one.
        groups: views whose sentences run together, by position.
        chunk: sentences that run at a time, beside all of them together; 0: no fewer.
        static: see `Grid`; the columns are a multiple of EDGE then.
    """

    kind: type[Grid]
    groups: frozenset[tuple[int, ...]]
    chunk: int = 0
    static: bool = False

    def layouts(self, mask: np.ndarray, marked: Marked) -> dict[tuple, Grid]:
        """The layouts of a mask (V, B, L), by the views, the first sentence and the one behind the last."""
        count = mask.shape[1]
        size = self.chunk or count
        rows = {(0, count), *((cut, min(cut + size, count)) for cut in range(0, count, size))}
        made = {}
        for views, (start, stop) in itertools.product(self.groups, rows):
            part = mask[list(views), start:stop]
            labels = {name: each[:, start:stop] for name, (of, each) in marked.items() if tuple(of) == views}
            labels = {name: each.reshape(-1, each.shape[-1]) for name, each in labels.items()}
            made[views, start, stop] = self.kind(part.reshape(-1, part.shape[-1]), labels, self.static)
        return made

    def of_targets(self, ids: np.ndarray, mask: np.ndarray) -> dict[tuple, Grid]:
        """The layouts, as group `target`, of texts (V, B, L) that are written token after token: of columns 1 on."""
        views = tuple(range(len(ids)))
        following = np.where(mask, ids, IGNORED)[..., 1:]
        made = replace(self, groups=frozenset({views})).layouts(mask[..., 1:], {"target": (views, following)})
        return {("target", *rows): layout for (_, *rows), layout in made.items()}
