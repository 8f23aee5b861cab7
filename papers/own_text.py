"""`python -m bench own_text`: does training on documents without labels improve search in them?

Every start is adapted to the documents of every set by every method with `python -m adapt`, over seeds. Steps, mixture
and verdict come from pseudo-queries; the judged queries of the set only measure the gain afterwards. With `--stage_1`
every start first goes through InfoCSE's stage 1 on the same documents; it then counts as a start of its own. Finished
runs are kept: run the command again to resume.
"""

import argparse
import logging
import sys
from itertools import product
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure
from scipy.stats import spearmanr

from adapt.run import prepare
from common.errors import BadInput, ProjectError
from common.files import read_json, writing
from common.flags import positive
from eval.dev import clears
from eval.encode import device_here
from eval.scores import markdown
from papers.page import mean_and_std
from papers.runs import (
    CONFIGS,
    facts_of,
    finished,
    read_once,
    refuse_missing,
    search_tasks,
    train,
)
from papers.studies import add_flags, known_rows, run_flags
from report.runs import read_log
from training.record import RUN_FILE, read_run
from training.settings import words_of
from training.signals import run_to_its_end

logger = logging.getLogger(__name__)
LOGGED = "eval_search_ndcg"
STAGE_1_STEPS = 60  # as many as `adapt` trains
METHODS: dict[str, dict[str, str]] = {
    "spans": {},
    "spans, words": {"bow_weight": "0.1"},
    "tsdae": {"method": "tsdae", "output_init": "checkpoint"},
    "simcse": {"method": "simcse"},
    # Half the steps of the others: one step costs as much as three of spans.
    "infocse": {"method": "infocse", "skip_from": "0", "aux_init": "encoder_top", "aux_weight": "0.1", "steps": "30"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", required=True, help="starts: encoders with or without a pooling")
    parser.add_argument("--names", nargs="+", help="their names in the table (default: their folders)")
    parser.add_argument("--sets", nargs="+", default=["med", "cranfield", "cisi", "cacm", "npl", "scifact"],
                        help="folders in DATA_DIR/beir")  # fmt: skip
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="methods to adapt with")
    parser.add_argument("--steps", type=positive, help="per run, half for infocse (default: configs/adapt.yaml); "
                        "use another --folder for each number")  # fmt: skip
    parser.add_argument("--stage_1", action="store_true", help="first pre-train every start and an auxiliary "
                        f"network on the documents: configs/aux-read-mini.yaml, {STAGE_1_STEPS} steps")  # fmt: skip
    parser.add_argument("--output_init", choices=("checkpoint", "new"), default="checkpoint", help="new: stage 1 and "
                        "tsdae give every start a new masked language model's output head")  # fmt: skip
    add_flags(parser, "runs/own_text", *"data_dir seeds float32 collect known".split())
    parser.add_argument("--figure", help="draw the gain on pseudo-queries against steps into this PNG file")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row per finished run."""
    names = args.names or [Path(model).name for model in args.models]
    if len(names) != len(args.models) or len({*names}) < len(names):
        raise BadInput(f"--names {' '.join(names)}: give each of --models its own name")
    if not args.collect:
        refuse_missing(search_tasks(args.sets), args.data_dir)
    known = known_rows(args, "start", "facts", "method", "set", "pseudo", "real", "start_share", "curve")
    names = [f"{name}, stage 1" if args.stage_1 else name for name in names]
    for seed, (name, model), method, corpus in product(
        args.seeds, zip(names, args.models, strict=True), args.methods, args.sets
    ):
        run = f"{name}_{method}_{corpus}_seed-{seed}".replace(", ", "-").replace(" ", "-")
        if run not in known and (row := _row(args, Path(args.folder) / run, model, method, corpus, seed)):
            known[run] = {"name": run, "start": name, "method": method, "set": corpus, "seed": seed, **row}
    if not known:
        remedy = "remove --collect to train" if args.collect else "every one was refused, for the reasons above"
        raise BadInput(f"{args.folder}: no finished run; {remedy}")
    if args.figure:
        draw(list(known.values()), Path(args.figure))
    return list(known.values())


def _row(args: argparse.Namespace, folder: Path, model: str, method: str, corpus: str, seed: int) -> dict | None:
    before = finished(folder)
    device = before["trajectory"].get("device", "cpu") if before else device_here()
    if not args.collect and device in ("cpu", device_here()):  # without a GPU, a GPU's finished run stays as it is
        beir = Path(args.data_dir) / "beir" / corpus
        flags = {"text": beir / "corpus.jsonl", "labels": beir, "output": folder, "seed": seed,
                 "keep_start": "false", "bf16": str(not args.float32).lower(), "disable_tqdm": "true",
                 "cache_dir": _cache(args), **METHODS[method]}  # fmt: skip
        if args.stage_1:
            model = _stage_1(args, model, beir / "corpus.jsonl", seed)
            flags |= {"aux_init": "checkpoint"} if "aux_init" in flags else {}
        elif "output_init" in flags:
            flags["output_init"] = args.output_init
        if args.steps:
            flags["steps"] = max(1, args.steps // 2) if method == "infocse" else args.steps
        flags |= {"use_cpu": "true"} if device != device_here() else {}  # otherwise adapt refuses a CPU's run on a GPU
        code = run_to_its_end([sys.executable, "-m", "adapt", model, *words_of(flags)], stdout=sys.stderr)
        if code == BadInput.exit_code:  # already explained: no bag of words from a start without a vocabulary head
            logger.error("%s: refused, skipped", folder)
        elif code:
            raise ProjectError(f"adapt to {corpus} with {method} failed with exit code {code}; run it again to resume")
    if not (folder / "adapt.json").is_file() or not (folder / RUN_FILE).is_file():
        return None
    verdict, record = read_json(folder / "adapt.json", "the verdict of adapt", "remove the run"), read_run(folder)
    sides = {"pseudo": verdict, "real": verdict["labels"]}
    scores = {name: {part: side[part] for part in ("start", "result", "interval", "verdict")}
              for name, side in sides.items()}  # fmt: skip
    curve = [[line["step"], line[LOGGED]] for line in read_log(folder) if LOGGED in line]
    return {**scores, "start_share": verdict["start_share"],
            "curve": [[0, verdict["dev_by_start_share"]["1.0"]], *curve], "facts": facts_of(record)}  # fmt: skip


def _cache(args: argparse.Namespace) -> Path:
    return Path(args.folder) / "cache"


def _stage_1(args: argparse.Namespace, model: str, corpus: Path, seed: int) -> str:
    """The start after stage 1 on the documents that `adapt` trains on."""
    documents = prepare([corpus], seed, str(_cache(args)), None, None) / "documents.jsonl"
    folder = Path(args.folder) / f"stage-1_{Path(model).name}_{corpus.parent.name}_seed-{seed}"
    train(folder, run_flags(
        args, seed, STAGE_1_STEPS, config=str(CONFIGS / "aux-read-mini.yaml"), model_name_or_path=model,
        output_init=args.output_init, train_file=str(documents.resolve()), cache_dir=str(_cache(args)),
    ))  # fmt: skip
    return str(folder)


def table(rows: list[dict]) -> str:
    """nDCG@10 on judged queries by start and method, the verdict on each run, and how well pseudo-queries agree."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    body = [["start", "method", *sets, "mean", "mean gain", "n"]]
    for start in dict.fromkeys(row["start"] for row in rows):
        start_rows = [row for row in rows if row["start"] == start]
        # After stage 1, each seed has a start of its own.
        before = [list({row["real"]["start"] for row in start_rows if row["set"] == name}) for name in sets]
        body.append([start, "as it is", *_cells(before), "", ""])
        for method in dict.fromkeys(row["method"] for row in start_rows):
            body.append(_line([row for row in start_rows if row["method"] == method], start, method, sets))
    return "\n\n".join([markdown(body), markdown(verdicts(rows)), markdown(orders(rows)), shipped(rows)])


def _line(rows: list[dict], start: str, method: str, sets: list[str]) -> list[str]:
    """The cells of `_cells`, the mean gain over sets, and the number of seeds."""
    by_set = {name: [row["real"] for row in rows if row["set"] == name] for name in sets}
    cells = _cells([[real["result"] for real in runs] for runs in by_set.values()])
    gains = [fmean(real["result"] - real["start"] for real in runs) for runs in by_set.values() if runs]
    seeds = sorted({len(runs) for runs in by_set.values() if runs})
    return [start, method, *cells, f"{fmean(gains):+.2f}", " to ".join(map(str, dict.fromkeys([seeds[0], seeds[-1]])))]


def _cells(values: list[list[float]]) -> list[str]:
    """Mean and standard deviation over the seeds of each set, and the mean over sets, if all have values."""
    mean = f"{fmean(map(fmean, values)):.2f}" if all(values) else "-"
    return [*(mean_and_std(each, "-") for each in values), mean]


def verdicts(rows: list[dict]) -> list[list[str]]:
    """One line per start, method and set: the gains over the seeds, and what `adapt` would ship."""
    body = [["start", "method", "set", "gain on pseudo-queries", "gain on judged queries", "above zero", "below zero",
             "share of the start", "results shipped"]]  # fmt: skip
    for key in dict.fromkeys((row["start"], row["method"], row["set"]) for row in rows):
        runs = [row for row in rows if (row["start"], row["method"], row["set"]) == key]
        of = f" of {len(runs)}"
        intervals = [row["real"]["interval"] for row in runs]
        body.append([
            *key, _gain([row["pseudo"] for row in runs]), _gain([row["real"] for row in runs]),
            f"{sum(low > 0 for low, _ in intervals)}{of}", f"{sum(high < 0 for _, high in intervals)}{of}",
            " ".join(str(row["start_share"]) for row in runs), f"{sum(map(_ships, runs))}{of}",
        ])  # fmt: skip
    return body


def _gain(scores: list[dict]) -> str:
    """The mean gain, with the outer ends of all 95 % intervals."""
    low, high = min(one["interval"][0] for one in scores), max(one["interval"][1] for one in scores)
    return f"{fmean(one['result'] - one['start'] for one in scores):+.2f} ({low:+.2f} to {high:+.2f})"


def orders(rows: list[dict]) -> list[list[str]]:
    """Spearman's rank correlation of the scores on pseudo-queries and on judged queries, over the models of a set.

    The models are all starts and all results for one set and seed; a line has the correlation for every seed.
    """
    body = [["set", "candidates", "rank correlation of pseudo-queries and judged ones"]]
    correlations: list[float] = []
    for corpus in dict.fromkeys(row["set"] for row in rows):
        seeds = sorted({row["seed"] for row in rows if row["set"] == corpus})
        groups = [_candidates([row for row in rows if (row["set"], row["seed"]) == (corpus, seed)]) for seed in seeds]
        groups = [pairs for pairs in groups if min(len(set(side)) for side in zip(*pairs, strict=True)) > 2]
        found = [float(spearmanr(*zip(*pairs, strict=True)).statistic) for pairs in groups]
        if found:
            counts, values = " ".join(str(len(pairs)) for pairs in groups), " ".join(f"{value:.2f}" for value in found)
            body.append([corpus, counts, values])
        correlations += found
    mean = f"{fmean(correlations):.2f}" if correlations else "not measured: fewer than three candidates"
    return [*body, ["mean", "", mean]]


def _candidates(rows: list[dict]) -> list[tuple[float, float]]:
    """Scores on pseudo-queries and on judged queries, of each start once and of every result."""
    starts = {row["start"]: (row["pseudo"]["start"], row["real"]["start"]) for row in rows}
    return [*starts.values(), *((row["pseudo"]["result"], row["real"]["result"]) for row in rows)]


def _ships(row: dict) -> bool:
    """Whether `adapt` ships the result of a run, by the rule that it has now."""
    return clears(row["pseudo"], float(read_once(str(CONFIGS / "adapt.yaml"))["least_gain"]))


def shipped(rows: list[dict]) -> str:
    """How often the start was shipped, and the worst gain of a shipped result."""
    better = [row for row in rows if _ships(row)]
    worst = min((row["real"]["result"] - row["real"]["start"] for row in better), default=0.0)
    return (
        f"The start was shipped {len(rows) - len(better)} of {len(rows)} times; the smallest gain of a shipped result "
        f"on judged queries is {worst:+.2f}."
    )


def draw(rows: list[dict], path: Path) -> None:
    """The gain on pseudo-queries against steps: one panel per start, one line per run."""
    starts = list(dict.fromkeys(row["start"] for row in rows))
    figure = Figure(figsize=(5 * len(starts), 3.6))
    panels = figure.subplots(1, len(starts), squeeze=False, sharey=True)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for panel, start in zip(panels[0], starts, strict=True):
        for row in rows:
            if row["start"] == start:
                steps, values = zip(*row["curve"], strict=True)
                panel.plot(
                    steps, [value - values[0] for value in values], color=f"C{methods.index(row['method'])}", alpha=0.7
                )
        panel.set(title=start, xlabel="steps")
        panel.grid(alpha=0.3)
    lines = [panels[0][0].plot([], [], color=f"C{number}", label=method)[0] for number, method in enumerate(methods)]
    panels[0][0].set_ylabel("nDCG@10 gained on pseudo-queries")
    figure.legend(handles=lines, loc="center left", bbox_to_anchor=(0.91, 0.5))
    with writing(path) as part:
        figure.savefig(part, dpi=110, format="png", bbox_inches="tight")
