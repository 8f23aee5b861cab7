"""PromptBERT: a template around each view, whose own vector is taken off (Jiang et al. 2022, arXiv 2201.04337).

A text becomes part of a sentence with a mask, and the mask's last state is its vector (`--pooling mask`). The two views
stand in two templates. Before the projection each view's vector loses that of its template around nothing, whose tokens
keep the positions that they have around the text. Only the loss sees this; a vector in use is the mask's state. The
saved tokenizer adds the first template to every text.

    python run_unsup.py --config configs/promptbert-bert-base.yaml
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from common.errors import BadInput
from common.ranges import Positive, flag
from common.template import MASK, Frame, framed, templated
from common.views import View
from models.encoder import SentenceEncoder
from models.families import check_apart
from models.loading import load_tokenizer
from models.objectives import simcse
from models.objectives.base import Batch, Encoded, Method, MethodArguments, Objective
from models.perturb import Perturbation
from models.precision import at_least_float32


@dataclass
class Arguments(MethodArguments):
    """PromptBERT's options; defaults are those of the official script for bert-base."""

    template: str = flag(
        'This sentence of "{text}" means {mask}.',
        "stands around the first view, and around every text from then on (script)",
    )
    template_2: str = flag('This sentence : "{text}" means {mask}.', "stands around the second view (script)")
    denoise: bool = flag(True, "take off the vector of the template around nothing (code)")
    temperature: Positive = flag(0.05, "tau: cosines are divided by it (script)")


def alone(encoder: SentenceEncoder, ids: Tensor, prefix: int, longest: int) -> Tensor:
    """The vectors of a template around nothing, (longest + 1, H); in row n with the positions it has around n tokens.

    Of the template's ids, (T,), `prefix` stand in front of a text.

    Source: PromptBERT's template denoising, as coded; there RoBERTa's positions begin at 0 in these rows alone.
    """
    around, column = (torch.arange(count, device=ids.device) for count in (longest + 1, len(ids)))
    positions = column + (column >= prefix) * around.unsqueeze(1)  # (longest + 1, T)
    return encoder(ids.expand_as(positions), None, perturbation=Perturbation(positions)).pooled


class Denoised(simcse.Contrastive):
    """The contrastive loss of vectors without what their templates alone give."""

    def __init__(self, temperature: float, frames: Sequence[Frame]) -> None:
        super().__init__(temperature)
        self.prefixes = [len(frame.prefix) for frame in frames]
        for number, frame in enumerate(frames):
            self.register_buffer(f"template_{number}", torch.tensor(frame.prefix + frame.suffix), persistent=False)

    def cleaned(self, pooled: Tensor, encoded: Encoded, batch: Batch) -> Tensor:
        views, columns = [], batch.input_ids.shape[2]
        parts = zip(pooled, batch.attention_mask, self.buffers(recurse=False), self.prefixes, strict=True)
        for view, mask, ids, prefix in parts:
            biases = alone(encoded.encoder, ids, prefix, columns - len(ids))
            views.append(view - at_least_float32(biases)[mask.sum(1) - len(ids)])
        return torch.stack(views)


class PromptBERT(Method):
    """InfoNCE between two templates around a text, or around the two texts of a row."""

    arguments = Arguments

    def views(self, args: Arguments) -> list[View]:
        return [View(template=args.template), View(template=args.template_2)]

    def tokenizer(self, args: Arguments, tokenizer):
        return templated(tokenizer, args.template)

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        tokenizer = load_tokenizer(source)
        frames = [framed(tokenizer, template) for template in (args.template, args.template_2)]
        if len({frame.place(tokenizer.mask_token_id) for frame in frames}) > 1:
            raise BadInput(
                f"--template_2: {MASK} must have as many tokens between it and the end as in --template, or, where it "
                "stands in front of the text, between it and the beginning"
            )
        if not args.denoise:
            return [simcse.Contrastive(args.temperature)]
        check_apart(encoder.config, "--denoise, which moves the template's positions,")
        return [Denoised(args.temperature, frames)]


METHOD = PromptBERT()
