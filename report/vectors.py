"""The vectors that the neighbour search carries: 16 or 8 bits per component, for a few thousand sentences."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eval.encode import unit

LIMIT = 3000  # sentences
BUDGET = 8_000_000  # characters of all runs' vectors in base64, which keeps the page below 10 MB


@dataclass(frozen=True)
class Packed:
    """One run's vectors, rounded.

    Attributes:
        label: the run's name.
        number: of the run on the page, which gives its colour.
        rows: each vector over its largest component, times 32767 or 127, rounded, (N, D) int16 or int8. The scale of a
            row does not change a cosine, so none is kept.
        error: the largest difference that the rounding makes to the cosine of two of the sentences.
    """

    label: str
    number: int
    rows: np.ndarray
    error: float

    @property
    def bits(self) -> int:
        """Bits per component."""
        return 8 * self.rows.itemsize

    def content(self) -> dict[str, Any]:
        """What the page's script reads."""
        text = base64.b64encode(self.rows.tobytes()).decode("ascii")
        width = self.rows.shape[1]
        return {"label": self.label, "run": self.number, "dimensions": width, "bits": self.bits, "vectors": text}


def pack(label: str, number: int, vectors: np.ndarray, bits: int) -> Packed:
    """Round vectors, (N, D); a zero vector stays zero, and its cosines 0."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    most = float(2 ** (bits - 1) - 1)
    scaled = np.divide(most * vectors, largest, out=np.zeros(vectors.shape), where=largest > 0)
    rows = np.rint(scaled).astype(f"<i{bits // 8}")  # little-endian, as browsers read
    return Packed(label, number, rows, _error(vectors, rows))


def _error(vectors: np.ndarray, rows: np.ndarray) -> float:
    exact, rounded, worst = unit(vectors), unit(rows), 0.0
    for start in range(0, len(rows), 512):  # rows of the matrix of cosines at a time
        part = slice(start, start + 512)
        worst = max(worst, float(np.abs(exact[part] @ exact.T - rounded[part] @ rounded.T).max()))
    return worst


def affordable(widths: Sequence[int], sentences: int) -> tuple[int, int]:
    """Bits per component, and how many sentences fit, for runs with vectors of these widths.

    16 bits where all sentences fit with them, else 8, and then as many sentences as fit.
    """
    room, width = BUDGET * 3 // 4, max(1, sum(widths))  # base64 writes 3 bytes as 4 characters
    if 2 * width * sentences <= room:
        return 16, sentences
    return 8, min(sentences, room // width)
