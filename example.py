"""Train an encoder in a minute, search with it, and plot what changed: `python example.py [MODEL]`.

MODEL defaults to stage 1 of `make quickstart`, which must have run.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import run_command

# isort: split

import matplotlib.pyplot as plt

from common.flags import Parser
from embedder import Embedder
from quickstart.generate import generate, write
from run_unsup import train

STEPS, SHOWN = 60, 8  # training steps; test sentences in the heat maps


def example(model: str, steps: int = STEPS, run: str = "runs/example") -> Path:
    """Train, search and plot; returns the path of the figure."""
    text = generate(seed=0, sentences=5000, pairs=300)
    write(text, Path("corpora/example"))
    flags = {
        "dropout": 0.4,
        "learning_rate": 3e-4,
        "max_steps": steps,
        "eval_steps": steps // 6,
        "test_tasks": "none",
    }
    train(text.sentences, model, "simcse", run, dev_file="corpora/example/dev.tsv", **flags)

    before, after = Embedder(model, "cls_before_pooler"), Embedder(run)
    sentences = [sentence for pair in text.test[: SHOWN // 2] for sentence in pair[:2]]
    for sentence, cosine in after.build_index(text.sentences).search(sentences[0], top_k=3):
        sys.stdout.write(f"{cosine:.3f}  {sentence}\n")

    figure, axes = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    lines = [
        json.loads(line) for line in Path(run, "log.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    scores = [
        (line["step"], line["eval_dev_spearman"]) for line in lines if "eval_dev_spearman" in line
    ]
    axes[0].plot(*zip(*scores, strict=True), marker="o")
    axes[0].set(title="Dev pairs", xlabel="step", ylabel="Spearman x 100")
    for axis, encoder, name in ((axes[1], before, "before"), (axes[2], after, "after")):
        picture = axis.imshow(encoder.similarity(sentences, sentences), vmin=0, vmax=1)
        axis.set(title=f"Cosines {name}", xticks=[], yticks=[])
    axes[1].set_yticks(range(SHOWN), sentences, fontsize=8)
    figure.colorbar(picture, ax=axes[1:])
    figure.savefig(f"{run}/example.png")
    return Path(run, "example.png")


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = Parser(prog="python example.py", description=__doc__)
    parser.add_argument("model", nargs="?", default="runs/quickstart/stage-1", help="initial model")
    example(parser.parse_args(argv).model)


if __name__ == "__main__":
    run_command(main)
