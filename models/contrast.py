"""Contrastive losses and statistics of a set of vectors; pure functions in float32."""

import torch
import torch.nn.functional as F
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Convert half precision, too coarse for similarities and sums of losses, to float32."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


_AT_ONCE = 1024  # rows of a matrix of all pairs


def info_nce(
    query: Tensor,
    key: Tensor,
    temperature: float,
    negatives: Tensor | None = None,
    negative_bias: float = 0.0,
) -> Tensor:
    """Cross entropy of picking each query's own key among all keys and extra negatives.

    loss = mean_i -log( exp(s(q_i, k_i)) / sum_c exp(s(q_i, c)) ),  s(a, b) = cos(a, b) /
    temperature

    Args:
        query: one view of the batch, (N, D).
        key: the other view, row i belongs to query i, (N, D).
        temperature: tau in the papers.
        negatives: vectors that match no query, (M, D).
        negative_bias: added to the logit of query i and negative i (M = N): log alpha in SimCSE's
            equation 8.

    Computed in float32 regardless of autocast: at tau = 0.05 half precision is too coarse for
    cosines near 1.

    Source: SimCSE (arXiv 2104.08821) equation 1, and equation 5 with hard negatives; one direction,
    as there.
    """
    candidates = key if negatives is None else torch.cat([key, negatives])  # (N + M, D)
    logits = cosines(query, candidates) / temperature  # (N, N + M)
    if negative_bias:
        logits[:, len(key) :].diagonal().add_(negative_bias)
    return F.cross_entropy(logits, torch.arange(len(query), device=query.device))


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """InfoNCE in both directions, with the other sentences' vectors of both views as negatives.

    loss = mean_i -log( exp(s(z_i, z_i')) / sum_{c != z_i} exp(s(z_i, c)) ) over all 2N vectors z of
    both views, where z' is the same sentence in the other view and s(a, b) = cos(a, b) /
    temperature: one positive and 2N - 2 negatives.

    Both views are (N, D). Computed in float32, as `info_nce`.

    Source: SimCLR (Chen et al. 2020, arXiv 2002.05709) equation 1; ConSERT (arXiv 2105.11741)
    equation 1; Mirror-BERT (arXiv 2104.08027) equation 1.
    """
    both = unit(torch.cat([first, second]))  # (2N, D)
    with torch.autocast(first.device.type, enabled=False):
        logits = both @ both.T / temperature
    itself = torch.eye(len(both), dtype=torch.bool, device=both.device)
    partner = torch.arange(len(both), device=both.device).roll(len(first))
    return F.cross_entropy(logits.masked_fill(itself, float("-inf")), partner)


def unit(vectors: Tensor) -> Tensor:
    """Rows of length 1, (..., D); float32."""
    return F.normalize(at_least_float32(vectors), dim=-1)


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """Cosines of all pairs of rows, (N, D) and (M, D) -> (N, M); float32."""
    with torch.autocast(first.device.type, enabled=False):
        return unit(first) @ unit(second).T


def mean_cosine(vectors: Tensor) -> Tensor:
    """Mean cosine of all pairs of distinct rows, (N, D) -> (); 1 for a collapsed encoder."""
    count = len(vectors)
    return (unit(vectors).sum(0).square().sum() - count) / (count * (count - 1))


def uniformity(vectors: Tensor) -> Tensor:
    """Log mean exp(-2 |x - y|^2) over pairs of distinct unit rows, (N, D) -> ().

    0 for a collapsed encoder. Source: Wang and Isola 2020 (arXiv 2005.10242), as in SimCSE's
    equation 3.
    """
    rows, count = unit(vectors), len(vectors)
    parts = [torch.exp(4 * cosines(part, rows) - 4).sum() for part in rows.split(_AT_ONCE)]
    return ((torch.stack(parts).sum() - count) / (count * (count - 1))).log()
