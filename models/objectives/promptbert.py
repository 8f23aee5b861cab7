"""PromptBERT: a template around each view, whose own vector is subtracted (arXiv 2201.04337).

A text becomes part of a sentence with a mask, and the mask's last state is its vector (`--pooling
mask`). The two views use two templates. Before the projection, the vector of the empty template,
whose tokens keep their positions around the text, is subtracted from each view's vector. Only the
loss does this; the encoder's vector is the mask's state. The saved tokenizer adds the first
template to every text.

    python run_unsup.py --config configs/promptbert-bert-base.yaml
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from common.errors import BadInput
from common.ranges import Positive, flag
from data.template import MASK, Frame, framed, templated
from data.views import View
from models.contrast import at_least_float32
from models.encoder import SentenceEncoder
from models.families import check_apart
from models.loading import load_tokenizer
from models.objectives import simcse
from models.objectives.base import Batch, Encoded, Method, MethodArguments, Objective
from models.perturb import Perturbation


@dataclass
class Arguments(MethodArguments):
    """PromptBERT's options; defaults are those of the official script for bert-base."""

    template: str = flag(
        'This sentence of "{text}" means {mask}.',
        "template of the first view, and of every text after training (script)",
    )
    template_2: str = flag(
        'This sentence : "{text}" means {mask}.', "template of the second view (script)"
    )
    temperature: Positive = flag(0.05, "tau: cosines are divided by it (script)")


def alone(encoder: SentenceEncoder, ids: Tensor, prefix: int, longest: int) -> Tensor:
    """The vectors of an empty template, (longest + 1, H); row n has positions around n tokens.

    The first `prefix` of the template's ids, (T,), precede a text.

    Source: PromptBERT's template denoising, as in the code, where RoBERTa's positions begin at 0
    only in these rows.
    """
    around, column = (torch.arange(count, device=ids.device) for count in (longest + 1, len(ids)))
    positions = column + (column >= prefix) * around.unsqueeze(1)  # (longest + 1, T)
    return encoder(ids.expand_as(positions), None, perturbation=Perturbation(positions)).pooled


class Denoised(simcse.Contrastive):
    """The contrastive loss of vectors minus those of their empty templates."""

    def __init__(self, temperature: float, frames: Sequence[Frame]) -> None:
        super().__init__(temperature)
        self.prefixes = [len(frame.prefix) for frame in frames]
        for number, frame in enumerate(frames):
            self.register_buffer(
                f"template_{number}", torch.tensor(frame.prefix + frame.suffix), persistent=False
            )

    def cleaned(self, pooled: Tensor, encoded: Encoded, batch: Batch) -> Tensor:
        views, columns = [], batch.input_ids.shape[2]
        parts = zip(
            pooled, batch.attention_mask, self.buffers(recurse=False), self.prefixes, strict=True
        )
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
        tokenizer = load_tokenizer(source.path)
        frames = [framed(tokenizer, template) for template in (args.template, args.template_2)]
        if len({frame.position(tokenizer.mask_token_id) for frame in frames}) > 1:
            raise BadInput(
                f"--template_2: {MASK} must have as many tokens after it as in --template, or, if "
                "it precedes the text, before it"
            )
        check_apart(encoder.config, "PromptBERT, which moves the template's positions,")
        return [Denoised(args.temperature, frames)]


CITATION = """@misc{jiang2022promptbert,
  title = {{PromptBERT}: Improving {BERT} Sentence Embeddings with Prompts},
  author = {Jiang, Ting and Jiao, Jian and Huang, Shaohan and Zhang, Zihan and Wang, Deqing and
  Zhuang, Fuzhen and Wei, Furu and Huang, Haizhen and Deng, Denvy and Zhang, Qi},
  year = {2022}, eprint = {2201.04337}, archivePrefix = {arXiv}}"""
METHOD = PromptBERT(CITATION, published=("promptbert-bert-base",))
