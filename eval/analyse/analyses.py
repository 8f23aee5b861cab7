"""The analyses by name."""

from __future__ import annotations

from eval.analyse import alignment, anisotropy, gold, length, neighbours, tokens

ANALYSES = {
    "alignment_uniformity": alignment.ANALYSIS,
    "anisotropy": anisotropy.ANALYSIS,
    "cosine_by_gold": gold.ANALYSIS,
    "frequent_tokens": tokens.ANALYSIS,
    "length_bias": length.ANALYSIS,
    "neighbours": neighbours.ANALYSIS,
}
