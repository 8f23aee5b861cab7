"""`python -m bench gap`: which options of stage 1 make its auxiliary network read [CLS], and after how many tokens?

The gap is the auxiliary loss with another sentence's [CLS] minus the loss with the sentence's own, in nats, on held-out
text. It is 0 if the network ignores [CLS]. Finished runs are kept: run the command again to resume.
"""

import argparse
import re
from pathlib import Path

from matplotlib.figure import Figure

from common.files import writing
from eval.scores import markdown
from papers import runs, studies
from papers.runs import CONFIGS
from report.runs import read_log
from training import curves

CLEAN, LOWEST, OFTEN = {"aux_cls": "clean"}, {"skip_from": "0"}, {"aux_mask_rate": "0.5"}
TOP, ONE_LAYER, WORDS = {"head_init": "encoder_top"}, {"head_layers": "1"}, {"bow_weight": "0.1"}
ALL = CLEAN | LOWEST | OFTEN | TOP
READS = LOWEST | OFTEN | TOP  # the cheapest options with a clear gap: configs/aux-read-mini.yaml
SETTINGS: dict[str, dict[str, str]] = {
    "published": {},
    "clean [CLS]": CLEAN,
    "over embeddings": LOWEST,
    "own masks 50 %": OFTEN,
    "from the encoder's top": TOP,
    "one layer": ONE_LAYER,
    "bag of words": WORDS,
    "over embeddings, clean": LOWEST | CLEAN,
    "over embeddings, own masks": LOWEST | OFTEN,
    "over embeddings, from the top": LOWEST | TOP,
    "over embeddings, from the top, clean": LOWEST | TOP | CLEAN,
    "over embeddings, from the top, own masks": READS,
    "all four": ALL,
    "all four, one layer": ALL | ONE_LAYER,
    "all but over embeddings": CLEAN | OFTEN | TOP,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="masked language model to start from")
    parser.add_argument(
        "--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="variants of stage 1 (default: all)"
    )
    parser.add_argument("--seed", default="0", help="seed of every run")
    parser.add_argument("--steps", default="60", help="steps per run")
    parser.add_argument("--every", default="10", help="steps between two evaluations of the gap")
    studies.add_flags(parser, "runs/gap", "data_dir", "float32")
    parser.add_argument("--figure", help="draw the gap against the tokens seen into this PNG file")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row per evaluation: setting, tokens, losses, gap."""
    results = []
    for name in args.settings:
        slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
        folder = Path(args.folder) / f"{slug}_steps-{args.steps}_seed-{args.seed}"
        record = pretrain(args, folder, args.seed, args.steps, eval_steps=args.every, **SETTINGS[name])
        facts = {key: record[key] for key in ("commit", "versions", "hardware")}
        results += [{"name": name, "seed": args.seed, **one, **facts} for one in evaluations(folder)]
    if args.figure:
        draw(results, Path(args.figure))
    return results


def pretrain(args: argparse.Namespace, folder: Path, seed: str, steps: str, **flags: str) -> dict:
    """Train stage 1 from `--model` with these flags if the run is missing, and return its record; errors as `train`."""
    start = {"config": str(CONFIGS / "aux-mini.yaml"), "model_name_or_path": args.model}
    return runs.train(folder, studies.run_flags(args, seed, steps, **start, **flags))


def evaluations(folder: Path) -> list[dict]:
    """The auxiliary network's losses and gap at every evaluation in a run's log."""
    history = read_log(folder)
    mlm = {line["step"]: line["eval_mlm"] for line in history if "eval_mlm" in line}
    return [{**one._asdict(), "gap": one.gap, "mlm": mlm.get(one.step)} for one in curves.auxiliary_losses(history)]


def table(rows: list[dict]) -> str:
    """The last evaluation of each setting, and the number of tokens after which its gap was clear."""
    body = [
        ["stage 1", "own [CLS]", "a neighbour's", "gap, nats", "MLM loss", "tokens", f"gap of {curves.CLEAR} after"]
    ]
    for name in dict.fromkeys(row["name"] for row in rows):
        group = [row for row in rows if row["name"] == name]
        clear = next((f"{row['tokens']:,} tokens" for row in group if row["gap"] >= curves.CLEAR), "not reached")
        last = group[-1]
        losses = [f"{last[key]:.3f}" for key in ("own", "other", "gap", "mlm")]
        body.append([name, *losses, f"{last['tokens']:,}", clear])
    return markdown(body)


def draw(rows: list[dict], path: Path) -> None:
    """Draw the gap of every setting against the tokens seen; the legend starts with the largest gap."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    axis = figure.subplots()
    lines = {name: [row for row in rows if row["name"] == name] for name in dict.fromkeys(row["name"] for row in rows)}
    for number, (name, points) in enumerate(sorted(lines.items(), key=lambda item: -item[1][-1]["gap"])):
        axis.plot([row["tokens"] for row in points], [row["gap"] for row in points], marker="o", markersize=3,
                  linestyle="-" if number < 10 else "--", label=f"{name}: {points[-1]['gap']:.3f}")  # fmt: skip
    axis.axhline(curves.CLEAR, color="gray", linewidth=0.8, linestyle=":")
    axis.set_xlabel("tokens seen in stage 1")
    axis.set_ylabel("auxiliary loss, a neighbour's [CLS] minus own [CLS] (nats)")
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    with writing(path) as part:
        figure.savefig(part, dpi=110, format="png")
