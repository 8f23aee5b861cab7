"""`python -m bench methods`: compare all methods with the same start, budget and hyperparameter search.

Each method's `-mini` configuration is trained with three learning rates and the first seed. The rate that is best on
STS-B dev is then trained with the other seeds, and these runs are scored on the seven STS sets and, with --search, on
retrieval sets. Finished runs are kept: run the command again to resume. Two commands may run at once with different
--methods.
"""

import argparse
import re
from pathlib import Path

from common.errors import BadInput
from common.flags import positive
from eval.scores import AVERAGE, markdown
from eval.sts import STS_TEST
from papers import runs
from papers.page import mean_and_std
from papers.runs import CONFIGS, facts_of, figures_in, finished, read_once, start_flags

# Configurations that cannot be compared: stage 1, methods for documents, and (partly) supervised methods.
OTHERS = {"aux", "aux-read", "spans", "simcse-sup", "consert-sup", "consert-joint", "consert-sup-unsup",
          "consert-joint-unsup"}  # fmt: skip
_NAME = re.compile(r"steps-\d+_lr-([^_]+)_seed-(\d+)")
ALL = sorted(path.stem for path in CONFIGS.glob("*-mini.yaml") if path.stem.removesuffix("-mini") not in OTHERS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="masked language model to start from")
    parser.add_argument("--stage_one", help="start of InfoCSE (default: the stage 1 run named in its configuration)")
    parser.add_argument("--methods", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--learning_rates", nargs="+", default=["1e-5", "3e-5", "1e-4"])
    parser.add_argument("--steps", type=positive, default=500, help="per run")
    runs.add_flags(parser, "runs/methods", *"data_dir seeds search float32 collect".split())


def rows(args: argparse.Namespace) -> list[dict]:
    """One row per finished run, of all methods; missing runs are trained first unless `--collect` is given."""
    if not args.collect:
        runs.refuse_missing([*runs.search_tasks(args.search), *STS_TEST], args.data_dir)
    for method in [] if args.collect else args.methods:
        rates = {rate: _train(args, method, rate, args.seeds[0]) for rate in args.learning_rates}
        best = max(rates, key=lambda rate: rates[rate]["best"]["value"])
        for seed in args.seeds:
            _train(args, method, best, seed)
            folder = _folder(args, method, best, seed)
            runs.score(folder, "sts", STS_TEST, args.data_dir, bf16=not args.float32)
    finished_rows = [row for method in ALL for row in _finished_rows(args, method)]
    if not finished_rows:
        raise BadInput(f"{args.folder}: no finished run of {args.steps} steps; remove --collect to train")
    _refuse_mixed(args, finished_rows)
    return finished_rows


def _refuse_mixed(args: argparse.Namespace, finished_rows: list[dict]) -> None:
    """Raise BadInput unless all runs have the same text, precision, search and start (after stage 1: the same run)."""
    seen_at: dict[tuple[str, ...], tuple[dict, object]] = {}
    for row in finished_rows:
        stage_one = read_once(str(CONFIGS / f"{row['method']}.yaml")).get("model_name_or_path")
        parts = {("start", stage_one): row["start"], ("text",): row["text"], ("precision",): row["precision"]}
        if row["search"]:
            parts["search",] = row["search"].keys()
        for part, value in parts.items():
            first, seen = seen_at.setdefault(part, (row, value))
            if seen != value:
                names = f"{first['name']} and {row['name']}"
                raise BadInput(f"{args.folder}: {names} differ in {part[0]}; use two folders")


def table(rows: list[dict]) -> str:
    """The search of each method, and mean and standard deviation over its chosen runs."""
    lines = [["method", "learning rates tried (dev, first seed)", "chosen", "STS-B dev", "STS avg.", "nDCG@10", "n"]]
    for method in ALL:
        group = [row for row in rows if row["method"] == method]
        first = min((row["seed"] for row in group), default=None)
        tried = sorted((row for row in group if row["seed"] == first), key=lambda row: float(row["learning_rate"]))
        best = max(tried, key=lambda row: row["dev"])["learning_rate"] if tried else None
        chosen = [row for row in group if row["learning_rate"] == best and row["sts_average"] is not None]
        search = ", ".join(f"{row['learning_rate']}: {row['dev']:.2f}" for row in tried) or "not run"
        rate = best if chosen else "-"
        searched = all(row.get("search") for row in chosen)
        ndcg = [row["search"][AVERAGE] for row in chosen] if searched else []
        figures = [row["dev"] for row in chosen], [row["sts_average"] for row in chosen], ndcg
        means = [mean_and_std(values, "not run") for values in figures]
        lines.append([method.removesuffix("-mini"), search, rate, *means, str(len(chosen))])
    return markdown(lines)


def _folder(args: argparse.Namespace, method: str, rate: str, seed: int) -> Path:
    return Path(args.folder) / method / f"steps-{args.steps}_lr-{rate}_seed-{seed}"


def _train(args: argparse.Namespace, method: str, rate: str, seed: int) -> dict:
    """Train a run unless it has finished, and return its record."""
    config = CONFIGS / f"{method}.yaml"
    start = start_flags(config, {}, args.model, args.stage_one)
    flags = runs.run_flags(args, seed, args.steps, config=str(config), learning_rate=rate, **start)
    return runs.train(_folder(args, method, rate, seed), flags)


def _finished_rows(args: argparse.Namespace, method: str) -> list[dict]:
    rows = []
    for path in sorted((Path(args.folder) / method).glob(f"steps-{args.steps}_*/run.json")):
        match, record = _NAME.fullmatch(path.parent.name), finished(path.parent)
        if record is None or match is None:  # a run that was moved away has another name
            continue
        bf16 = record["trajectory"]["bf16"]
        scores = figures_in(path.parent, "sts")
        if args.search and scores and method in args.methods:
            runs.score_search(path.parent, args.search, args.data_dir, bf16)
        rate, seed = match.groups()
        rows.append({
            "name": f"{method} {rate} {seed}", "method": method, "learning_rate": rate, "seed": int(seed),
            "dev": record["best"]["value"], "best_step": record["best"]["step"], "sts_average": scores.get(AVERAGE),
            "search": figures_in(path.parent, "search"), "precision": "bf16" if bf16 else "float32", **facts_of(record),
        })  # fmt: skip
    return rows
