"""`python -m bench methods`: all methods compared from one start, with one budget and one search.

Each method's `-mini` configuration is trained with three learning rates and the first seed. The rate that is best on
STS-B dev is then trained with the other seeds, and these runs are scored on the seven STS sets. Finished runs are kept:
the command may be stopped and typed again, and two may run at once with different --methods.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common.errors import BadInput
from common.flags import positive
from eval.scores import markdown
from eval.sts import STS_TEST
from papers import runs
from papers.page import mean_and_std
from papers.runs import CONFIGS, facts_of, finished, read_once, read_rows, start_flags

# Configurations that cannot be compared: stage 1, methods for documents, and methods trained on labels, first or only.
OTHERS = {"aux", "aux-read", "spans", "simcse-sup", "consert-sup", "consert-joint", "consert-sup-unsup"}
OTHERS |= {"consert-joint-unsup"}
ALL = sorted(path.stem for path in CONFIGS.glob("*-mini.yaml") if path.stem.removesuffix("-mini") not in OTHERS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this subject."""
    parser.add_argument("--model", required=True, help="masked language model that every method starts from")
    parser.add_argument("--stage_one", help="where InfoCSE starts (default: its configuration's own run of stage 1)")
    parser.add_argument("--data_dir", default="corpora")
    parser.add_argument("--methods", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--learning_rates", nargs="+", default=["1e-5", "3e-5", "1e-4"])
    parser.add_argument("--steps", type=positive, default=500, help="of every run")
    parser.add_argument("--folder", default="runs/methods", help="where the runs go")
    parser.add_argument("--float32", action="store_true", help="instead of bfloat16 autocast, which a CPU without "
                        "instructions for it runs slower; give each precision a --folder of its own")  # fmt: skip
    parser.add_argument("--collect", action="store_true", help="train nothing; only gather what is there")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row a finished run, of all methods; missing runs are trained first unless `--collect` is given."""
    for method in [] if args.collect else args.methods:
        rates = {rate: _trained(args, method, rate, args.seeds[0]) for rate in args.learning_rates}
        best = max(rates, key=lambda rate: rates[rate]["best"]["value"])
        for seed in args.seeds:
            _trained(args, method, best, seed)
            folder = _folder(args, method, best, seed)
            runs.score(folder, "sts", STS_TEST, args.data_dir, bf16=not args.float32)
    found = [row for method in ALL for row in _found(args, method)]
    if not found:
        raise BadInput(f"{args.folder}: no finished run of {args.steps} steps; leave --collect out to train")
    _refuse_mixed(args, found)
    return found


def _refuse_mixed(args: argparse.Namespace, found: list[dict]) -> None:
    """BadInput unless all runs have one text, one precision and one start, those after stage 1 one run of it."""
    seen_at: dict[tuple[str | None, str], dict] = {}
    for row in found:
        stage_one = read_once(str(CONFIGS / f"{row['method']}.yaml")).get("model_name_or_path")
        for part in ("start", "text", "precision"):
            seen = seen_at.setdefault((stage_one if part == "start" else None, part), row)
            if seen[part] != row[part]:
                raise BadInput(f"{args.folder}: {seen['name']} and {row['name']} have another {part}; use two folders")


def table(rows: list[dict]) -> str:
    """The search of each method, and mean and standard deviation of its chosen runs."""
    lines = [["method", "learning rates tried (dev, first seed)", "chosen", "STS-B dev", "STS avg.", "n"]]
    for method in ALL:
        own = [row for row in rows if row["method"] == method]
        first = min((row["seed"] for row in own), default=None)
        tried = sorted((row for row in own if row["seed"] == first), key=lambda row: float(row["learning_rate"]))
        best = max(tried, key=lambda row: row["dev"])["learning_rate"] if tried else None
        chosen = [row for row in own if row["learning_rate"] == best and row["sts_average"] is not None]
        search = ", ".join(f"{row['learning_rate']}: {row['dev']:.2f}" for row in tried) or "not run"
        rate = best if chosen else "-"
        means = [mean_and_std([row[name] for row in chosen], "not run") for name in ("dev", "sts_average")]
        lines.append([method.removesuffix("-mini"), search, rate, *means, str(len(chosen))])
    return markdown(lines)


def _folder(args: argparse.Namespace, method: str, rate: str, seed: int) -> Path:
    return Path(args.folder) / method / f"steps-{args.steps}_lr-{rate}_seed-{seed}"


def _trained(args: argparse.Namespace, method: str, rate: str, seed: int) -> dict:
    """The record of a finished run, which is trained if missing."""
    config = CONFIGS / f"{method}.yaml"
    flags = {
        "config": str(config),
        **start_flags(config, {}, args.model, args.stage_one),
        "data_dir": args.data_dir,
        "learning_rate": rate,
        "seed": str(seed),
        "max_steps": str(args.steps),
        "save_steps": str(args.steps),
        "bf16": str(not args.float32).lower(),
    }
    return runs.trained(_folder(args, method, rate, seed), flags)


def _found(args: argparse.Namespace, method: str) -> list[dict]:
    made = []
    for path in sorted((Path(args.folder) / method).glob(f"steps-{args.steps}_*/run.json")):
        record = finished(path.parent)
        if record is None:
            continue
        scores = read_rows(path.with_name("sts.json"))
        _, rate, seed = (part.split("-", 1)[1] for part in path.parent.name.split("_"))
        made.append(
            {
                "name": f"{method} {rate} {seed}",
                "method": method,
                "learning_rate": rate,
                "seed": int(seed),
                "dev": record["best"]["value"],
                "best_step": record["best"]["step"],
                "sts_average": next((row["value"] for row in scores if row["task"] == "Avg."), None),
                "precision": "bf16" if record["trajectory"]["bf16"] else "float32",
                **facts_of(record),
            }
        )
    return made
