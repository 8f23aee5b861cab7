"""DiffCSE: SimCSE plus replaced token detection, given the sentence vector (arXiv 2204.10298).

A frozen generator rewrites masked twins; a discriminator, which sees the sentence vector instead
of the first token's embedding, detects the replaced tokens.

    python run_unsup.py --config configs/diffcse-bert-base.yaml
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel

from common.errors import BadInput
from common.ranges import Share, Weight, flag
from data.views import IGNORED, Masking
from models import auxiliary
from models.contrast import at_least_float32
from models.encoder import SentenceEncoder
from models.families import check_apart, layers_of
from models.heads import projected_width
from models.loading import check_vocabulary, load_config, load_strictly, load_tokenizer
from models.objectives import simcse
from models.objectives.base import Batch, Checkpoint, Encoded, Objective, Term, needed


@dataclass
class Arguments(simcse.Arguments):
    """DiffCSE's options; defaults are those of the official code for bert-base and STS."""

    generator: str = flag(
        "distilbert-base-uncased",
        "masked language model that rewrites the text; needs the encoder's vocabulary",
    )
    rtd_weight: Weight = flag(0.005, "lambda of the detection loss (run_diffcse.sh)")
    rtd_mask_rate: Share = flag(0.30, "share of masked tokens (run_diffcse.sh)")


class ReplacedTokens(Objective):
    """Binary cross entropy of "this token was replaced", seen with the sentence vector (section 3).

    As in the code, all tokens but the first are rewritten, by the generator's most likely ones
    (paper: the masked ones, by samples), and the vector is the projected one.

    Args:
        args: the method's arguments.
        generator: a frozen masked language model.
        encoder: its backbone is copied to make the discriminator.
    """

    reads_projection = True

    def __init__(
        self, args: Arguments, generator: PreTrainedModel, encoder: SentenceEncoder
    ) -> None:
        super().__init__()
        backbone = encoder.backbone
        check_apart(backbone.config, "the detector of replaced tokens")
        self.generator = generator.requires_grad_(False)
        self.discriminator = copy.deepcopy(backbone)
        auxiliary.run_like(encoder, generator, self.discriminator)
        # torch's default initialisation, as in the code
        self.head = nn.Linear(backbone.config.hidden_size, 2)
        self.weight = args.rtd_weight

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        vectors = needed(encoded.local_projected).flatten(0, 1)
        ids, mask = batch.input_ids.flatten(0, 1), batch.attention_mask.flatten(0, 1)  # (T, L)
        rewritten = self.rewrite(batch)
        labels = (rewritten != ids).long().masked_fill(mask == 0, IGNORED)
        states = auxiliary.embedded(self.discriminator, rewritten, mask).with_first(vectors)
        logits = at_least_float32(self.head(states.through(layers_of(self.discriminator)).all))
        labels = states.tokens.align(labels)
        total = F.cross_entropy(
            logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return {"rtd": Term(total, self.weight, (labels != IGNORED).sum())}

    def tokens(self, batch: Batch) -> Tensor:
        return batch.attention_mask.sum()

    @torch.no_grad()
    def rewrite(self, batch: Batch) -> Tensor:
        """The generator's most likely tokens, (T, L); first token and padding do not change."""
        ids, mask = batch.input_ids.flatten(0, 1), batch.attention_mask.flatten(0, 1)
        masked = batch.twins["rtd"].input_ids.flatten(0, 1)
        kept = mask == 0
        kept[:, 0] = True
        return torch.where(
            kept, ids, auxiliary.read_logits(self.generator, masked, mask, likeliest)
        )


def likeliest(logits: Tensor) -> Tensor:
    """Logits (..., V) -> tokens (...); as argmax on a CPU, ties included, in half the time."""
    return logits.max(-1).indices


def detector(
    args: Arguments, encoder: SentenceEncoder, projection: nn.Module | None, source: Checkpoint
) -> ReplacedTokens:
    """Build the detection objective and load its generator.

    `source` is the checkpoint, whose tokenizer makes the ids that the generator reads and
    writes.

    Raises:
        BadInput: the vocabularies differ, or the projected vectors do not fit the detector.
    """
    width = projected_width(projection, encoder.config.hidden_size)
    if width != encoder.config.hidden_size:
        raise BadInput(
            f"--projection wide_mlp: its vectors have {width} numbers, which the detector of "
            "replaced tokens cannot read; choose another"
        )
    try:
        config = load_config(args.generator)
    except BadInput as error:
        raise BadInput(f"--generator: {error}") from error
    check_vocabulary(args.generator, load_tokenizer(args.generator), source.path)
    return ReplacedTokens(
        args, load_strictly(AutoModelForMaskedLM, args.generator, config), encoder
    )


class DiffCSE(simcse.SimCSE):
    """SimCSE and replaced token detection."""

    arguments = Arguments

    def masking(self, args: Arguments) -> tuple[Masking, ...]:
        return (Masking(args.rtd_mask_rate, views=(0, 1), name="rtd"),)

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        return [
            *super().build(args, encoder, projection, source),
            detector(args, encoder, projection, source),
        ]


CITATION = r"""@misc{chuang2022diffcse,
  title = {{DiffCSE}: Difference-based Contrastive Learning for Sentence Embeddings},
  author = {Chuang, Yung-Sung and Dangovski, Rumen and Luo, Hongyin and Zhang, Yang and Chang, Shiyu
  and Solja{\v{c}}i{\'c}, Marin and Li, Shang-Wen and Yih, Wen-tau and Kim, Yoon and Glass, James},
  year = {2022}, eprint = {2204.10298}, archivePrefix = {arXiv}}"""
METHOD = DiffCSE(
    CITATION, published=("diffcse-bert-base", "diffcse-bert-large", "diffcse-roberta-base")
)
