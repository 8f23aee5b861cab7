"""`python -m bench own_text`: does training on documents without labels make search in them better?

Every start is adapted to every set's documents by every method with `python -m adapt`, over seeds. Steps, mixture and
verdict come from pseudo-queries; the judged queries of the set only say afterwards what was gained. Finished runs are
kept: the command may be stopped and typed again.
"""

import argparse
import json
import logging
import sys
from itertools import product
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure
from scipy.stats import spearmanr

from common.errors import BadInput, ProjectError
from common.files import read_json, writing
from common.flags import positive
from eval.dev import BETTER
from eval.scores import markdown
from papers.page import mean_and_std
from papers.runs import add_flags, as_words, facts_of, known_rows
from training.record import RUN_FILE, read_run
from training.signals import run_to_its_end

logger = logging.getLogger(__name__)
LOGGED = "eval_search_ndcg"
METHODS: dict[str, dict[str, str]] = {
    "spans": {},
    "spans, words": {"bow_weight": "0.1"},
    "tsdae": {"method": "tsdae"},
    "simcse": {"method": "simcse"},
    # Half of the others' steps: one costs three of spans. The setting is that of configs/infocse-read-mini.yaml.
    "infocse": {"method": "infocse", "skip_from": "0", "aux_init": "encoder_top", "aux_weight": "0.1", "steps": "30"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", required=True, help="starts: encoders with or without a pooling")
    parser.add_argument("--names", nargs="+", help="what the table calls them (default: their folders)")
    parser.add_argument("--sets", nargs="+", default=["med", "cranfield", "cisi", "cacm", "npl", "scifact"],
                        help="folders below DATA_DIR/beir")  # fmt: skip
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", type=positive, help="of every run (default: configs/adapt.yaml); another number "
                        "wants another --folder")  # fmt: skip
    add_flags(parser, "runs/own_text", *"data_dir seeds float32 collect known".split())
    parser.add_argument("--figure", help="draw the gain on pseudo-queries against steps into this PNG file")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row a finished run."""
    names = args.names or [Path(model).name for model in args.models]
    if len(names) != len(args.models) or len({*names}) < len(names):
        raise BadInput(f"--names {' '.join(names)}: another name for each of --models is needed")
    known = known_rows(args)
    for seed, (name, model), method, corpus in product(
        args.seeds, zip(names, args.models, strict=True), args.methods, args.sets
    ):
        run = f"{name}_{method}_{corpus}_seed-{seed}".replace(", ", "-")
        if run not in known and (row := _row(args, Path(args.folder) / run, model, method, corpus, seed)):
            known[run] = {"name": run, "start": name, "method": method, "set": corpus, "seed": seed, **row}
    if not known:
        raise BadInput(f"{args.folder}: no finished run; leave --collect out to train")
    if args.figure:
        draw(list(known.values()), Path(args.figure))
    return list(known.values())


def _row(args: argparse.Namespace, folder: Path, model: str, method: str, corpus: str, seed: int) -> dict | None:
    if not args.collect:
        beir = Path(args.data_dir) / "beir" / corpus
        flags = {"text": beir / "corpus.jsonl", "labels": beir, "output": folder, "seed": seed, "use_cpu": "true",
                 "keep_start": "false", "bf16": str(not args.float32).lower(), "disable_tqdm": "true",
                 "cache_dir": Path(args.folder) / "cache", **METHODS[method]}  # fmt: skip
        flags |= {"steps": args.steps} if args.steps else {}
        code = run_to_its_end([sys.executable, "-m", "adapt", model, *as_words(flags)], stdout=sys.stderr)
        if code == BadInput.exit_code:  # it has said why: a start without a head for words has no bag of words
            logger.error("%s: refused, left out", folder)
        elif code:
            raise ProjectError(f"adapt to {corpus} with {method} stopped with {code}; the same command goes on there")
    if not (folder / "adapt.json").is_file() or not (folder / RUN_FILE).is_file():
        return None
    found, record = read_json(folder / "adapt.json", "the verdict of adapt", "remove the run"), read_run(folder)
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "pseudo": {name: found[name] for name in ("start", "result", "interval", "verdict")},
        "real": {name: found["labels"][name] for name in ("start", "result", "interval", "verdict")},
        "start_share": found["start_share"],
        "curve": [[0, found["dev_by_start_share"]["1.0"]]]
        + [[line["step"], line[LOGGED]] for line in lines if LOGGED in line],
        "facts": facts_of(record),
    }


def table(rows: list[dict]) -> str:
    """nDCG@10 on judged queries by start and method, the verdicts run by run, and how far pseudo-queries are right."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    body = [["start", "method", *sets, "mean gain", "n"]]
    for start in dict.fromkeys(row["start"] for row in rows):
        own = [row for row in rows if row["start"] == start]
        before = {row["set"]: row["real"]["start"] for row in own}
        body.append([start, "as it is", *(f"{before[name]:.2f}" if name in before else "-" for name in sets), "", ""])
        for method in dict.fromkeys(row["method"] for row in own):
            body.append(_line([row for row in own if row["method"] == method], start, method, sets))
    return "\n\n".join([markdown(body), markdown(verdicts(rows)), markdown(orders(rows)), shipped(rows)])


def _line(rows: list[dict], start: str, method: str, sets: list[str]) -> list[str]:
    results = {name: [row["real"]["result"] for row in rows if row["set"] == name] for name in sets}
    gains = [row["real"]["result"] - row["real"]["start"] for row in rows]
    cells = [mean_and_std(values, "-") for values in results.values()]
    return [start, method, *cells, f"{fmean(gains):+.2f}", str(len({row["seed"] for row in rows}))]


def verdicts(rows: list[dict]) -> list[list[str]]:
    """A line for each run: gain and 95 % interval on pseudo-queries and on judged ones, and what `adapt` would ship."""
    body = [["start", "method", "set", "seed", "pseudo-queries", "judged queries", "share of the start", "shipped"]]
    for row in rows:
        gains = [
            f"{one['result'] - one['start']:+.2f} ({one['interval'][0]:+.2f} to {one['interval'][1]:+.2f})"
            for one in (row["pseudo"], row["real"])
        ]
        sent = "result" if row["pseudo"]["verdict"] == BETTER else "start"
        body.append([row["start"], row["method"], row["set"], str(row["seed"]), *gains, str(row["start_share"]), sent])
    return body


def orders(rows: list[dict]) -> list[list[str]]:
    """How far pseudo-queries order the candidates of a set as its judged queries do: Spearman's rank correlation.

    The candidates are all starts as they are and every result that one split of the set has judged.
    """
    body = [["set", "seed", "candidates", "rank correlation of pseudo-queries and judged ones"]]
    found = []
    for corpus, seed in dict.fromkeys((row["set"], row["seed"]) for row in rows):
        own = [row for row in rows if (row["set"], row["seed"]) == (corpus, seed)]
        pairs = list({row["start"]: (row["pseudo"]["start"], row["real"]["start"]) for row in own}.values())
        pairs += [(row["pseudo"]["result"], row["real"]["result"]) for row in own]
        if min(len(set(side)) for side in zip(*pairs, strict=True)) > 2:
            found.append(float(spearmanr(*zip(*pairs, strict=True)).statistic))
            body.append([corpus, str(seed), str(len(pairs)), f"{found[-1]:.2f}"])
    return [*body, ["mean", "", "", f"{fmean(found):.2f}" if found else "not measured: fewer than three candidates"]]


def shipped(rows: list[dict]) -> str:
    """How often the start was shipped, and the largest loss of what was shipped."""
    better = [row for row in rows if row["pseudo"]["verdict"] == BETTER]
    worst = min((row["real"]["result"] - row["real"]["start"] for row in better), default=0.0)
    return (
        f"The start was shipped {len(rows) - len(better)} of {len(rows)} times; the least gain of a shipped result on "
        f"judged queries is {worst:+.2f}."
    )


def draw(rows: list[dict], path: Path) -> None:
    """The gain on pseudo-queries against steps: a panel a start, a line a run."""
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
        panel.set(title=start, xlabel="steps", ylabel="nDCG@10 gained on pseudo-queries")
        panel.grid(alpha=0.3)
    for number, method in enumerate(methods):
        panels[0][0].plot([], [], color=f"C{number}", label=method)
    panels[0][0].legend()
    with writing(path) as part:
        figure.savefig(part, dpi=110, format="png", bbox_inches="tight")
