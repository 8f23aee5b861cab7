"""DiffCSE: SimCSE plus replaced token detection conditioned on the sentence vector (Chuang et al.
2022, 2204.10298).

A frozen generator rewrites masked copies; a discriminator, which sees the sentence vector instead
of the first token's embedding, detects the replaced tokens.

    python run_unsup.py --config configs/diffcse-bert-base.yaml
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel

from common.errors import BadInput
from common.ranges import Share, Weight, flag
from data.views import IGNORED, Masking
from models import auxiliary
from models.encoder import SentenceEncoder
from models.families import check_apart, layers_of
from models.heads import projected_width
from models.loading import check_vocabulary, load_config, load_strictly, load_tokenizer
from models.objectives import simcse
from models.objectives.base import Batch, Checkpoint, Encoded, Objective, Term
from models.precision import at_least_float32


@dataclass
class Arguments(simcse.Arguments):
    """DiffCSE's options; defaults are those of the official code for bert-base and STS."""

    generator: str = flag(
        "distilbert-base-uncased",
        "masked language model that rewrites the text; needs the encoder's vocabulary",
    )
    rtd_weight: Weight = flag(0.005, "lambda of the detection loss (run_diffcse.sh)")
    rtd_mask_rate: Share = flag(0.30, "share of masked tokens (run_diffcse.sh)")
    rtd_tokens: Literal["argmax", "sample"] = flag(
        "argmax", "replace by the generator's most likely token (code), or by a sampled one (paper)"
    )
    rtd_positions: Literal["all", "masked"] = flag(
        "all", "tokens to rewrite: all (code), or the masked ones only (paper)"
    )
    rtd_condition: Literal["projected", "pooled"] = flag(
        "projected", "sentence vector that the detector reads (code: after the projection)"
    )
    generator_dropout: bool = flag(True, "run the generator with dropout, as in the code")
    pad_as_negative: bool = flag(
        False, "count padding as unreplaced tokens, as in the published code (its issue 25)"
    )


class ReplacedTokens(Objective):
    """Binary cross entropy of "this token was replaced", seen with the sentence vector (DiffCSE
    section 3).

    Args:
        args: the method's arguments.
        generator: a frozen masked language model.
        encoder: its backbone is copied to make the discriminator.
    """

    def __init__(
        self, args: Arguments, generator: PreTrainedModel, encoder: SentenceEncoder
    ) -> None:
        super().__init__()
        backbone = encoder.backbone
        check_apart(backbone.config, "the detector of replaced tokens")
        self.generator = generator.requires_grad_(False)
        self.discriminator = copy.deepcopy(backbone)
        auxiliary.run_like(encoder, generator)
        auxiliary.run_like(
            encoder, self.discriminator, packed=not args.pad_as_negative
        )  # padding counts as tokens
        self.head = nn.Linear(
            backbone.config.hidden_size, 2
        )  # torch's default initialisation, as in the code
        self.args = args
        self.reads_projection = args.rtd_condition == "projected"

    def train(self, mode: bool = True) -> ReplacedTokens:
        super().train(mode)
        self.generator.train(mode and self.args.generator_dropout)
        return self

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        vectors = (encoded.local_projected if self.reads_projection else encoded.pooled).flatten(
            0, 1
        )
        ids, mask = batch.input_ids.flatten(0, 1), batch.attention_mask.flatten(0, 1)  # (T, L)
        rewritten = self.rewrite(batch)
        labels = (rewritten != ids).long()
        if self.args.pad_as_negative:
            rewritten = (
                rewritten * mask
            )  # padding has id 0 in that code, whatever the tokenizer's is
        else:
            labels = labels.masked_fill(mask == 0, IGNORED)
        states = auxiliary.embedded(self.discriminator, rewritten, batch.mask()).with_first(vectors)
        logits = at_least_float32(self.head(states.through(layers_of(self.discriminator)).all))
        labels = states.tokens.align(labels)
        total = F.cross_entropy(
            logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return {"rtd": Term(total, self.args.rtd_weight, (labels != IGNORED).sum())}

    def tokens(self, batch: Batch) -> Tensor:
        mask = batch.attention_mask
        return (
            torch.full((), mask.numel(), device=mask.device)
            if self.args.pad_as_negative
            else mask.sum()
        )

    @torch.no_grad()
    def rewrite(self, batch: Batch) -> Tensor:
        """The generator's version of every sentence, (T, L); first token and padding do not change."""
        ids, mask = batch.input_ids.flatten(0, 1), batch.attention_mask.flatten(0, 1)
        twin = batch.twins["rtd"]
        masked = twin.input_ids.flatten(0, 1)
        uniforms = None if twin.uniforms is None else twin.uniforms.flatten(0, 1)
        kept = mask == 0
        kept[:, 0] = True
        if self.args.rtd_positions == "masked":
            kept |= twin.labels.flatten(0, 1) == IGNORED
        return torch.where(
            kept, ids, auxiliary.read_logits(self.generator, masked, batch.mask(), chosen, uniforms)
        )


def chosen(logits: Tensor, uniforms: Tensor | None) -> Tensor:
    """Logits (..., V) -> the most likely tokens, or samples if numbers (...) in [0, 1) are given, (...)."""
    # The same as argmax on a CPU, ties included (the first one), in less than half the time.
    return logits.max(-1).indices if uniforms is None else sampled(logits, uniforms)


def sampled(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Sample a token from each distribution by inversion: (..., V) logits, (...) numbers in [0, 1) -> (...) ids."""
    cumulative = at_least_float32(logits).softmax(-1).cumsum(-1)
    # Scaled by the last sum, 1 up to rounding, so that the last token is not drawn too often.
    drawn = torch.searchsorted(
        cumulative, (uniforms.unsqueeze(-1) * cumulative[..., -1:]), right=True
    ).squeeze(-1)
    return drawn.clamp(max=logits.shape[-1] - 1)  # a product may round up to the last sum


def detector(
    args: Arguments, encoder: SentenceEncoder, projection: nn.Module | None, source: Checkpoint
) -> ReplacedTokens:
    """Build the detection objective and load its generator.

    `source` is the initial model, whose tokenizer makes the ids that the generator reads and
    writes.

    Raises:
        BadInput: the vocabularies differ, or the projected vectors do not fit the detector.
    """
    width = projected_width(projection, encoder.config.hidden_size)
    if args.rtd_condition == "projected" and width != encoder.config.hidden_size:
        raise BadInput(
            f"--projection wide_mlp: its vectors have {width} numbers, which the detector of "
            "replaced tokens cannot read; choose another, or --rtd_condition pooled"
        )
    config = load_config(args.generator)
    check_vocabulary(args.generator, load_tokenizer(args.generator), source.path)
    return ReplacedTokens(
        args, load_strictly(AutoModelForMaskedLM, args.generator, config), encoder
    )


class DiffCSE(simcse.SimCSE):
    """SimCSE and replaced token detection."""

    arguments = Arguments

    def masking(self, args: Arguments) -> tuple[Masking, ...]:
        return (
            Masking(
                args.rtd_mask_rate, views=(0, 1), name="rtd", uniforms=args.rtd_tokens == "sample"
            ),
        )

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        return [*super().build(args, encoder, projection, source), detector(args, encoder, projection, source)]


CITATION = r"""@misc{chuang2022diffcse, title = {{DiffCSE}: Difference-based Contrastive Learning for Sentence
  Embeddings},
  author = {Chuang, Yung-Sung and Dangovski, Rumen and Luo, Hongyin and Zhang, Yang and Chang, Shiyu and
  Solja{\v{c}}i{\'c}, Marin and Li, Shang-Wen and Yih, Wen-tau and Kim, Yoon and Glass, James},
  year = {2022}, eprint = {2204.10298}, archivePrefix = {arXiv}}"""
METHOD = DiffCSE(
    CITATION, published=("diffcse-bert-base", "diffcse-bert-large", "diffcse-roberta-base")
)
