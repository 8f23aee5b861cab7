"""Train both stages of InfoCSE, and SimCSE beside it, on generated text: `make quickstart`.

Text is written to corpora/toy, runs to runs/quickstart. SimCSE and InfoCSE start from the same
stage 1 with the same settings, so that only the auxiliary loss differs. The table shows how well
cosines rank held-out sentence pairs, a line whether the auxiliary network conditions on [CLS],
report.html how the runs went. The last lines are nearest neighbours.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from common.errors import run_command
from common.files import ROOT, read_json

# isort: split

import pandas as pd

from common.flags import Parser, output_folder
from common.ranges import Seed, check_range
from common.streams import show
from eval.scores import markdown, write_rows
from examples import own_folder
from examples.grammar import generate, write
from infocse import Embedder, evaluate, pretrain, train
from report.__main__ import main as report

POOLING = "cls_before_pooler"
METHODS = {"SimCSE": "simcse", "InfoCSE": "infocse"}
SEEDS = 2  # runs of each method
SENTENCES = [  # for the last lines; the model knows only the words of lexicon.yaml
    "the cook stewed the soup in the kitchen",
    "the drummer taped the album in the basement",
    "the teacher explained the poem in the office",
]
NEXT = """next, your own sentences, one per line:
  python run_unsup.py --config configs/my-text.yaml --train_file MY_SENTENCES.txt --dev none
or your documents, without training:
  python -m search build MY_FOLDER --model MODEL --output runs/index"""
logger = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> list[dict]:
    """Generate, train, compare; returns the rows of scores.json."""
    parser = Parser(prog="python -m examples.quickstart", description=__doc__)
    seeds = "seed of the corpus, of stage 1 and of the first runs"
    parser.add_argument("--seed", type=int, default=0, help=seeds)
    parser.add_argument("--corpus", default="corpora/toy", help="folder for the generated text")
    parser.add_argument("--runs", default="runs/quickstart", help="folder for the runs")
    steps = "steps of every run (default: those of the configurations)"
    parser.add_argument("--max_steps", type=int, help=steps)
    args = parser.parse_args(argv)
    check_range("--seed", args.seed, Seed)
    began, used = time.perf_counter(), time.process_time()
    corpus, runs = Path(args.corpus), output_folder(args.runs, "runs")
    own_folder(runs, ["scores.json", "report.html"])
    logger.info("stage 1 and four short trainings: about three minutes on one core")
    text = generate(args.seed, 20_000, 1_000)
    write(text, corpus)

    settings = {"data_dir": corpus.parent, "cache_dir": corpus / "cache", "use_cpu": True}
    if args.max_steps is not None:
        settings["max_steps"] = args.max_steps
    train_all(corpus, runs, args.seed, settings)
    rows = scores(corpus, runs, args.seed)
    write_rows(runs / "scores.json", rows)
    trained = [f"{method}-{run}" for method in METHODS.values() for run in seeds_of(args.seed)]
    folders = [str(runs / name) for name in ("stage-1", *trained)]
    report([*folders, f"--output={runs / 'report.html'}"])

    model = Embedder(runs / f"infocse-{args.seed}").build_index(text["sentences"])
    neighbours = ["Nearest training sentences by InfoCSE:"]
    for sentence, hits in zip(SENTENCES, model.search(SENTENCES, top_k=3), strict=True):
        neighbours += [sentence, *(f"  {cosine:.2f}  {hit}" for hit, cosine in hits)]
    record = read_json(runs / "stage-1" / "run.json", "the record of stage 1")
    said = [*record["findings"], "Two runs of a method show no order."]
    show("\n".join(["", table(rows), "", *said, "", *neighbours, ""]))
    logger.info("curves: %s; scores: %s", runs / "report.html", runs / "scores.json")
    took = time.perf_counter() - began, time.process_time() - used
    logger.info("%.0f s, %.0f s of processor time", *took)
    logger.info(NEXT)
    return rows


def train_all(corpus: Path, runs: Path, seed: int, settings: dict) -> None:
    """Stage 1, then every method from it with every seed; finished runs stay."""
    pretrain(
        corpus / "running.txt",
        output_dir=runs / "stage-1",
        config=ROOT / "configs/aux-quickstart.yaml",
        config_name=ROOT / "configs/quickstart-bert.json",
        seed=seed,
        **settings,
    )
    for number in seeds_of(seed):
        for method in METHODS.values():
            train(
                corpus / "sentences.txt",
                runs / "stage-1",
                output_dir=runs / f"{method}-{number}",
                config=ROOT / f"configs/{method}-quickstart.yaml",
                dev_file=corpus / "dev.tsv",
                seed=number,
                **settings,
            )


def seeds_of(first: int) -> range:
    """The seeds of each method's runs."""
    return range(first, first + SEEDS)


def scores(corpus: Path, runs: Path, seed: int) -> list[dict]:
    """The rows of every system and run on the dev and test pairs."""
    systems = {"stage 1": [Embedder(runs / "stage-1", POOLING)]}
    for name, method in METHODS.items():
        systems[name] = [Embedder(runs / f"{method}-{number}") for number in seeds_of(seed)]
    rows = []
    for name, models in systems.items():
        for run, model in enumerate(models):
            for file in (corpus / "dev.tsv", corpus / "test.tsv"):
                scored = evaluate(model.encoder, [], dev_file=file)[0]
                rows.append({**scored, "model": name, "run": str(run)})
    return rows


def table(rows: list[dict]) -> str:
    """Mean and, over several runs, standard deviation on the dev and test pairs."""
    body = [["Spearman x 100", "runs", "dev", "test"]]
    for name, mine in pd.DataFrame(rows).groupby("model", sort=False):
        cells = []
        for part in ("dev", "test"):
            values = mine.loc[mine["task"] == part, "value"]
            spread = f" ± {values.std():.2f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.2f}{spread}")
        body.append([str(name), str(mine["run"].nunique()), *cells])
    return markdown(body)


if __name__ == "__main__":
    run_command(main)
