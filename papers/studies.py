"""What the studies of `python -m bench` share: flags, known rows, test scores and their averages."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import BadInput
from common.files import read_json
from eval.encode import device_here
from eval.scores import AVERAGE, headline
from eval.sts import STS_TEST
from eval.tasks import Options, Task, tasks_named
from papers import runs

FIGURES = {"sts": "STS avg.", "search": "nDCG@10", "transfer": "transfer avg."}  # of scores files, in tables
SEARCH_LENGTH = 128  # tokens per document and query: longer ones take hours on a CPU
_STUDY = {
    "data_dir": {"default": "corpora", "help": "folder with texts and test sets"},
    "float32": {"action": "store_true", "help": "no bfloat16 autocast, which is slower on CPUs without bfloat16 "
                "instructions; give each precision its own --folder"},
    "seeds": {"nargs": "+", "type": int, "default": [0, 1, 2], "help": "one run each"},
    "collect": {"action": "store_true", "help": "do not train; only collect finished runs"},
    "known": {"help": "earlier --output with rows of deleted runs, which are not trained again"},
    "search": {"nargs": "+", "default": [], "metavar": "NAME", "help": "add nDCG@10 on these sets of DATA_DIR/beir, "
               f"on the first {SEARCH_LENGTH} tokens; also for finished runs"},
    "transfer": {"action": "store_true", "help": "add SentEval's classifiers, mode fasttest; also for finished runs"},
}  # fmt: skip


def add_flags(parser: argparse.ArgumentParser, folder: str, *names: str) -> None:
    """Add the common flags of studies: `--folder` and the given flags of `_STUDY`."""
    parser.add_argument("--folder", default=folder, help="folder for the runs")
    for name in names:
        parser.add_argument(f"--{name}", **_STUDY[name])


def run_flags(args: argparse.Namespace, seed: int | str, steps: int | str, **more: str) -> dict[str, str]:
    """The flags of a study's run: `more` and the common ones; it is saved once, at its end."""
    return {"data_dir": args.data_dir, "seed": str(seed), "max_steps": str(steps), "save_steps": str(steps),
            "bf16": str(not args.float32).lower(), **more}  # fmt: skip


def known_rows(args: argparse.Namespace, *names: str) -> dict[str, dict]:
    """Name -> row of `--known`; BadInput unless every row has the study's `names`."""
    rows = read_json(Path(args.known), "a study's results", "give an earlier --output", list) if args.known else []
    if not all(isinstance(row, dict) and {"name", "seed", *names} <= row.keys() for row in rows):
        raise BadInput(f"--known {args.known}: not results of this study; give an earlier --output")
    return {row["name"]: row for row in rows}


def study_tasks(args: argparse.Namespace) -> dict[str, Sequence[Task]]:
    """Scores file -> the test tasks that a study's flags select."""
    tasks = {"search": runs.search_tasks(args.search)} if args.search else {}
    tasks["sts"] = STS_TEST
    if args.transfer:
        tasks["transfer"] = tasks_named(["transfer"], Options(mode="fasttest", device=device_here()))
    return tasks


def score_study(folder: Path, args: argparse.Namespace, bf16: bool) -> dict[str, dict[str, float]]:
    """Write a run's missing scores files; return all figures, scores file -> task -> value.

    Raises:
        BadInput: `search.json` exists with other sets.
    """
    tasks = study_tasks(args)
    for name, some in tasks.items():
        longest = SEARCH_LENGTH if name == "search" else None
        runs.score(folder, name, some, args.data_dir, bf16=bf16, max_length=longest)
    figures = {name: found for name in FIGURES if (found := figures_in(folder, name))}
    sets = figures.get("search", {}).keys() - {AVERAGE}
    if args.search and sets != {task.name for task in tasks["search"]}:
        raise BadInput(f"{folder / 'search.json'}: has {', '.join(sorted(sets))}, not the sets of --search; remove it")
    return figures


def figures_in(folder: Path, name: str) -> dict[str, float]:
    """Task -> headline figure in a file written by `score`, with their average; empty if the file is missing."""
    path = folder / f"{name}.json"
    rows = read_json(path, "a scores file", "remove it to score again", kind=list) if path.is_file() else []
    figures = {row["task"]: row["value"] for row in headline(rows)}
    return {AVERAGE: next(iter(figures.values())), **figures} if figures else figures  # for a single task, its value


def values(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """A figure, or an average of figures, of each row; none unless all rows have it."""
    figures = [row.get(name) for row in rows]
    found = [figure.get(AVERAGE) if isinstance(figure, Mapping) else figure for figure in figures]
    return [] if None in found else found
