"""`python -m bench factorial`: does InfoCSE's score come from its start, its projection head or its auxiliary loss?

The papers never vary one of the three alone. Here every start is trained with every head and every weight of the
auxiliary loss (lambda), over several seeds. Finished runs are kept: run the command again to resume.

Starts: the plain checkpoint; stage 1 as published; stage 1 whose auxiliary network reads the sentence vector (config
aux-read-mini, see `bench gap`); and a plain masked language model trained as long as stage 1, the control for more
text. Starts without an auxiliary head get a copy of the encoder's top layers, which reads the embeddings.
"""

import argparse
from collections.abc import Sequence
from itertools import chain, product
from pathlib import Path
from statistics import fmean

from scipy import stats

from common.errors import BadInput
from eval.scores import AVERAGE, markdown
from papers import gap, runs, studies
from papers.page import mean_and_std
from papers.runs import CONFIGS, facts_of
from papers.studies import FIGURES

READ = {"skip_from": "0", "aux_init": "encoder_top"}
STAGE_ONE = {"published": {}, "read": gap.READS, "more text": {"head_layers": "0"}}
STARTS = {"plain": READ, "published": {}, "read": {"skip_from": "0"}, "more text": READ}
PARTS = ("start", "head", "lambda", "seed")  # of a row's name
HEADS = {"tanh": "linear_tanh", "batch norm": "batch_norm"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="masked language model to start from")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=["plain", "published", "read"],
                        help="checkpoints to start from")  # fmt: skip
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS), help="projection heads")
    parser.add_argument("--weights", nargs="+", default=["0", "1e-5", "0.1"], help="weights of the auxiliary loss")
    parser.add_argument("--steps", default="150", help="steps per run of stage 2")
    parser.add_argument("--stage_one_steps", default="300", help="steps per run of stage 1")
    parser.add_argument("--learning_rate", default="3e-5", help="learning rate of stage 2")
    studies.add_flags(parser, "runs/factorial", *"data_dir seeds search transfer float32 collect known".split())


def rows(args: argparse.Namespace) -> list[dict]:
    """One row per finished run; the first seed of every combination is trained before the second of any."""
    if not args.collect:
        runs.refuse_missing(chain(*studies.study_tasks(args).values()), args.data_dir)
    known = studies.known_rows(args, "start", "facts", "head", "lambda", "dev", "gap")
    others = [name for name, row in known.items() if name != name_of(args, *(row[part] for part in PARTS))]
    if others:
        raise BadInput(f"--known {args.known}: {others[0]} has other steps, another learning rate or precision")
    for seed, *combination in product(args.seeds, args.starts, args.heads, args.weights):
        name = name_of(args, *combination, seed)
        if name not in known and (row := _row(args, name, *combination, seed)):
            known[name] = row
    if not known:
        raise BadInput(f"{args.folder}: no finished run; remove --collect to train")
    searched = {", ".join(sorted(row["search"])) for row in known.values() if "search" in row}
    if len(searched) > 1:
        raise BadInput(f"{args.folder}: runs searched different sets: {'; '.join(searched)}; score all on the same")
    return list(known.values())


def name_of(args: argparse.Namespace, start: str, head: str, weight: str, seed: int) -> str:
    """The name of a run and its folder, from everything that distinguishes it."""
    budget = f"steps-{args.stage_one_steps}-{args.steps}_lr-{args.learning_rate}"
    return f"{start}_{head}_lambda-{weight}_{budget}_seed-{seed}{'_float32' * args.float32}".replace(" ", "-")


def _row(args: argparse.Namespace, name: str, start: str, head: str, weight: str, seed: int) -> dict | None:
    folder = Path(args.folder) / name
    if runs.finished(folder) is None and args.collect:
        return None
    record = runs.train(folder, studies.run_flags(
        args, seed, args.steps, config=str(CONFIGS / "infocse-mini.yaml"), model_name_or_path=_start(args, start),
        aux_weight=weight, projection=HEADS[head], learning_rate=args.learning_rate, eval_steps="50", **STARTS[start],
    ))  # fmt: skip
    evaluations = gap.evaluations(folder)
    return {
        "name": name, "start": start, "head": head, "lambda": weight, "seed": seed, "dev": record["best"]["value"],
        "best_step": record["best"]["step"], "gap": evaluations[-1]["gap"] if evaluations else None,
        **studies.score_study(folder, args, not args.float32), "facts": facts_of(record),
    }  # fmt: skip


def _start(args: argparse.Namespace, start: str) -> str:
    """The checkpoint of a start; a missing stage 1 is trained unless `--collect` is given."""
    if start not in STAGE_ONE:
        return args.model
    name = f"stage-1_{start.replace(' ', '-')}_steps-{args.stage_one_steps}{'_float32' * args.float32}"
    folder = Path(args.folder) / name
    if args.collect and runs.finished(folder) is None:
        return str(folder)
    gap.pretrain(args, folder, "0", args.stage_one_steps, eval_steps="50", save_steps="100", **STAGE_ONE[start])
    return str(folder)


def table(rows: list[dict]) -> str:
    """Means over seeds for each combination, and the effect of each factor with the other factors fixed."""
    starts, heads = list(STARTS), list(HEADS)
    rows = sorted(rows, key=lambda row: (starts.index(row["start"]), heads.index(row["head"]), float(row["lambda"])))
    scored = [name for name in FIGURES if any(name in row for row in rows)]
    body = [["start", "head", "lambda", "STS-B dev", *(FIGURES[name] for name in scored), "gap, nats", "n"]]
    for combination in dict.fromkeys((row["start"], row["head"], row["lambda"]) for row in rows):
        group = [row for row in rows if (row["start"], row["head"], row["lambda"]) == combination]
        averages = [studies.values(group, name) for name in scored]
        gaps = [row["gap"] for row in group if row["gap"] is not None]
        figures = [mean_and_std(values, "-") for values in ([row["dev"] for row in group], *averages, gaps)]
        body.append([*combination, *figures, str(len(group))])
    return "\n\n".join([markdown(body), *(markdown(effects(rows, name)) for name in scored)])


def effects(rows: list[dict], score: str = "sts") -> list[list[str]]:
    """Each level of a factor against its first level: mean paired difference of averages, and its interval.

    The two runs of a pair differ only in that factor. Lambda is also shown per start, and per start and head. Pairs of
    one seed are averaged first, since they are not independent; the interval is Student's t interval over the seeds.
    It does not cover the seeds of stage 1, which each start has once.
    """
    rows, seen = [row for row in rows if score in row], set()
    body = [["factor", "at", "against", f"{FIGURES[score]}, points", "95 % interval", "seeds"]]
    for factor, *at in (("start",), ("head",), ("lambda",), ("lambda", "start"), ("lambda", "start", "head")):
        for place in dict.fromkeys(tuple(row[name] for name in at) for row in rows):
            chosen = [row for row in rows if tuple(row[name] for name in at) == place]
            levels = list(dict.fromkeys(row[factor] for row in chosen))
            compared = factor, *map(id, chosen)
            if compared in seen:  # at a wider place, which has only these runs
                continue
            seen.add(compared)
            for level in levels[1:]:
                by_seed = _differences(chosen, factor, level, levels[0], score)
                where = ", ".join(place) or "all"
                body.append([f"{factor} {level}", where, levels[0], *_interval(by_seed), str(len(by_seed))])
    return body


def _differences(rows: list[dict], factor: str, level: str, first: str, score: str) -> list[float]:
    """The mean difference over the pairs of each seed."""
    rest = [name for name in PARTS if name != factor]  # the seed last
    averages = {(row[factor], *(row[name] for name in rest)): row[score][AVERAGE] for row in rows}
    by_seed: dict[int, list[float]] = {}
    for (one, *key), value in averages.items():
        if one == level and (first, *key) in averages:
            by_seed.setdefault(key[-1], []).append(value - averages[first, *key])
    return [fmean(differences) for differences in by_seed.values()]


def _interval(differences: Sequence[float]) -> tuple[str, str]:
    if not differences:
        return "-", "-"
    mean = fmean(differences)
    if len(differences) < 2:
        return f"{mean:+.2f}", "-"
    half = float(stats.sem(differences) * stats.t.ppf(0.975, len(differences) - 1))
    return f"{mean:+.2f}", f"{mean - half:+.2f} to {mean + half:+.2f}"
