"""Train both stages of InfoCSE on generated text with the real scripts, and compare: `make quickstart`.

Text is written to corpora/toy, runs to runs/quickstart. The table shows how well the cosines of four systems rank
held-out sentence pairs: word overlap, the untrained model, stage 1 and stage 2.
"""

from __future__ import annotations

import logging
from pathlib import Path

from common.errors import run_command
from common.files import ROOT

# isort: split

import numpy as np
from scipy.stats import spearmanr
from transformers import AutoModel, set_seed

import run_pretrain_aux
import run_unsup
from common.flags import Parser, output_folder
from common.ranges import Seed, check_range
from common.streams import show
from eval.encode import Encode
from eval.scores import row, table, write_rows
from eval.sts import merged, own_pairs
from models.encoder import SentenceEncoder, load_encoder
from models.loading import load_config, load_tokenizer
from quickstart import generate

POOLING = "cls_before_pooler"
logger = logging.getLogger(__name__)


def untrained(folder: str, seed: int) -> tuple[SentenceEncoder, object]:
    """The model of a run with the weights before its first step."""
    set_seed(seed)
    backbone = AutoModel.from_config(load_config(folder), add_pooling_layer=False)
    return SentenceEncoder(backbone, POOLING, None, 64), load_tokenizer(folder)


def scores(corpus: Path, runs: Path, seed: int) -> dict[str, list[dict]]:
    """Rows on the dev and test pairs for the baseline, the untrained model and both stages."""
    stage_one, stage_two = str(runs / "stage-1"), str(runs / "stage-2")
    systems = {
        "untrained": untrained(stage_one, seed),
        "stage 1": load_encoder(stage_one, POOLING),
        "stage 2 (InfoCSE)": load_encoder(stage_two),
    }
    tasks = [own_pairs(str(corpus / f"{part}.tsv")) for part in ("dev", "test")]
    rows = {"word overlap": [_overlap(task) for task in tasks]}
    for name, (encoder, tokenizer) in systems.items():
        encode = Encode(encoder, tokenizer)
        rows[name] = [task.score(encode, ".").rows[0] for task in tasks]
    return rows


def _overlap(task) -> dict:
    pairs = merged(task.load("."))
    value = 100 * float(spearmanr(generate.word_overlap(pairs.left, pairs.right), np.array(pairs.gold)).statistic)
    return row(task.name, task.split, "spearman", "single", len(pairs.gold), value)


def main(argv: list[str] | None = None) -> dict[str, list[dict]]:
    """Generate, pre-train, train, compare."""
    parser = Parser(prog="python -m quickstart", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the corpus and of both stages")
    parser.add_argument("--corpus", default="corpora/toy", help="folder for the generated text")
    parser.add_argument("--runs", default="runs/quickstart", help="folder for both runs")
    args = parser.parse_args(argv)
    check_range("seed", args.seed, Seed)
    corpus, runs = Path(args.corpus), output_folder(args.runs, "runs")
    generate.write(generate.generate(args.seed, 20_000, 1_000), corpus)
    seed, cpu = f"--seed={args.seed}", "--use_cpu=true"
    files = [f"--data_dir={corpus.parent}", f"--cache_dir={corpus / 'cache'}", seed, cpu]
    run_pretrain_aux.main(
        [
            f"--config={ROOT / 'configs/aux-quickstart.yaml'}",
            f"--config_name={ROOT / 'configs/quickstart-bert.json'}",
            f"--train_file={corpus / 'running.txt'}",
            f"--output_dir={runs / 'stage-1'}",
            *files,
        ]
    )
    run_unsup.main(
        [
            f"--config={ROOT / 'configs/infocse-quickstart.yaml'}",
            f"--model_name_or_path={runs / 'stage-1'}",
            f"--train_file={corpus / 'sentences.txt'}",
            f"--dev_file={corpus / 'dev.tsv'}",
            f"--output_dir={runs / 'stage-2'}",
            *files,
        ]
    )
    rows = scores(corpus, runs, args.seed)
    write_rows(runs / "scores.json", [{**r, "model": name, "run": str(args.seed)} for name in rows for r in rows[name]])
    show(f"\nSpearman x 100, seed {args.seed}, n = 1\n{table(rows)}", runs / "scores.json")
    logger.info("curves: %s and %s", runs / "stage-1/curves.png", runs / "stage-2/curves.png")
    return rows


if __name__ == "__main__":
    run_command(main)
