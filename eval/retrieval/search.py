"""Exact nearest neighbours by cosine, in blocks: a corpus of any size in bounded memory."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

# The largest score matrix: 32 MiB in float32, about 200 MiB with its keys.
QUERIES, DOCUMENTS = 1024, 8192
_LOW = 0xFFFF_FFFF


def in_blocks(vectors: np.ndarray, size: int = DOCUMENTS) -> Iterator[tuple[int, np.ndarray]]:
    """Split an array or memory map (N, D) into (first row, rows)."""
    for start in range(0, len(vectors), size):
        yield start, vectors[start : start + size]


@torch.no_grad()
def top_k(
    queries: np.ndarray,
    blocks: Iterable[tuple[int, np.ndarray]],
    k: int,
    device: str | torch.device = "cpu",
    largest: tuple[int, int] = (QUERIES, DOCUMENTS),
) -> tuple[np.ndarray, np.ndarray]:
    """The k documents with the highest cosine for every query, best first, ties by index.

    Args:
        queries: (Q, D), not normalised; a zero vector has cosine 0 with everything.
        blocks: documents as (index of the first, (B, D)), in any order and size, each index once, <
            2 ** 32.
        k: how many; all if there are fewer.
        device: where products are computed.
        largest: queries and documents per product, to bound memory.

    Returns:
        Cosines float32 and indices int64, both (Q, min(k, N)). Documents tie if their float32
        cosines are equal.
    """
    parts = _unit(queries, device).split(largest[0])
    best = [torch.empty(len(part), 0, dtype=torch.int64, device=device) for part in parts]
    for first, block in blocks:
        for start, rows in in_blocks(block, largest[1]):
            documents = _unit(rows, device)
            for i, part in enumerate(parts):
                keys = torch.cat([best[i], _keys(part @ documents.T, first + start)], dim=1)
                best[i] = keys.topk(min(k, keys.shape[1])).values
    keys = torch.cat(best).cpu() if best else torch.empty(0, 0, dtype=torch.int64)
    return _ordered((keys >> 32).int()).view(torch.float32).numpy(), (_LOW - (keys & _LOW)).numpy()


@torch.no_grad()
def cosines(
    queries: np.ndarray,
    blocks: Iterable[tuple[int, np.ndarray]],
    documents: int,
    device: str | torch.device = "cpu",
) -> np.ndarray:
    """The cosine of every query with every document, (Q, documents) float32.

    Args:
        queries: (Q, D).
        blocks: as of `top_k`.
        documents: their number.
        device: where products are computed.
    """
    scores, left = torch.empty(len(queries), documents), _unit(queries, device)
    for first, block in blocks:
        for start, rows in in_blocks(block):
            scores[:, first + start : first + start + len(rows)] = left @ _unit(rows, device).T
    return scores.numpy()


def _unit(vectors: np.ndarray, device: str | torch.device) -> Tensor:
    """Rows of length 1, (N, D) float32; a copy, because a memory map is read-only."""
    return torch.nn.functional.normalize(
        torch.from_numpy(np.array(vectors, dtype=np.float32)).to(device), dim=1
    )


def _keys(scores: Tensor, first: int) -> Tensor:
    """(Q, B) float32 -> distinct int64 ordered by score, then lower index: no ties for `topk`.

    Overwrites `scores`: at this size every copy counts.
    """
    # + 0.0 turns -0.0 into 0.0, which has other bits.
    bits = _ordered(scores.add_(0.0).view(torch.int32))
    index = torch.arange(first, first + scores.shape[1], device=scores.device)
    return bits.long().bitwise_left_shift_(32).bitwise_or_(_LOW - index)


def _ordered(bits: Tensor) -> Tensor:
    """Map the bits of floats to integers in the same order and back, in place."""
    return bits.bitwise_xor_((bits >> 31) & 0x7FFF_FFFF)
