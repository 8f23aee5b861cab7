"""What a network makes of a batch, for readers that need not know whether padding is among it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

if TYPE_CHECKING:
    from models.fast.padded import Padded


class Labelled(NamedTuple):
    """States of the labelled tokens and some unlabelled ones, with their labels (IGNORED for the latter), (M,)."""

    states: Tensor
    labels: Tensor


@dataclass(frozen=True)
class States:
    """The states of a batch's tokens. A last layer that waits runs for the tokens that are read: read it once.

    Attributes:
        tokens: where the tokens are, and how layers run on them.
        values: (B, L, H) with padding, (1, N, H) without.
        last: the layer that waits, or None.
    """

    tokens: Padded
    values: Tensor
    last: nn.Module | None = None

    def through(self, layers: Sequence[Callable], late: bool = True) -> States:
        """The states behind some layers; `late`: the last one may wait, which not every layer can."""
        return self.tokens.through(self.all, layers, late)

    @property
    def all(self) -> Tensor:
        """The states of all tokens, in the form of `values`."""
        return self.values if self.last is None else self.tokens.run([self.last], self.values)

    @property
    def padded(self) -> Tensor:
        """(B, L, H); padding is meaningless."""
        return self.tokens.unpack(self.all)

    @property
    def first(self) -> Tensor:
        """The first token of each sentence, (B, H)."""
        return self.tokens.first_of(self)

    def with_first(self, vectors: Tensor) -> States:
        """[h ; M > 0]: with the first tokens replaced by vectors, (B, H)."""
        return replace(self, values=self.tokens.with_first(self.all, vectors), last=None)

    def labelled(self, labels: Tensor, name: str | None = None) -> Labelled:
        """The states for a loss at the labels, (B, L), whose positions may have come with the batch under `name`."""
        marked = self.tokens.labels(name, labels)
        return Labelled(self.tokens.at(self, marked.tokens), marked.targets)

    def both(self, labels: Tensor, name: str | None = None) -> tuple[Tensor, Labelled]:
        """`first` and `labelled` in one reading."""
        return self.tokens.both(self, labels, name)

    def token_loss(
        self, transform: nn.Module, decoder: Callable, labels: Tensor, name: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sum of the cross entropies of the labels, (B, L), through transform and vocabulary matrix; their number."""
        return self.tokens.token_loss(transform, decoder, self.labelled(labels, name))
