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
        encoder: the artefact; its kept head, if any, is the projection.
        projection: a head for training only, or None.
        objectives: the terms of the loss.
    """

    # The loss is a mean over the batch, so the Trainer must divide it by the accumulation steps.
    accepts_loss_kwargs = False
    supports_gradient_checkpointing = True
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, encoder: SentenceEncoder, projection: nn.Module | None, objectives: Sequence[Objective]) -> None:
        super().__init__(encoder.config)
        self.encoder = encoder
        read = any(objective.reads_projection for objective in objectives)
        self.projection = projection if read else None  # a head that no loss reads would never get a gradient
        self.objectives = nn.ModuleList(objectives)
        lighten_dropout(self)
        exchange_activations(self)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Do nothing: every part arrives initialised or loaded."""

    def packing(self, count: int, chunk: int = 0, static: bool = False) -> Packing:
        """The layouts that travel with batches of `count` views."""
        groups = {tuple(range(count)), *(group for each in self.objectives for group in each.groups(count))}
        return Packing(Layout if self.encoder.packed else Grid, frozenset(groups), chunk, static)

    @property
    def head(self) -> nn.Module | None:
        """The projection head: the encoder's if it keeps one."""
        return self.encoder.head if self.encoder.head is not None else self.projection

    def forward(self, **inputs: Tensor) -> TrainingOutput:
        """Return the loss of one training step; inputs as for `Batch.of`."""
        batch = Batch.of(**inputs)
        encoded = self.encode(batch)
        self.project(encoded, batch)
        device = batch.input_ids.device
        with recomputing(device):
            terms = [term for objective in self.objectives for term in objective(encoded, batch).items()]
        loss, values = add_up(terms, device)
        return TrainingOutput(loss=loss, terms=values)

    def encode(self, batch: Batch) -> Encoded:
        """Encode all views in one forward: they differ only in ids and dropout masks."""
        shape = batch.input_ids.shape[:2]
        rates = None if batch.dropout_rates is None else batch.dropout_rates.flatten(0, 1)
        change = None
        if batch.kept is not None:
            change = Perturbation(batch.positions.flatten(0, 1), batch.kept.flatten(0, 1))
        ids, mask = batch.input_ids.flatten(0, 1), batch.attention_mask.flatten(0, 1)
        with_tokens = any(objective.reads_tokens for objective in self.objectives)
        # Several processes average gradients during the backward pass, so they must not all come at its end.
        # A checkpointed layer is recomputed with the current weights, not with the ones cast in the first pass.
        alone = world_size() == 1 and not self.is_activation_checkpointing
        cast = cast_together(self.encoder, ids.device) if alone else nullcontext()
        with recomputing(ids.device), cast:
            output = self.encoder(ids, mask, rates, change, with_tokens, batch.layout())
        pooled, cls, tokens = (None if part is None else part.unflatten(0, shape) for part in output)
        return Encoded(pooled, cls, None, self.encoder, self.head, tokens=tokens)

    def project(self, encoded: Encoded, batch: Batch) -> None:
        """Gather, then project in float32, so that batch statistics are those of all processes."""
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
        """Diagnostics on one batch in evaluation mode: spread of the vectors, and those of the objectives."""
        was_training = self.training
        self.eval()
        batch = Batch.of(**inputs)
        encoded = self.encode(batch)
        values = {"mean_cosine": mean_cosine(encoded.pooled[0]), "uniformity": uniformity(encoded.pooled[0])}
        for objective in self.objectives:
            values |= objective.probe(encoded, batch)
        self.train(was_training)
        return {name: float(value) for name, value in values.items()}

    def after_step(self) -> None:
        """Call the objectives' hooks after an optimizer step."""
        for objective in self.objectives:
            objective.after_step(self.encoder, self.head)
