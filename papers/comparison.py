"""`python -m bench methods`: compare all methods with the same start, budget and hyperparameter search.

Each method's `-mini` configuration is trained with three learning rates and the first seed. The rate that is best on
STS-B dev is then trained with the other seeds, and these runs are scored on the seven STS sets; --search and --transfer
add retrieval sets and classifiers. A configuration with flags in the same quotes, such as "infocse-mini --aux_weight
0.01", is a method of its own. Finished runs are kept: run the command again to resume. Two commands may run at once
with different --methods.
"""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from common.errors import BadInput
from common.flags import positive
from eval.compare.intervals import welch
from eval.compare.sides import Score
from eval.scores import AVERAGE, markdown
from eval.sts import STS_TEST
from papers import runs, studies
from papers.page import mean_and_std
from papers.runs import CONFIGS, facts_of, finished, read_once, start_flags
from papers.studies import FIGURES, figures_in, values

# Configurations that cannot be compared: stage 1, methods for documents, and (partly) supervised methods.
OTHERS = {"aux", "aux-read", "spans", "simcse-sup", "consert-sup", "consert-joint", "consert-sup-unsup",
          "consert-joint-unsup"}  # fmt: skip
_NAME = re.compile(r"steps-\d+_lr-([^_]+)_seed-(\d+)")
BASELINE = "simcse-mini"
ALL = sorted(path.stem for path in CONFIGS.glob("*-mini.yaml") if path.stem.removesuffix("-mini") not in OTHERS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="masked language model to start from")
    parser.add_argument("--stage_one", help="start of InfoCSE (default: the stage 1 run named in its configuration)")
    parser.add_argument("--methods", nargs="+", type=_method, default=ALL, metavar="CONFIG",
                        help=f'default: all; choose from {", ".join(ALL)}, or "CONFIG --FLAG VALUE ..."')  # fmt: skip
    parser.add_argument("--learning_rates", nargs="+", default=["1e-5", "3e-5", "1e-4"],
                        help="learning rates to try; STS-B dev chooses")  # fmt: skip
    parser.add_argument("--steps", type=positive, default=500, help="steps per run")
    studies.add_flags(parser, "runs/methods", *"data_dir seeds search transfer float32 collect known".split())


def _method(text: str) -> str:
    config, *words = text.split() or [""]
    names, values = words[::2], words[1::2]
    if config not in ALL:
        raise argparse.ArgumentTypeError(f"'{config}' is none of {', '.join(ALL)}")
    if len(names) != len(values) or not all(name.startswith("--") for name in names):
        raise argparse.ArgumentTypeError(f"'{text}' is not CONFIG --FLAG VALUE ...")
    return " ".join([config, *words])


def _config_of(method: str) -> tuple[Path, dict[str, str]]:
    """The configuration of a method, and the flags that override it."""
    config, *words = method.split()
    return CONFIGS / f"{config}.yaml", {name[2:]: value for name, value in zip(words[::2], words[1::2], strict=True)}


def rows(args: argparse.Namespace) -> list[dict]:
    """One row per finished run, of all methods; missing runs are trained first unless `--collect` is given."""
    if not args.collect:
        runs.refuse_missing(chain(*studies.study_tasks(args).values()), args.data_dir)
        for method in args.methods:  # before the first of them is trained
            runs.parsed(_flags(args, method, args.learning_rates[0], args.seeds[0]))
    known = studies.known_rows(args, "method", "learning_rate", "dev", "sts_average", "precision")
    if others := [name for name, row in known.items() if row.get("steps", args.steps) != args.steps]:
        raise BadInput(f"--known {args.known}: {others[0]} has {known[others[0]]['steps']} steps, not {args.steps}")
    for method in [] if args.collect else args.methods:
        _search(args, method, known)
    found = {row["name"]: row for method in sorted({*ALL, *args.methods}) for row in _finished_rows(args, method)}
    if not (known or found):
        raise BadInput(f"{args.folder}: no finished run of {args.steps} steps; remove --collect to train")
    rows = list((known | found).values())
    _refuse_mixed(args, rows)
    return rows


def _search(args: argparse.Namespace, method: str, known: dict[str, dict]) -> None:
    """Train the rates with the first seed and the best of them with all seeds, except for the runs in `known`."""
    rates = {rate: _dev(args, method, rate, args.seeds[0], known) for rate in args.learning_rates}
    best = max(rates, key=rates.get)
    for seed in args.seeds:
        _dev(args, method, best, seed, known)
        folder = _run_folder(args, method, best, seed)
        if finished(folder):
            runs.score(folder, "sts", STS_TEST, args.data_dir, bf16=not args.float32)


def _refuse_mixed(args: argparse.Namespace, rows: list[dict]) -> None:
    """Raise BadInput unless all runs have the same text, precision, search and start (after stage 1: the same run).

    Rows of --known may be older than some of these facts.
    """
    seen_at: dict[tuple[str, ...], tuple[dict, object]] = {}
    for row in rows:
        stage_one = read_once(str(_config_of(row["method"])[0])).get("model_name_or_path")
        parts = {("start", stage_one): row.get("start"), ("text",): row.get("text"), ("precision",): row["precision"]}
        parts["search",] = sorted(row["search"]) if row.get("search") else None
        for part, value in ((part, value) for part, value in parts.items() if value is not None):
            first, seen = seen_at.setdefault(part, (row, value))
            if seen != value:
                names = f"{first['name']} and {row['name']}"
                raise BadInput(f"{args.folder}: {names} differ in {part[0]}; compare them in two folders, "
                               "or without --known")  # fmt: skip


def table(rows: list[dict]) -> str:
    """The search of each method, the mean and standard deviation over its chosen runs, and differences to SimCSE."""
    columns = ["sts_average", "search"] + ["transfer"] * any(row.get("transfer") for row in rows)
    titles = [FIGURES[name.removesuffix("_average")] for name in columns]
    lines = [["method", "learning rates tried (dev, first seed)", "chosen", "STS-B dev", *titles, "n"]]
    runs_of: dict[str, list[dict]] = {}
    for method in sorted({row["method"] for row in rows}):
        group = [row for row in rows if row["method"] == method]
        # The search had one seed, which is not always the smallest; every other seed has one rate.
        first = Counter(row["seed"] for row in sorted(group, key=lambda row: row["seed"])).most_common(1)[0][0]
        tried = sorted((row for row in group if row["seed"] == first), key=lambda row: float(row["learning_rate"]))
        best = max(tried, key=lambda row: row["dev"])["learning_rate"]
        chosen = [row for row in group if row["learning_rate"] == best and row["sts_average"] is not None]
        search = ", ".join(f"{row['learning_rate']}: {row['dev']:.2f}" for row in tried)
        means = [_mean(chosen, name) for name in ("dev", *columns)]
        lines.append([_title(method), search, best if chosen else "-", *means, str(len(chosen))])
        runs_of[method] = chosen
    return "\n\n".join(markdown(part) for part in (lines, differences(runs_of, columns)) if len(part) > 1)


def _mean(chosen: list[dict], name: str) -> str:
    """Mean and standard deviation of a figure, and of how many runs unless all have it."""
    found = [figure for row in chosen for figure in values([row], name)]
    return mean_and_std(found, "not run") + (f" (n = {len(found)})" if 0 < len(found) < len(chosen) else "")


def differences(runs_of: dict[str, list[dict]], columns: Sequence[str]) -> list[list[str]]:
    """Each method minus SimCSE, with Welch's 95 % interval over the runs; at least two runs of each are needed."""
    body = [["minus SimCSE", *(FIGURES[name.removesuffix("_average")] for name in columns)]]
    for method, chosen in runs_of.items():
        cells = [_difference(values(chosen, name), values(runs_of.get(BASELINE, []), name)) for name in columns]
        if method != BASELINE and any(cell != "-" for cell in cells):
            body.append([_title(method), *cells])
    return body


def _difference(values: list[float], base: list[float]) -> str:
    if min(len(values), len(base)) < 2:
        return "-"
    one, other = Score.over(values), Score.over(base)
    low, high = welch(one, other)
    return f"{one.mean - other.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def _title(method: str) -> str:
    return method.replace("-mini", "", 1)


def _folder(args: argparse.Namespace, method: str) -> Path:
    return Path(args.folder) / method.replace(" --", "_").replace(" ", "-")


def _run_folder(args: argparse.Namespace, method: str, rate: str, seed: int) -> Path:
    return _folder(args, method) / f"steps-{args.steps}_lr-{rate}_seed-{seed}"


def _dev(args: argparse.Namespace, method: str, rate: str, seed: int, known: dict[str, dict]) -> float:
    """The dev score of a run, which is trained unless it has finished or is known."""
    if row := known.get(_name(method, rate, seed)):
        return row["dev"]
    record = runs.train(_run_folder(args, method, rate, seed), _flags(args, method, rate, seed))
    _refuse_mixed(args, [*known.values(), _facts(method, rate, seed, record)])  # before the next run is trained
    return record["best"]["value"]


def _flags(args: argparse.Namespace, method: str, rate: str, seed: int) -> dict[str, str]:
    """The flags of a run; BadInput if the method has one that this command sets."""
    config, overrides = _config_of(method)
    start = start_flags(config, overrides, args.model, args.stage_one)
    flags = studies.run_flags(args, seed, args.steps, config=str(config), learning_rate=rate, **start)
    ours = runs.all_flags(_run_folder(args, method, rate, seed), flags)
    if clash := sorted(ours.keys() & overrides.keys()):
        raise BadInput(f"--methods '{method}': this command sets --{clash[0]}; remove it")
    return ours | overrides


def _name(method: str, rate: str, seed: int | str) -> str:
    return f"{method} {rate} {seed}"


def _facts(method: str, rate: str, seed: int | str, record: dict) -> dict:
    """The columns of a row that come from the run's record."""
    return {
        "name": _name(method, rate, seed), "method": method, "learning_rate": rate, "seed": int(seed),
        "dev": record["best"]["value"], "best_step": record["best"]["step"],
        "precision": "bf16" if record["trajectory"]["bf16"] else "float32", **facts_of(record),
    }  # fmt: skip


def _finished_rows(args: argparse.Namespace, method: str) -> list[dict]:
    rows = []
    for path in sorted(_folder(args, method).glob(f"steps-{args.steps}_*/run.json")):
        match, record = _NAME.fullmatch(path.parent.name), finished(path.parent)
        if record is None or match is None:  # a run that was moved away has another name
            continue
        bf16 = record["trajectory"]["bf16"]
        scored = (path.parent / "sts.json").is_file()  # with the rate that was best on dev
        figures = studies.score_study(path.parent, args, bf16) if scored and method in args.methods else {}
        figures = figures or {name: figures_in(path.parent, name) for name in FIGURES}
        rows.append({
            **_facts(method, *match.groups(), record), "sts_average": figures.get("sts", {}).get(AVERAGE),
            "search": figures.get("search", {}), "transfer": figures.get("transfer", {}),
        })  # fmt: skip
    return rows
