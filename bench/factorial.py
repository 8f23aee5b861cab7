"""What gives InfoCSE its score: where it starts, its projection head, or its auxiliary loss?

The papers never held two of the three equal. Here every start is trained with every head and every weight of the
auxiliary loss (lambda), over several seeds. Finished runs are kept: the command may be stopped and typed again.

Starts: the plain checkpoint; stage 1 as published; stage 1 whose auxiliary network reads the sentence vector (configs
aux-read-mini, see `bench gap`); and, beside them, a plain masked language model trained for as long, which shows what
more text alone gives. The plain starts have no head from stage 1, so theirs is the encoder's top over its embeddings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from bench import gap
from eval.scores import markdown
from eval.sts import STS_TEST
from eval.tasks import Options, tasks_named
from tables import cells
from tables.cells import CONFIGS, facts_of, spread

READ = {"skip_from": "0", "aux_init": "encoder_top"}
STAGE_ONE = {"published": {}, "read": gap.READS, "more text": {"head_layers": "0"}}
STARTS = {"plain": READ, "published": {}, "read": {"skip_from": "0"}, "more text": READ}
FIGURES = {"sts": "STS avg.", "search": "nDCG@10", "transfer": "transfer avg."}
LENGTH = 128  # tokens of a document and a query: a longer one costs a CPU hours
HEADS = {"tanh": "linear_tanh", "batch norm": "batch_norm"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this subject."""
    parser.add_argument("--model", required=True, help="masked language model that everything starts from")
    parser.add_argument("--data_dir", default="corpora")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=["plain", "published", "read"])
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--weights", nargs="+", default=["0", "1e-5", "0.1"], help="of the auxiliary loss")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", default="150", help="of every run of stage 2")
    parser.add_argument("--stage_one_steps", default="300", help="of every run of stage 1")
    parser.add_argument("--learning_rate", default="3e-5")
    parser.add_argument("--folder", default="runs/factorial", help="where the runs go")
    parser.add_argument("--search", nargs="+", default=[], metavar="NAME", help="also nDCG@10 on these sets of "
                        f"DATA_DIR/beir, of the first {LENGTH} tokens")  # fmt: skip
    parser.add_argument("--transfer", action="store_true", help="also SentEval's transfer tasks, mode fasttest")
    parser.add_argument("--float32", action="store_true", help="instead of bfloat16 autocast")
    parser.add_argument("--collect", action="store_true", help="train nothing; only gather what is there")
    parser.add_argument("--known", help="rows of an earlier --output whose runs are gone: they are not trained again")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row a finished run; every cell's first seed is trained before any cell's second."""
    known = {row["name"]: row for row in json.loads(Path(args.known).read_text())} if args.known else {}
    for seed in args.seeds:
        for start in args.starts:
            for head in args.heads:
                for weight in args.weights:
                    name = name_of(args, start, head, weight, seed)
                    if name not in known and (row := _cell(args, name, start, head, weight, seed)):
                        known[name] = row
    return list(known.values())


def name_of(args: argparse.Namespace, start: str, head: str, weight: str, seed: int) -> str:
    """Everything that sets a run apart; also its folder."""
    budget = f"steps-{args.stage_one_steps}-{args.steps}_lr-{args.learning_rate}"
    precision = "_float32" if args.float32 else ""
    return f"{start}_{head}_lambda-{weight}_{budget}_seed-{seed}{precision}".replace(" ", "-")


def _cell(args: argparse.Namespace, name: str, start: str, head: str, weight: str, seed: int) -> dict | None:
    folder = Path(args.folder) / name
    if cells.finished(folder) is None and args.collect:
        return None
    bf16 = str(not args.float32).lower()
    flags = {
        "config": str(CONFIGS / "infocse-mini.yaml"), "model_name_or_path": _start(args, start), "aux_weight": weight,
        "data_dir": args.data_dir, "projection": HEADS[head], "learning_rate": args.learning_rate, "seed": str(seed),
        "max_steps": args.steps, "save_steps": args.steps, "eval_steps": "50", "bf16": bf16, **STARTS[start],
    }  # fmt: skip
    record = cells.trained(folder, flags)
    looked = gap.looks(folder)
    return {
        "name": name, "start": start, "head": head, "lambda": weight, "seed": seed, "dev": record["best"]["value"],
        "best_step": record["best"]["step"], "gap": looked[-1]["gap"] if looked else None,
        **_scores(args, folder), "facts": facts_of(record),
    }  # fmt: skip


def _scores(args: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """File of scores -> task -> value, the average among them; scored now where it is not there."""
    asked = {"sts": (STS_TEST, {})}
    if args.search:
        asked["search"] = tasks_named(["beir"], Options(beir=tuple(args.search))), {"max_length": LENGTH}
    if args.transfer:
        asked["transfer"] = tasks_named(["transfer"], Options(mode="fasttest")), {}
    found = {}
    for name, (tasks, how) in asked.items():
        cells.score(folder, name, tasks, args.data_dir, bf16=not args.float32, **how)
        rows = [row for row in cells.read_rows(folder / f"{name}.json") if row.get("headline", True)]
        found[name] = {row["task"]: row["value"] for row in rows}
    return found


def _start(args: argparse.Namespace, start: str) -> str:
    """The checkpoint of a start; its stage 1 is run now where it is not there."""
    if start not in STAGE_ONE:
        return args.model
    folder = Path(args.folder) / f"stage-1_{start.replace(' ', '-')}_steps-{args.stage_one_steps}"
    gap.pre_trained(folder, {
        "config": str(CONFIGS / "aux-mini.yaml"), "model_name_or_path": args.model, "data_dir": args.data_dir,
        "seed": "0", "max_steps": args.stage_one_steps, "save_steps": "100", "eval_steps": "50",
        "bf16": str(not args.float32).lower(), **STAGE_ONE[start],
    })  # fmt: skip
    return str(folder)


def table(rows: list[dict]) -> str:
    """Means over the seeds, cell by cell, and what each factor gives with the others equal."""
    scored = [name for name in FIGURES if any(name in row for row in rows)]
    body = [["start", "head", "lambda", "STS-B dev", *(FIGURES[name] for name in scored), "gap, nats", "n"]]
    for cell in dict.fromkeys((row["start"], row["head"], row["lambda"]) for row in rows):
        own = [row for row in rows if (row["start"], row["head"], row["lambda"]) == cell]
        averages = [[row[name]["Avg."] for row in own if name in row] for name in scored]
        gaps = [row["gap"] for row in own if row["gap"] is not None]
        figures = [spread(values, "-") for values in ([row["dev"] for row in own], *averages, gaps)]
        body.append([*cell, *figures, str(len(own))])
    return "\n\n".join([markdown(body), *(markdown(effects(rows, name)) for name in scored)])


def effects(rows: list[dict], score: str = "sts") -> list[list[str]]:
    """Each level of each factor against its first: the mean paired difference of averages and its interval.

    A pair are two runs that differ in that factor alone; lambda is also shown at each start. The interval is Student's,
    over the pairs.
    """
    rows = [row for row in rows if score in row]
    body = [["factor", "at", "against", f"{FIGURES[score]}, points", "95 % interval", "pairs"]]
    for factor, at in (("start", None), ("head", None), ("lambda", None), ("lambda", "start")):
        for place in dict.fromkeys(row[at] for row in rows) if at else [None]:
            chosen = [row for row in rows if at is None or row[at] == place]
            levels = list(dict.fromkeys(row[factor] for row in chosen))
            for level in levels[1:]:
                pairs = _differences(chosen, factor, level, levels[0], score)
                body.append([f"{factor} {level}", place or "all", levels[0], *_interval(pairs), str(len(pairs))])
    return body


def _differences(rows: list[dict], factor: str, level: str, first: str, score: str) -> list[float]:
    rest = [name for name in ("start", "head", "lambda", "seed") if name != factor]
    found = {(row[factor], *(row[name] for name in rest)): row[score]["Avg."] for row in rows}
    return [
        value - found[first, *key] for (own, *key), value in found.items() if own == level and (first, *key) in found
    ]


def _interval(differences: Sequence[float]) -> tuple[str, str]:
    if not differences:
        return "-", "-"
    mean = float(np.mean(differences))
    if len(differences) < 2:
        return f"{mean:+.2f}", "-"
    half = float(stats.sem(differences) * stats.t.ppf(0.975, len(differences) - 1))
    return f"{mean:+.2f}", f"{mean - half:+.2f} to {mean + half:+.2f}"
