"""IS-BERT: a sentence vector discriminates its own n-grams from others' (arXiv 2009.12061).

Convolutions of several widths over the last layer's token states give local features; their mean
over the sentence is its global vector. The loss maximises a Jensen-Shannon estimate of the mutual
information of both.

Different from the paper, which evaluates the global vector: the convolutions are not saved here,
since the head of a saved model sees one vector and no tokens. The artefact is the backbone with its
own pooling, the average in the configurations. Do not expect the published scores.

    python run_unsup.py --config configs/is-bert-base.yaml
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.collectives import gather_with_gradient, local_rows
from models.contrast import at_least_float32
from models.objectives.base import Batch, Encoded, Method, Objective, Term, needed
from models.pooling import masked_mean

WIDTHS = (1, 3, 5)  # tokens that a filter sees (section 4.1)
FILTERS = 256  # of each width (section 4.1 and the code)


class LocalFeatures(nn.Module):
    """Parallel convolutions over the token states: (T, L, H) -> (T, L, widths x filters).

    There is no activation after them, as in the code.

    States of padding are zeroed first, so that a sentence's features do not depend on its batch
    (unlike the official code).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, FILTERS, seen, padding=seen // 2) for seen in WIDTHS
        )

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        # Not a product: states of padding may be infinite or NaN.
        states = states.masked_fill(mask.unsqueeze(-1) == 0, 0.0).transpose(1, 2)  # (T, H, L)
        features = [convolution(states) for convolution in self.convolutions]
        return torch.cat(features, dim=1).transpose(1, 2)


def jensen_shannon(features: Tensor, mask: Tensor, vectors: Tensor, owner: Tensor) -> Tensor:
    """Minus the estimate of the mutual information, summed over the tokens, (); float32.

    With the score x = feature . vector and sp(x) = log(1 + e^x), a token's estimate is
        (log 2 - sp(-x_own)) - mean over the other sentences n of (sp(x_n) - log 2),
    0 for uninformative scores and at most 2 log 2.

    Args:
        features: features of the tokens of T sentences, (T, L, D).
        mask: 1 for a real token, (T, L).
        vectors: vectors of all N sentences, (N, D).
        owner: indices of the T sentences among the N, (T,).

    Source: IS-BERT equation 3 (Deep InfoMax, arXiv 1808.06670, equation 4), with the constants of
    the official code.
    """
    with torch.autocast(features.device.type, enabled=False):
        scores = at_least_float32(features) @ at_least_float32(vectors).T  # (T, L, N)
    own = owner.view(-1, 1, 1).expand(-1, scores.shape[1], 1)
    right = scores.gather(2, own).squeeze(2)  # (T, L)
    wrong = (F.softplus(scores).sum(2) - F.softplus(right)) / (len(vectors) - 1)
    return ((F.softplus(-right) + wrong - 2 * math.log(2)) * mask).sum()


class MutualInformation(Objective):
    """The loss over the tokens of this process and the sentences of all processes."""

    reads_tokens = True
    compares = True

    def __init__(self, local: LocalFeatures) -> None:
        super().__init__()
        self.local = local

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        mask = batch.attention_mask.flatten(0, 1)  # (T, L)
        features = at_least_float32(self.local(needed(encoded.tokens).flatten(0, 1), mask))
        vectors = masked_mean(features, mask).unflatten(0, batch.input_ids.shape[:2])
        everyone = gather_with_gradient(vectors)  # (V, N, D)
        views, count, _ = everyone.shape
        number = torch.arange(views * count, device=mask.device).view(views, count, 1)
        total = jensen_shannon(features, mask, everyone.flatten(0, 1), local_rows(number).flatten())
        return {"information": Term(total, 1.0, mask.sum())}


class ISBERT(Method):
    """Mutual information of a sentence and its tokens; no projection head."""

    copies = 1  # a sentence is contrasted with its own parts

    def build(self, args, encoder, projection, source) -> list[Objective]:
        return [MutualInformation(LocalFeatures(encoder.config.hidden_size))]


CITATION = """@misc{zhang2020isbert,
  title = {An Unsupervised Sentence Embedding Method by Mutual Information Maximization},
  author = {Zhang, Yan and He, Ruidan and Liu, Zuozhu and Lim, Kwan Hui and Bing, Lidong},
  year = {2020}, eprint = {2009.12061}, archivePrefix = {arXiv}}"""
METHOD = ISBERT(CITATION, published=("is-bert-base",))
