"""RankCSE: both views rank the batch alike, and as a teacher ranks it (arXiv 2305.16726).

Added to SimCSE's loss: a sentence's similarities to the batch must have the same distribution from
both views (consistency), and must follow the order, or the distribution, of a frozen teacher's
(distillation). A teacher is a folder, or `self`: the trained encoder without dropout (ours), so
that no other model is needed.

    python run_unsup.py --config configs/rankcse-bert-base.yaml
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.errors import BadInput
from common.ranges import Positive, Share, Weight, flag
from models.contrast import cosines
from models.objectives import simcse
from models.objectives.base import (
    Batch,
    Contrast,
    Encoded,
    Method,
    MethodArguments,
    Objective,
    Term,
)
from models.teacher import Teacher, load_teacher


@dataclass
class Arguments(MethodArguments):
    """RankCSE's options; defaults are those of the community code's script, but for the teacher."""

    temperature: Positive = flag(
        0.05, "tau 1, of contrast, consistency and the student's ranking (code)"
    )
    teacher: list[str] = flag(
        ["self"],
        "one or two folders or hub ids with the encoder's vocabulary; self: the encoder itself "
        "(ours), which gains little: give a trained one",
    )
    teacher_pooling: str | None = flag(
        None, "pooling of the teachers; default: what their folders say"
    )
    teacher_share: Share = flag(0.33, "alpha: weight of the first of two teachers (script)")
    rank_loss: Literal["listmle", "listnet"] = flag(
        "listmle", "follow the teacher's order, or its distribution (script: listmle)"
    )
    consistency_weight: Weight = flag(1.0, "beta (script)")
    rank_weight: Weight = flag(1.0, "gamma (script)")


def jensen_shannon(logits: Tensor, others: Tensor) -> Tensor:
    """Mean over the rows of JS(P, Q) = KL(P, M) / 2 + KL(Q, M) / 2, M = (P + Q) / 2, in nats.

    P and Q are the softmax of the rows of two logits, (N, K).
    """
    p, q = logits.log_softmax(1), others.log_softmax(1)
    mean = torch.logaddexp(p, q) - math.log(2)
    return (p.exp() * (p - mean) + q.exp() * (q - mean)).sum(1).mean() / 2


def list_mle(scores: Tensor, ranked: Tensor) -> Tensor:
    """Mean of -log P(order) over the rows: items are picked in the teacher's order.

    -log P = sum_k ( log sum_{l >= k} exp(scores of the l-th) - score of the k-th ), after Xia et
    al. 2008.

    The order is that of the teacher's scores, `ranked`, (N, K), descending and stable. The
    community code (rankcse/models.py since 3f04480) also adds 1e-7 to the inner sum, with the row's
    largest score as zero: items far below it are then hardly pushed apart. Left out, as it is not
    in the likelihood.
    """
    order = ranked.argsort(dim=1, descending=True, stable=True)
    backwards = scores.gather(1, order).flip(1)
    return (backwards.logcumsumexp(1) - backwards).sum(1).mean()


def list_net(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of the rows' softmax, after Cao et al. 2007.

    The student's and the teacher's logits are (N, N); those of a sentence with itself are excluded.
    """
    return F.cross_entropy(without_diagonal(scores), without_diagonal(targets).softmax(1))


def without_diagonal(square: Tensor) -> Tensor:
    """(N, N) -> (N, N - 1)."""
    size = len(square)
    return square.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)


def consistency(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Divergence between the views of the distributions of similarities to the batch."""
    logits = cosines(first, second) / temperature
    return jensen_shannon(logits, logits.T)


class Distillation(Objective):
    """The student ranks the batch as its teachers do, whose cosines are averaged with `shares`."""

    reads_projection = True
    compares = True

    def __init__(self, args: Arguments, teachers: Sequence[Teacher]) -> None:
        super().__init__()
        self.args = args
        self.teachers: Any = nn.ModuleList(teachers)
        self.shares = (1.0,) if len(teachers) == 1 else (args.teacher_share, 1 - args.teacher_share)

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        pairs = zip(self.shares, self.teachers, strict=True)
        weighted = [share * teacher.similarities(batch, encoded) for share, teacher in pairs]
        ranked = torch.stack(weighted).sum(0)
        scores = cosines(*encoded.projected) / self.args.temperature
        if self.args.rank_loss == "listmle":
            loss = list_mle(scores, ranked)
        else:
            loss = list_net(scores, 2 * ranked / self.args.temperature)  # tau 3: README
        return {"rank": Term(loss, self.args.rank_weight)}


class RankCSE(Method):
    """SimCSE, consistency and distillation."""

    arguments = Arguments
    one_text = True

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        """Build the three terms; BadInput for a teacher that does not fit the encoder."""
        if len(args.teacher) not in (1, 2):
            raise BadInput(f"--teacher: one or two, not {len(args.teacher)}")
        teachers = [
            load_teacher(path, args.teacher_pooling, encoder, source.path) for path in args.teacher
        ]
        loss = partial(consistency, temperature=args.temperature)
        return [
            simcse.Contrastive(args.temperature),
            Contrast(loss, args.consistency_weight, "consistency"),
            Distillation(args, teachers),
        ]


CITATION = """@misc{liu2023rankcse,
  title = {{RankCSE}: Unsupervised Sentence Representations Learning via Learning to Rank},
  author = {Liu, Jiduan and Liu, Jiahao and Wang, Qifan and Wang, Jingang and Wu, Wei and Xian,
  Yunsen and Zhao, Dongyan and Chen, Kai and Yan, Rui},
  year = {2023}, eprint = {2305.16726}, archivePrefix = {arXiv}}"""
METHOD = RankCSE(CITATION, published=("rankcse-bert-base",))
