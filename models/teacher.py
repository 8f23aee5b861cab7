"""Frozen encoders whose similarities between a batch's sentences another encoder learns from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from common.errors import BadInput
from data.template import frame_of
from models.auxiliary import run_like
from models.collectives import gather_rows
from models.contrast import cosines
from models.encoder import SentenceEncoder, load_encoder
from models.loading import check_vocabulary, load_tokenizer
from models.objectives.base import Batch, Encoded

ITSELF = "self"  # the flag value for the trained encoder


class Teacher(nn.Module):
    """Computes cosines of the vectors that are used after training, without gradient or dropout.

    Without an encoder of its own it uses the trained one in its current state.
    """

    def __init__(self, encoder: SentenceEncoder | None) -> None:
        super().__init__()
        self.encoder = None if encoder is None else encoder.requires_grad_(False)

    def train(self, mode: bool = True) -> Teacher:
        return super().train(False)

    @torch.no_grad()
    def similarities(self, batch: Batch, encoded: Encoded) -> Tensor:
        """Cosines of the sentences of all processes in the first view, (N, N).

        Computed `encoded.chunk_size` at a time.
        """
        encoder = encoded.encoder if self.encoder is None else self.encoder
        was_training = encoder.training
        encoder.eval()
        chunks = batch.split(encoded.chunk_size)
        parts = [encoder.embed(chunk.input_ids[0], chunk.attention_mask[0]) for chunk in chunks]
        encoder.train(was_training)
        everyone = gather_rows(torch.cat(parts))
        return cosines(everyone, everyone)


def load_teacher(path: str, pooling: str | None, student: SentenceEncoder, source: str) -> Teacher:
    """Load a teacher from any model folder; `self` is the student, which came from `source`.

    It pools as its folder says, or by `pooling`. BadInput if it cannot be loaded or cannot read the
    student's token ids.
    """
    if path == ITSELF:
        return Teacher(None)
    encoder, tokenizer = load_encoder(path, pooling)
    check_vocabulary(path, tokenizer, source)
    if encoder.prompt_of() or frame_of(tokenizer) != frame_of(load_tokenizer(source)):
        raise BadInput(
            f"'{path}': a teacher must have the template of '{source}' and no default prompt; "
            "choose another"
        )
    run_like(student, encoder.backbone)
    return Teacher(encoder)
