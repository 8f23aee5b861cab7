"""Train an encoder in a minute, search with it, and plot what changed.

    python -m examples.train_and_search [MODEL]

MODEL defaults to stage 1 of `make quickstart`, which must have run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import run_command

# isort: split

import matplotlib.pyplot as plt
import pandas as pd

from common.flags import Parser
from common.streams import show
from examples.grammar import generate, write
from infocse import Embedder, train

STEPS, SHOWN = 60, 8  # training steps; test sentences in the heat maps


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = Parser(prog="python -m examples.train_and_search", description=__doc__)
    parser.add_argument("model", nargs="?", default="runs/quickstart/stage-1", help="checkpoint")
    example(parser.parse_args(argv).model)


def example(model: str, steps: int = STEPS, run: str = "runs/example") -> Path:
    """Train, search and plot; returns the path of the figure."""
    text = generate(seed=0, sentences=5000, pairs=300)
    write(text, Path("corpora/example"))
    flags: dict[str, Any] = {"dropout": 0.4, "learning_rate": 3e-4, "test_tasks": "none"}
    flags |= {"max_steps": steps, "eval_steps": steps // 6}
    train(text["sentences"], model, "simcse", run, dev_file="corpora/example/dev.tsv", **flags)

    before, after = Embedder(model, "cls_before_pooler"), Embedder(run)
    sentences = [sentence for pair in text["test"][: SHOWN // 2] for sentence in pair[:2]]
    for sentence, cosine in after.build_index(text["sentences"]).search(sentences[0], top_k=3):
        show(f"{cosine:.3f}  {sentence}")

    figure, axes = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    scores = pd.read_json(f"{run}/log.jsonl", lines=True).dropna(subset="eval_dev_spearman")
    axes[0].plot(scores["step"], scores["eval_dev_spearman"], marker="o")
    axes[0].set(title="Dev pairs", xlabel="step", ylabel="Spearman x 100")
    for axis, encoder, name in ((axes[1], before, "before"), (axes[2], after, "after")):
        picture = axis.imshow(encoder.similarity(sentences, sentences), vmin=0, vmax=1)
        axis.set(title=f"Cosines {name}", xticks=[], yticks=[])
    axes[1].set_yticks(range(SHOWN), sentences, fontsize=8)
    figure.colorbar(picture, ax=axes[1:])
    figure.savefig(f"{run}/example.png")
    return Path(run, "example.png")


if __name__ == "__main__":
    run_command(main)
