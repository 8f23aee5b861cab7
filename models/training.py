"""Encoder, projection head and objectives as one trainable model; composition only."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from common.packing import Grid, Layout, Packing
from models.collectives import gather_with_gradient, local_rows, world_size
from models.contrast import mean_cosine, uniformity
from models.encoder import SentenceEncoder
from models.heads import project
from models.kernels.dropout import lighten_dropout
from models.kernels.recompute import exchange_activations, recomputing
from models.objectives.base import Batch, Encoded, Objective, add_up
from models.perturb import Perturbation
from models.precision import at_least_float32, cast_together


@dataclass
class TrainingOutput(ModelOutput):
    """The loss to minimise, and its raw terms by name."""

    loss: Tensor | None = None
    terms: dict[str, Tensor] | None = None


class EncoderForTraining(PreTrainedModel):
    """Sum of the objectives' weighted terms on one batch.

    Args:
        encoder: the artefact; its kept head, where it has one, is the projection.
        projection: a head for training only, or None.
        objectives: what is minimised.
    """

    # The loss is a mean over the batch, so the Trainer has to divide it by the accumulation steps.
    accepts_loss_kwargs = False
    supports_gradient_checkpointing = True
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, encoder: SentenceEncoder, projection: nn.Module | None, objectives: Sequence[Objective]) -> None:
        super().__init__(encoder.config)
        self.encoder = encoder
        read = any(objective.reads_projection for objective in objectives)
        self.projection = projection if read else None  # a head that no loss reaches would never get a gradient
        self.objectives = nn.ModuleList(objectives)
        lighten_dropout(self)
        exchange_activations(self)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: every part arrives initialised or loaded, and must not be drawn anew."""

    def packing(self, count: int, chunk: int = 0, static: bool = False) -> Packing:
        """Which layouts batches of `count` views take along."""
        groups = {tuple(range(count)), *(group for each in self.objectives for group in each.groups(count))}
        return Packing(Layout if self.encoder.packed else Grid, frozenset(groups), chunk, static)

    @property
    def head(self) -> nn.Module | None:
        """The projection head: the encoder's own where it keeps one."""
        return self.encoder.head if self.encoder.head is not None else self.projection

    def forward(self, **inputs: Tensor) -> TrainingOutput:
        """One training step's loss; the inputs are those of `Batch.of`."""
        batch = Batch.of(**inputs)
        encoded = self.encode(batch)
        self.project(encoded, batch)
        device = batch.input_ids.device
        with recomputing(device):
            terms = [term for objective in self.objectives for term in objective(encoded, batch).items()]
        loss, values = add_up(terms, device)
        return TrainingOutput(loss=loss, terms=values)

    def encode(self, batch: Batch) -> Encoded:
        """All views in one forward: they differ in ids and dropout masks only."""
        shape = batch.input_ids.shape[:2]
        rates = None if batch.dropout_rates is None else batch.dropout_rates.flatten(0, 1)
        change = None
        if batch.kept is not None:
            change = Perturbation(batch.positions.flatten(0, 1), batch.kept.flatten(0, 1))
        ids, mask = batch.input_ids.flatten(0, 1), batch.attention_mask.flatten(0, 1)
        with_tokens = any(objective.reads_tokens for objective in self.objectives)
        # Several processes average gradients while the backward pass runs: there these may not come all at its end.
        # A layer that is computed again meets the weights as they are, not as they were cast for the first time.
        alone = world_size() == 1 and not self.is_activation_checkpointing
        cast = cast_together(self.encoder, ids.device) if alone else nullcontext()
        with recomputing(ids.device), cast:
            output = self.encoder(ids, mask, rates, change, with_tokens, batch.layout())
        pooled, cls, tokens = (None if part is None else part.unflatten(0, shape) for part in output)
        return Encoded(pooled, cls, None, self.encoder, self.head, tokens=tokens)

    def project(self, encoded: Encoded, batch: Batch) -> None:
        """Gather, then project, so that batch statistics are those of all processes; in float32."""
        if not any(objective.reads_projection for objective in self.objectives):
            return
        pooled, device = at_least_float32(encoded.pooled), encoded.pooled.device
        with recomputing(device):
            for objective in self.objectives:
                pooled = objective.cleaned(pooled, encoded, batch)
        with torch.autocast(device.type, enabled=False):
            everyone = gather_with_gradient(pooled)  # (V, N, H)
            encoded.projected = project(self.head, everyone)
        encoded.own_projected = local_rows(encoded.projected)

    @torch.no_grad()
    def probe(self, **inputs: Tensor) -> dict[str, float]:
        """Diagnostics on one batch in evaluation mode: spread of the vectors and what the objectives add."""
        was_training = self.training
        self.eval()
        batch = Batch.of(**inputs)
        encoded = self.encode(batch)
        seen = {"mean_cosine": mean_cosine(encoded.pooled[0]), "uniformity": uniformity(encoded.pooled[0])}
        for objective in self.objectives:
            seen |= objective.probe(encoded, batch)
        self.train(was_training)
        return {name: float(value) for name, value in seen.items()}

    def after_step(self) -> None:
        """Tell the objectives that the optimizer has stepped."""
        for objective in self.objectives:
            objective.after_step(self.encoder, self.head)
