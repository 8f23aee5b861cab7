"""InfoCSE: SimCSE plus an auxiliary masked LM that sees the sentence vector (arXiv 2210.06432).

The auxiliary network reads a masked twin of the sentence through frozen lower layers, and the
encoder's [CLS] of the whole sentence; to predict well, it needs a [CLS] with the information that
the masks hide. Gradient reaches the encoder only through this [CLS].

    python run_unsup.py --config configs/infocse-bert-base.yaml
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from common.errors import BadInput
from common.ranges import Count, CountOrZero, Share, Weight, flag
from data.views import Masking
from models import auxiliary
from models.objectives import simcse
from models.objectives.base import Batch, Encoded, Objective, Term


@dataclass
class Arguments(simcse.Arguments):
    """Options of the auxiliary objective; defaults are those of the official code for bert-base."""

    aux_weight: Weight = flag(
        1e-5, "lambda: weight of the auxiliary MLM loss (Table 8); 0 is SimCSE"
    )
    contrastive_weight: Weight = flag(
        1.0, "weight of the contrastive loss; 0 is Table 5's row without it"
    )
    mask_rate: Share = flag(0.4, "share of masked tokens (Table 7)")
    mask_scheme: Literal["bert", "mask"] = flag(
        "bert", "bert: 80/10/10 as in the official code; mask: all (section 2 of the paper)"
    )
    aux_views: Literal["both", "first"] = flag(
        "both", "views that get a masked twin: both (official code) or the first (section 3.2: one)"
    )
    aux_cls: Literal["own", "other"] = flag(
        "own",
        "whose [CLS] the head reads: the sentence's, or its neighbour's in the batch, which tells "
        "nothing about it (ours: a control with the same loss and gradient path)",
    )
    aux_stop_words: CountOrZero = flag(
        0,
        "mask but do not predict the N most frequent tokens of the text (ours; 0, as in the paper: "
        "predict all)",
    )
    aux_init: Literal["checkpoint", "encoder_top", "random"] = flag(
        "checkpoint",
        "initial head layers: from stage 1 or, without it, the backbone's top layers (Table 4) or "
        "new ones",
    )
    skip_from: int = flag(
        6, "number of frozen lower layers; auto: the value of stage 1, else half of the layers"
    )
    head_layers: Count = flag(2, "layers of the auxiliary head; the same as in stage 1")
    aux_detach: bool = flag(True, "freeze the lower layers (Table 6: --no_aux_detach)")
    aux_frozen_eval: bool = flag(
        True, "no dropout in the frozen layers (official: on for base, off for large)"
    )


def twinned(args: Arguments) -> tuple[int, ...]:
    """The views that get a masked twin."""
    return (0, 1) if args.aux_views == "both" else (0,)


def neighbours(cls: Tensor) -> Tensor:
    """(V, B, H) -> every sentence with the vector of the one before it, in the same view."""
    return cls.roll(1, dims=1)


class AuxiliaryMLM(Objective):
    """Cross entropy of the masked tokens, from frozen lower layers and the encoder's [CLS].

    Args:
        lower: embeddings and lower layers of the checkpoint.
        head: the auxiliary layers, trained further.
        output: transform and vocabulary matrix, trained further, untied from the encoder (as in the
            official code).
        args: the method's arguments.
    """

    def __init__(
        self,
        lower: auxiliary.LowerLayers,
        head: nn.ModuleList,
        output: auxiliary.VocabularyHead,
        args: Arguments,
    ) -> None:
        super().__init__()
        self.lower = lower.requires_grad_(not args.aux_detach)
        self.c_head, self.output = head, output
        self.args, self.views = args, twinned(args)

    def train(self, mode: bool = True) -> AuxiliaryMLM:
        super().train(mode)
        if self.args.aux_detach and self.args.aux_frozen_eval:
            self.lower.eval()
        return self

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        cls = encoded.cls[: len(self.views)]
        if self.args.aux_cls == "other":
            cls = neighbours(cls)
        total, count = self._loss(cls[:, encoded.rows], batch)
        return {"aux_mlm": Term(total, self.args.aux_weight, count)}

    def tokens(self, batch: Batch) -> Tensor:
        return batch.twins["masked"].count

    def probe(self, encoded: Encoded, batch: Batch) -> dict[str, Tensor]:
        """The auxiliary loss with a sentence's [CLS] and its neighbour's: what [CLS] adds."""
        cls = encoded.cls[: len(self.views)]
        losses = {}
        for name, vectors in (("aux_mlm", cls), ("aux_mlm_shuffled_cls", neighbours(cls))):
            total, count = self._loss(vectors, batch)
            losses[name] = total / count.clamp(min=1)
        return losses

    def _loss(self, cls: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        twin = batch.twins["masked"]
        cls, labels = cls.flatten(0, 1), twin.labels.flatten(0, 1)  # (T, H), (T, L)
        mask = batch.attention_mask[: len(self.views)].flatten(0, 1)
        with torch.no_grad() if self.args.aux_detach else nullcontext():
            lower = self.lower(twin.input_ids.flatten(0, 1), mask)
        return self.output.token_loss(lower.with_first(cls).through(self.c_head), labels)


def _head(args: Arguments, backbone: PreTrainedModel, source: str) -> nn.ModuleList:
    if args.aux_init == "random":
        return auxiliary.new_head(backbone, args.head_layers)
    if args.aux_init == "encoder_top":
        return auxiliary.top_layers(backbone, args.head_layers)
    head = auxiliary.load_head(source, backbone, args.head_layers, args.skip_from)
    if head is None:
        raise BadInput(
            f"'{source}' has no pre-trained auxiliary head ({auxiliary.HEAD_FILE} or "
            f"{auxiliary.CONDENSER_FILE}); run stage 1 (run_pretrain_aux.py) with --head_layers "
            "above 0 first, or give --aux_init random or encoder_top"
        )
    return head


class InfoCSE(simcse.SimCSE):
    """SimCSE and the auxiliary language model."""

    arguments = Arguments

    def masking(self, args: Arguments) -> tuple[Masking, ...]:
        if args.aux_weight == 0:
            return ()
        masking = Masking(
            args.mask_rate, args.mask_scheme, views=twinned(args), stop_words=args.aux_stop_words
        )
        return (masking,)

    def reads_output(self, args: Arguments) -> bool:
        return args.aux_weight > 0

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        objectives: list[Objective] = []
        if args.contrastive_weight:
            objectives.append(
                simcse.Contrastive(
                    args.temperature, args.contrastive_weight, args.hard_negative_weight
                )
            )
        if args.aux_weight:
            lower = auxiliary.LowerLayers(encoder.backbone, args.skip_from)
            head = _head(args, encoder.backbone, source.path)
            output = auxiliary.VocabularyHead(source.model)
            objectives.append(AuxiliaryMLM(lower, head, output, args))
        if not objectives:
            raise BadInput("--aux_weight 0 and --contrastive_weight 0: no loss is left to train")
        return objectives


CITATION = """@misc{wu2022infocse,
  title = {{InfoCSE}: Information-aggregated Contrastive Learning of Sentence Embeddings},
  author = {Wu, Xing and Gao, Chaochen and Lin, Zijia and Han, Jizhong and Wang, Zhongyuan and Hu,
  Songlin},
  year = {2022}, eprint = {2210.06432}, archivePrefix = {arXiv}}"""
CONDENSER = """@misc{gao2021condenser,
  title = {Condenser: a Pre-training Architecture for Dense Retrieval},
  author = {Gao, Luyu and Callan, Jamie},
  year = {2021}, eprint = {2104.08253}, archivePrefix = {arXiv}}"""
METHOD = InfoCSE(CITATION, CONDENSER, published=("infocse-bert-base", "infocse-bert-large"))
