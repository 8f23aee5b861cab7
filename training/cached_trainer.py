"""The Trainer's step with gradient caching; everything else, and the loop, is `training.trainer.EmbeddingTrainer`."""

from __future__ import annotations

import torch

from common.errors import BadInput
from models.caching import GradientCache
from models.objectives.base import Batch
from training.trainer import EmbeddingTrainer


class CachedTrainer(EmbeddingTrainer):
    """An EmbeddingTrainer that holds the graph of `chunk_size` sentences at a time, see `models.caching`.

    Raises:
        BadInput: a chunk size below 1; fp16, whose loss scaling is not known to the cache.
    """

    def __init__(self, model, args, *others, chunk_size: int, **named) -> None:
        if args.fp16:
            raise BadInput("--chunk_size and --fp16 do not go together: use --bf16")
        self._cache = GradientCache(model, chunk_size, lambda: self.accelerator.autocast())
        super().__init__(model, args, *others, **named)

    def training_step(self, model, inputs, num_items_in_batch=None) -> torch.Tensor:
        """Forward and backward by chunks. The wrapped `model` is not called: the cache averages the gradients, once."""
        model.train()
        self.optimizer.train()
        inputs = self._prepare_inputs(inputs)
        batch = Batch.of(**inputs)
        scale = 1 / self.current_gradient_accumulation_steps
        output = self._cache.backward(batch, scale, self.accelerator.sync_gradients)
        self.count_terms(output.terms, inputs)
        return output.loss * scale
