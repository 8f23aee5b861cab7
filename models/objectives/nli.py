"""Natural language inference: SBERT's classifier, alone or with ConSERT's loss (2105.11741, 3.3).

python run_sup.py --config configs/consert-joint-bert-base.yaml
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from common.ranges import Rate, Weight, flag
from data.views import View
from models.collectives import gather_with_gradient
from models.contrast import at_least_float32
from models.families import check_apart
from models.heads import project
from models.objectives import consert
from models.objectives.base import Batch, Encoded, Method, Objective, Term, needed
from models.perturb import Perturbation

CLASSES = 3
ADVERSARIAL = "adversarial"
Change = Literal[consert.Change, "adversarial"]


@dataclass
class Arguments(consert.Arguments):
    """Options of the classifier and of ConSERT's loss; defaults are those of the joint script."""

    view_1: Change = flag(  # type: ignore[assignment]  # ConSERT's and one more
        "none", "how to change the first copy of each text"
    )
    view_2: Change = flag(  # type: ignore[assignment]  # likewise
        "token_cutoff", "how to change the second copy; adversarial: section 3.2"
    )
    token_cutoff: Rate = flag(0.1, "share of tokens set to zero (joint script)")
    contrastive_weight: Weight = flag(
        0.15, "alpha (section 4.1); 0 is SBERT-NLI: the classifier alone"
    )
    features: Literal["paper", "code"] = flag(
        "paper", "input of the classifier: u, v, |u - v| (equation 2); the code adds max(u, v)^2"
    )
    adversarial_size: Weight = flag(
        1.0, "length of the adversarial change of a text's embeddings (code: of each token's)"
    )


def pair_features(first: Tensor, second: Tensor, squares: bool) -> Tensor:
    """(u, v, |u - v|) and, with `squares`, max(u, v)^2: two (B, H) -> (B, 3H) or (B, 4H)."""
    parts = [first, second, (first - second).abs()]
    if squares:
        parts.append(torch.maximum(first, second).square())
    return torch.cat(parts, dim=-1)


def fast_gradient(gradient: Tensor, size: float) -> Tensor:
    """Fast gradient value (Rozsa et al. 2016): gradients scaled to length `size`, (B, L, H).

    Each text's is scaled as a whole; the official code scales each token's.
    """
    norm = gradient.flatten(1).norm(dim=1).clamp(min=torch.finfo(torch.float32).tiny)
    return size * gradient / norm.view(-1, 1, 1)


class Classified(Objective):
    """Cross entropy of a pair's class (equation 2), NT-Xent of a text's copies (equation 1)."""

    def __init__(self, args: Arguments, width: int) -> None:
        super().__init__()
        self.args = args
        self.reads_projection = self.compares = args.contrastive_weight > 0
        # With torch's default initialisation, as in the official code and in SBERT's.
        self.classifier = nn.Linear((3 + (args.features == "code")) * width, CLASSES)
        self.contrast = consert.contrast(args)

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        loss = self.loss(encoded.pooled[:2], needed(batch.labels)[0])
        terms = {"classification": Term(loss, 1.0)}
        if not self.reads_projection:
            return terms
        copies, pair = iter(encoded.projected[2:].split(2)), list[Tensor]()
        for change in (self.args.view_1, self.args.view_2):
            if change == ADVERSARIAL:
                pair.append(self.adversarial(encoded, batch))
            elif change == "none":
                pair.append(encoded.projected[:2])
            else:
                pair.append(next(copies))
        if self.args.view_1 == self.args.view_2 == "none":
            pair[1] = next(copies)
        # As in the code: premises against premises, hypotheses against hypotheses, (2, N, D) each;
        # the sum of both.
        losses = [self.contrast.loss(*texts) for texts in zip(*pair, strict=True)]
        total = torch.stack(losses).sum()
        return terms | {"contrastive": Term(total, self.contrast.weight)}

    def loss(self, pooled: Tensor, labels: Tensor) -> Tensor:
        """Mean cross entropy of the rows: premises and hypotheses, (2, B, H), and classes, (B,)."""
        with torch.autocast(pooled.device.type, enabled=False):
            first, second = at_least_float32(pooled)
            features = pair_features(first, second, self.args.features == "code")
            return F.cross_entropy(self.classifier(features), labels)

    def adversarial(self, encoded: Encoded, batch: Batch) -> Tensor:
        """The projected texts, (2, N, D), embeddings moved along the classification's gradient."""
        encoder, size = encoded.encoder, batch.input_ids.shape[1]
        ids, mask = batch.input_ids[:2].flatten(0, 1), batch.attention_mask[:2].flatten(0, 1)
        zero = torch.zeros(
            *ids.shape, encoder.config.hidden_size, device=ids.device, requires_grad=True
        )
        with torch.enable_grad():
            pooled = encoder(ids, mask, None, Perturbation(added=zero)).pooled.view(2, size, -1)
            [gradient] = torch.autograd.grad(self.loss(pooled, needed(batch.labels)[0]), zero)
        moved = Perturbation(added=fast_gradient(gradient, self.args.adversarial_size))
        pooled = encoder(ids, mask, None, moved).pooled.view(2, size, -1)
        return project(encoded.projection, gather_with_gradient(at_least_float32(pooled)))


class NLI(Method):
    """A classifier of labelled pairs, with or without ConSERT's loss."""

    arguments = Arguments
    labels = True

    def views(self, args: Arguments) -> list[View]:
        """Premise and hypothesis unchanged, then each changed copy of both but adversarial ones."""
        changes = [c for c in (args.view_1, args.view_2) if c not in ("none", ADVERSARIAL)]
        if args.view_1 == args.view_2 == "none":
            changes = ["none"]  # a second plain copy: otherwise a vector would be its own positive
        views = [View(), View()]
        for change in changes if args.contrastive_weight else ():
            views += [consert.view(args, change)] * 2
        return views

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        if args.contrastive_weight and ADVERSARIAL in (args.view_1, args.view_2):
            check_apart(encoder.config, "an adversarial view")
        return [Classified(args, encoder.config.hidden_size)]


CITATION = """@misc{reimers2019sbert,
  title = {{Sentence-BERT}: Sentence Embeddings using Siamese {BERT}-Networks},
  author = {Reimers, Nils and Gurevych, Iryna},
  year = {2019}, eprint = {1908.10084}, archivePrefix = {arXiv}}"""
METHOD = NLI(CITATION, consert.CITATION)
