"""Perturbed embeddings: new positions, zeroed or added values.

Source: ConSERT (arXiv 2105.11741) section 3.2. Nothing random happens here: perturbations are drawn
in the collator, or are gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from models.families import family_of


@dataclass(frozen=True)
class Perturbation:
    """A change of the embedding output of a padded batch; None means no change.

    Attributes:
        positions: the new position of each token, counted from 0, (B, L).
        kept: 0 where the output becomes zero, without scaling the rest; packed by `numpy.packbits`,
            since it travels with every batch, (B, L, H / 8).
        added: added to the output, (B, L, H).
    """

    positions: Tensor | None = None
    kept: Tensor | None = None
    added: Tensor | None = None

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.positions, self.kept, self.added))

    def position_ids(self, config) -> Tensor | None:
        """The positions as the model counts them, (B, L)."""
        if self.positions is None or not family_of(config).offset_positions:
            return self.positions
        return self.positions + config.pad_token_id + 1

    def change(self, states: Tensor, pick: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply to the embedding output.

        `pick` selects from padded tensors, (B, L, ...), the tokens of `states`.
        """
        if self.kept is not None:
            packed = pick(self.kept).unsqueeze(-1)  # (..., H / 8, 1), the highest bit first
            shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=packed.device)
            kept = (packed >> shifts & 1).flatten(-2)
            states = states * kept[..., : states.shape[-1]]
        if self.added is not None:
            states = states + pick(self.added).to(states.dtype)
        return states


UNCHANGED = Perturbation()
