"""Train both stages of InfoCSE, and SimCSE beside it, on generated text with the real scripts:
`make quickstart`.

Text is written to corpora/toy, runs to runs/quickstart. SimCSE and InfoCSE start from the same
stage 1 with the same settings, so that only the auxiliary loss differs. The table shows how well
cosines rank held-out sentence pairs; the figure, whether the auxiliary network reads the sentence
vector. The last lines are nearest neighbours.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from statistics import mean, stdev

from common.errors import run_command
from common.files import ROOT, own_folder

# isort: split

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from transformers import AutoModel, set_seed

import run_pretrain_aux
import run_unsup
from common.flags import Parser, output_folder
from common.ranges import Seed, check_range
from common.streams import show
from embedder import Embedder
from eval.analyse.pictures import COLOURS, MARKERS
from eval.encode import Encode
from eval.scores import markdown, row, write_rows
from eval.sts import merged, own_pairs
from models.encoder import SentenceEncoder, load_encoder
from models.loading import load_config, load_tokenizer
from quickstart import generate
from training.curves import CLEAR, GAP, auxiliary_losses, logged, read_log

POOLING = "cls_before_pooler"
METHODS = {"simcse": "SimCSE", "infocse": "InfoCSE"}
SEEDS = 2  # runs of each method
SENTENCES = (  # for the last lines; the model knows only the words of quickstart/lexicon.yaml
    "the cook stewed the soup in the kitchen",
    "the drummer taped the album in the basement",
    "the teacher explained the poem in the office",
)
logger = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> dict[str, list[list[dict]]]:
    """Generate, train, compare; returns the rows on the dev and test pairs of every run, by the system's name."""
    parser = Parser(prog="python -m quickstart", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the corpus, of stage 1 and of the first runs"
    )
    parser.add_argument("--corpus", default="corpora/toy", help="folder for the generated text")
    parser.add_argument("--runs", default="runs/quickstart", help="folder for the runs")
    parser.add_argument(
        "--sentences", nargs="+", default=SENTENCES, help="sentences to search for (default: three)"
    )
    parser.add_argument(
        "--max_steps", type=int, help="steps of every run (default: those of the configurations)"
    )
    args = parser.parse_args(argv)
    check_range("--seed", args.seed, Seed)
    began, used = time.perf_counter(), time.process_time()
    corpus, runs = Path(args.corpus), output_folder(args.runs, "runs")
    own_folder(runs, ["scores.json", "quickstart.png"])
    text = generate.generate(args.seed, 20_000, 1_000)
    generate.write(text, corpus)
    train(
        corpus, runs, args.seed, [] if args.max_steps is None else [f"--max_steps={args.max_steps}"]
    )
    rows = scores(corpus, runs, args.seed)
    numbered = [
        (name, run, line) for name in rows for run, lines in enumerate(rows[name]) for line in lines
    ]
    write_rows(
        runs / "scores.json",
        [{**line, "model": name, "run": str(run)} for name, run, line in numbered],
    )
    draw(runs, args.seed)
    answers = (
        Embedder(runs / f"infocse-{args.seed}")
        .build_index(text.sentences)
        .search(list(args.sentences), top_k=3)
    )
    neighbours = "\n".join(
        "\n".join([sentence, *(f"  {cosine:.2f}  {text}" for text, cosine in hits)])
        for sentence, hits in zip(args.sentences, answers, strict=True)
    )
    show(
        f"\n{table(rows)}\n\n{verdict(rows, runs)}\n\nNearest training sentences by "
        f"InfoCSE:\n{neighbours}\n"
    )
    logger.info("figure: %s; scores: %s", runs / "quickstart.png", runs / "scores.json")
    logger.info(
        "%.0f s, %.0f s of processor time", time.perf_counter() - began, time.process_time() - used
    )
    return rows


def train(corpus: Path, runs: Path, seed: int, others: list[str]) -> None:
    """Run stage 1, then every method from it with every seed; finished runs stay."""
    files = [
        f"--data_dir={corpus.parent}",
        f"--cache_dir={corpus / 'cache'}",
        "--use_cpu=true",
        *others,
    ]
    run_pretrain_aux.main(
        [
            f"--config={ROOT / 'configs/aux-quickstart.yaml'}",
            f"--config_name={ROOT / 'configs/quickstart-bert.json'}",
            f"--train_file={corpus / 'running.txt'}",
            f"--output_dir={runs / 'stage-1'}",
            f"--seed={seed}",
            *files,
        ]
    )
    for number in range(seed, seed + SEEDS):
        for method in METHODS:
            run_unsup.main(
                [
                    f"--config={ROOT / f'configs/{method}-quickstart.yaml'}",
                    f"--model_name_or_path={runs / 'stage-1'}",
                    f"--train_file={corpus / 'sentences.txt'}",
                    f"--dev_file={corpus / 'dev.tsv'}",
                    f"--output_dir={runs / f'{method}-{number}'}",
                    f"--seed={number}",
                    *files,
                ]
            )


def scores(corpus: Path, runs: Path, seed: int) -> dict[str, list[list[dict]]]:
    """By the system's name, the dev and test rows of each of its runs."""
    tasks = [own_pairs(str(corpus / f"{part}.tsv")) for part in ("dev", "test")]
    set_seed(seed)
    backbone = AutoModel.from_config(load_config(str(runs / "stage-1")), add_pooling_layer=False)
    untrained = SentenceEncoder(backbone, POOLING, None, 64), load_tokenizer(str(runs / "stage-1"))
    systems = {"untrained": [untrained], "stage 1": [load_encoder(str(runs / "stage-1"), POOLING)]}
    for method, name in METHODS.items():
        systems[name] = [
            load_encoder(str(runs / f"{method}-{number}")) for number in range(seed, seed + SEEDS)
        ]
    rows = {"word overlap": [[_overlap(task) for task in tasks]]}
    for name, loaded in systems.items():
        rows[name] = [
            [task.score(Encode(*model), ".").rows[0] for task in tasks] for model in loaded
        ]
    return rows


def _overlap(task) -> dict:
    pairs = merged(task.load("."))
    value = 100 * float(
        spearmanr(generate.word_overlap(pairs.left, pairs.right), np.array(pairs.gold)).statistic
    )
    return row(task.name, task.split, "spearman", "single", len(pairs.gold), value)


def table(rows: dict[str, list[list[dict]]]) -> str:
    """Mean and, over several runs, standard deviation on the dev and test pairs."""
    body = [["Spearman x 100", "runs", "dev", "test"]]
    for name, runs in rows.items():
        columns = [[line["value"] for line in column] for column in zip(*runs, strict=True)]
        cells = [
            f"{mean(c):.2f} ± {stdev(c):.2f}" if len(c) > 1 else f"{c[0]:.2f}" for c in columns
        ]
        body.append([name, str(len(runs)), *cells])
    return markdown(body)


def verdict(rows: dict[str, list[list[dict]]], runs: Path) -> str:
    """Whether the network reads the vector, and whether InfoCSE is better than SimCSE, in words."""
    last = auxiliary_losses(read_log(runs / "stage-1"))[-1]
    reads = "reads" if last.gap >= CLEAR else "hardly reads"
    simcse, infocse = ([run[1]["value"] for run in rows[name]] for name in METHODS.values())
    first = rows["stage 1"][0][1]["value"]
    alone = (
        " Stage 1 alone ranks these pairs better than either."
        if first > max(*simcse, *infocse)
        else ""
    )
    better = (
        "above"
        if min(infocse) > max(simcse)
        else "below"
        if max(infocse) < min(simcse)
        else "not told apart from"
    )
    return (
        f"After stage 1 the auxiliary network {reads} the sentence vector: with another sentence's "
        "its loss is "
        f"{last.gap:+.2f} nats. On the test pairs InfoCSE is {better} SimCSE in {len(simcse)} runs "
        "of each "
        f"({mean(infocse) - mean(simcse):+.2f} points).{alone}"
    )


def draw(runs: Path, seed: int) -> None:
    """Plot the gap of stage 1 and the dev score of every other run against steps to quickstart.png."""
    figure = Figure(figsize=(5.4, 6.4), layout="constrained")  # text stays readable at 400 pixels
    upper, lower = figure.subplots(2, 1)
    upper.plot(*logged(read_log(runs / "stage-1"))[GAP], marker="o", color=COLOURS[0])
    upper.axhline(CLEAR, linestyle=":", color="gray")
    upper.set(
        title="Does the network read the sentence vector?",
        xlabel="step of stage 1",
        ylabel="gap, nats",
    )
    for (method, name), color, marker in zip(
        METHODS.items(), COLOURS[1:], MARKERS[1:], strict=False
    ):
        for number in range(seed, seed + SEEDS):
            points = logged(read_log(runs / f"{method}-{number}"))["eval_dev_spearman"]
            style, label = ("-", "--")[number > seed], f"{name}, seed {number}"
            lower.plot(*points, marker=marker, linestyle=style, color=color, label=label)
    lower.set(
        title="Do the vectors rank sentence pairs?",
        xlabel="step after stage 1",
        ylabel="dev Spearman x 100",
    )
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    figure.savefig(runs / "quickstart.png", dpi=150)


if __name__ == "__main__":
    run_command(main)
