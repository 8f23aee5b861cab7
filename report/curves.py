"""One picture of a run: the loss terms above, the dev score and the spread of the vectors below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from report.reading import looks

GAP = "eval_aux_gap"
_NOT_TERMS = {"epoch", "step", "grad_norm", "learning_rate", "loss", "train_loss", "train_runtime", "total_flos",
              "tokens", "train_samples_per_second", "train_steps_per_second"}  # fmt: skip


def series(history: Sequence[dict[str, Any]]) -> dict[str, tuple[list[int], list[float]]]:
    """Steps and values of everything worth drawing in a Trainer's log history, and the gap (`report.reading`)."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    if seen := looks(history):
        found[GAP] = [look.step for look in seen], [look.gap for look in seen]
    for line in history:
        for name, value in line.items():
            if name not in _NOT_TERMS:
                steps, values = found.setdefault(name, ([], []))
                steps.append(line["step"])
                values.append(value)
    return found


def draw(history: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Write the picture; panels without anything to show are left out, and the picture when all are."""
    found = series(history)
    scores = [name for name in found if name.endswith("_spearman")]
    spread = [name for name in ("eval_uniformity", "eval_mean_cosine") if name in found]
    gap = [GAP] if GAP in found else []
    terms = [name for name in found if name not in (*scores, *spread, *gap)]
    panels = [(terms, "loss term (raw)"), (scores, "dev, Spearman x 100"), (gap, "neighbour's less own [CLS], nats"),
              (spread, "spread of the vectors")]  # fmt: skip
    panels = [panel for panel in panels if panel[0]]
    if not panels:
        return
    figure, axes = plt.subplots(len(panels), 1, figsize=(8, 3 * len(panels)), sharex=True, squeeze=False)
    for (names, label), axis in zip(panels, axes[:, 0], strict=True):
        for name in names:
            steps, values = found[name]
            axis.plot(steps, values, marker="o" if len(steps) < 40 else None, markersize=3, label=name)
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    axes[-1, 0].set_xlabel("optimizer step")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
