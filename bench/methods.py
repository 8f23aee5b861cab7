"""Every method's `-mini` configuration from one start, with one budget and one search: which helps, and how surely.

For each method three learning rates are tried with the first seed and the best on STS-B dev is kept; then the other
seeds are trained with it and all are scored on the seven STS sets. Everything that is finished is left alone, so the
command may be stopped and typed again, and two may run at once with different --methods.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import run_unsup
from errors import BadInput
from eval.encode import Encode
from eval.report import markdown, rows_of, score_all, write_scores
from eval.sts.tasks import STS_TEST
from models.encoder import load_encoder

CONFIGS = Path(__file__).parents[1] / "configs"
ALL = sorted(path.stem for path in CONFIGS.glob("*-mini.yaml") if path.stem not in ("aux-mini", "simcse-sup-mini"))
FACTS = ("commit", "versions", "hardware")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this subject."""
    parser.add_argument("--model", required=True, help="masked language model that every method starts from")
    parser.add_argument("--stage_one", default="runs/aux-mini", help="where InfoCSE starts: a run of configs/aux-mini")
    parser.add_argument("--data_dir", default="corpora")
    parser.add_argument("--methods", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--learning_rates", nargs="+", default=["1e-5", "3e-5", "1e-4"])
    parser.add_argument("--steps", type=int, default=500, help="of every run")
    parser.add_argument("--folder", default="runs/methods", help="where the runs go")
    parser.add_argument("--collect", action="store_true", help="train nothing; only gather what is there")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row a finished run, of all methods; training comes first unless `--collect`."""
    for method in [] if args.collect else args.methods:
        rates = {rate: _trained(args, method, rate, args.seeds[0]) for rate in args.learning_rates}
        best = max(rates, key=lambda rate: rates[rate]["best"]["value"])
        for seed in args.seeds:
            _trained(args, method, best, seed)
            _scored(_folder(args, method, best, seed), args.data_dir)
    found = [row for method in ALL for row in _found(args, method)]
    if not found:
        raise BadInput(f"{args.folder}: no finished run of {args.steps} steps; leave --collect out to train")
    return found


def table(rows: list[dict]) -> str:
    """Mean and standard deviation of the chosen runs of each method; what was not run is shown as such."""
    lines = [["method", "learning rates tried (dev, first seed)", "chosen", "STS-B dev", "STS avg.", "n"]]
    for method in ALL:
        runs = [row for row in rows if row["method"] == method]
        chosen = [row for row in runs if row["sts_average"] is not None]
        seeds = [row["seed"] for row in runs]
        tried = [row for row in runs if row["seed"] == min(seeds)]
        search = ", ".join(f"{row['learning_rate']}: {row['dev']:.2f}" for row in tried) or "not run"
        rate = chosen[0]["learning_rate"] if chosen else "-"
        spread = [_spread([row[name] for row in chosen]) for name in ("dev", "sts_average")]
        lines.append([method.removesuffix("-mini"), search, rate, *spread, str(len(chosen))])
    return markdown(lines)


def _spread(values: list[float]) -> str:
    if not values:
        return "not run"
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def _folder(args: argparse.Namespace, method: str, rate: str, seed: int) -> Path:
    return Path(args.folder) / method / f"steps-{args.steps}_lr-{rate}_seed-{seed}"


def _trained(args: argparse.Namespace, method: str, rate: str, seed: int) -> dict:
    """The record of a finished run, trained now where it is not there."""
    folder = _folder(args, method, rate, seed)
    start = args.stage_one if method.startswith("infocse") else args.model
    flags = {
        "config": CONFIGS / f"{method}.yaml",
        "model_name_or_path": start,
        "data_dir": args.data_dir,
        "output_dir": folder,
        "learning_rate": rate,
        "seed": seed,
        "max_steps": args.steps,
        "save_steps": args.steps,
        "test_tasks": "none",
        "bf16": "true",
        "use_cpu": "true",
        "disable_tqdm": "true",
    }
    if method in ("diffcse-mini", "infocse-rtd-mini"):
        flags["generator"] = args.model
    run_unsup.main([f"--{name}={value}" for name, value in flags.items()])
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def _scored(folder: Path, data_dir: str) -> None:
    """`sts.json` beside a run: the seven sets."""
    if not (folder / "sts.json").is_file():
        encoder, tokenizer = load_encoder(str(folder))
        results = score_all(Encode(encoder, tokenizer, encoder.max_length, bf16=True), STS_TEST, data_dir)
        write_scores(folder / "sts.json", results, rows_of(results, folder.parent.name, folder.name))


def _found(args: argparse.Namespace, method: str) -> list[dict]:
    made = []
    for path in sorted((Path(args.folder) / method).glob(f"steps-{args.steps}_*/run.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["status"] != "finished":
            continue
        scores, average = path.with_name("sts.json"), None
        if scores.is_file():
            read = json.loads(scores.read_text(encoding="utf-8"))
            average = next(row["value"] for row in read if row["task"] == "Avg.")
        _, rate, seed = (part.split("-", 1)[1] for part in path.parent.name.split("_"))
        made.append(
            {
                "name": f"{method} {rate} {seed}",
                "method": method,
                "learning_rate": rate,
                "seed": int(seed),
                "steps": record["steps"],
                "dev": record["best"]["value"],
                "best_step": record["best"]["step"],
                "sts_average": average,
                "precision": "bf16",
                **{name: record[name] for name in FACTS},
            }
        )
    return made
