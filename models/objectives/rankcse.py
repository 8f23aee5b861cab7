"""RankCSE: views that rank the batch alike, and as a teacher ranks it (Liu et al. 2023, arXiv 2305.16726).

Beside SimCSE's loss, the similarities of a sentence to the batch, seen from one view and from the other, have to be one
distribution (consistency), and have to follow the order, or the distribution, of a frozen teacher's (distillation). A
teacher is a folder, or `self`: the trained encoder without dropout (ours), so that no other model is needed.

    python run_unsup.py --config configs/rankcse-bert-base.yaml
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.errors import BadInput
from common.ranges import Positive, Share, Weight, flag
from models.contrast import cosines
from models.objectives import simcse
from models.objectives.base import Batch, Contrast, Encoded, Method, MethodArguments, Objective, Term
from models.precision import cast_matrices
from models.teacher import ITSELF, Teacher, load_teacher


@dataclass
class Arguments(MethodArguments):
    """RankCSE's options; defaults are those of the community code's script, but for the teacher."""

    temperature: Positive = flag(0.05, "tau 1, of contrast and consistency (script)")
    teacher: list[str] = flag(
        [ITSELF], "one or two folders or hub ids with the encoder's vocabulary; self: the encoder itself (ours)"
    )
    teacher_pooling: str | None = flag(None, "of the teachers; default: what their folders say")
    teacher_share: Share = flag(0.33, "alpha: of two teachers, the first one's (script)")
    rank_loss: Literal["listmle", "listnet"] = flag(
        "listmle", "follow the teacher's order, or its distribution (script: listmle)"
    )
    consistency_weight: Weight = flag(1.0, "beta (script)")
    rank_weight: Weight = flag(1.0, "gamma (script)")
    rank_temperature: Positive = flag(0.05, "tau 2, of the student's ranking (script)")
    teacher_temperature: Positive = flag(0.025, "tau 3, of the teacher's distribution in listnet (README: tau 2 / 2)")


def jensen_shannon(logits: Tensor, others: Tensor) -> Tensor:
    """Mean over the rows of JS(P, Q) = KL(P, M) / 2 + KL(Q, M) / 2, M = (P + Q) / 2, of the rows' softmax, in nats.

    P and Q are given by logits, (N, K).
    """
    p, q = logits.log_softmax(1), others.log_softmax(1)
    mean = torch.logaddexp(p, q) - math.log(2)
    return (p.exp() * (p - mean) + q.exp() * (q - mean)).sum(1).mean() / 2


def list_mle(scores: Tensor, ranked: Tensor) -> Tensor:
    """Mean of -log P(order) / K over the rows: each item of the teacher's order is picked among those not yet picked.

    -log P = sum_k ( log sum_{l >= k} exp(scores of the l-th) - score of the k-th ), after Xia et al. 2008.

    Of the teacher's scores, `ranked`, (N, K), the descending order counts; of equal ones the first comes first.
    """
    order = ranked.argsort(dim=1, descending=True, stable=True)
    backwards = scores.gather(1, order).flip(1)
    return (backwards.logcumsumexp(1) - backwards).mean()


def list_net(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of the rows' softmax: of each sentence to the others, after Cao et al. 2007.

    Of the student's and the teacher's logits, (N, N), those of a sentence with itself are left out.
    """
    return F.cross_entropy(without_diagonal(scores), without_diagonal(targets).softmax(1))


def without_diagonal(square: Tensor) -> Tensor:
    """(N, N) -> (N, N - 1)."""
    size = len(square)
    return square.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)


def consistency(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """How far the similarities of a sentence to the batch, from one view and from the other, are two distributions."""
    logits = cosines(first, second) / temperature
    return jensen_shannon(logits, logits.T)


class Distillation(Objective):
    """The student ranks the batch as its teachers do, whose cosines are averaged with `shares`."""

    reads_projection = True
    compares = True

    def __init__(self, args: Arguments, teachers: Sequence[Teacher]) -> None:
        super().__init__()
        self.args = args
        self.teachers = nn.ModuleList(teachers)
        self.shares = (1.0,) if len(teachers) == 1 else (args.teacher_share, 1 - args.teacher_share)

    def groups(self, count: int) -> list[tuple[int, ...]]:
        return [(0,)]

    def cast_frozen(self, dtype: torch.dtype) -> None:
        cast_matrices(self.teachers, dtype)

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        given = zip(self.shares, self.teachers, strict=True)
        ranked = sum(share * teacher.similarities(batch, encoded) for share, teacher in given)
        scores = cosines(*encoded.projected) / self.args.rank_temperature
        if self.args.rank_loss == "listmle":
            loss = list_mle(scores, ranked)
        else:
            loss = list_net(scores, ranked / self.args.teacher_temperature)
        return {"rank": Term(loss, self.args.rank_weight)}


class RankCSE(Method):
    """SimCSE, consistency and distillation; a term of weight 0 is not built."""

    arguments = Arguments
    one_text = True

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        """The three terms.

        Raises:
            BadInput: more than two teachers, or one that does not fit the encoder.
        """
        if len(args.teacher) > 2:
            raise BadInput(f"--teacher: one or two, not {len(args.teacher)}")
        made: list[Objective] = [simcse.Contrastive(args.temperature)]
        if args.consistency_weight:
            loss = partial(consistency, temperature=args.temperature)
            made.append(Contrast(loss, args.consistency_weight, "consistency"))
        if args.rank_weight:
            teachers = [load_teacher(path, args.teacher_pooling, encoder, source) for path in args.teacher]
            made.append(Distillation(args, teachers))
        return made


METHOD = RankCSE()
