"""What a table would run, and about how long: `--list` and `--dry_run`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from common.errors import BadInput
from common.files import find_files
from data.text import reader_of
from eval.scores import markdown
from tables import cells
from tables.plans import Cell, Choice, planned
from tables.results import is_known
from tables.specification import Column, Table
from training.registry import script_of

# Seconds a step where nothing was measured: InfoCSE's with bf16 on one CPU core (results/README.md), rounded up.
GUESSES = {"mini": 3.0, "bert-base": 6.0, "roberta-base": 6.0}
GUESS = 20.0


def overview(tables: Sequence[Table], choice: Choice) -> str:
    """A line a table."""
    body = [["table", "title", "rows", "can be run", "missing runs"]]
    for table in tables:
        plans = [planned(table, row, choice) for row in table.rows]
        runnable = [plan for plan in plans if isinstance(plan, Cell)]
        missing = {folder for cell in runnable for _, _, folder in _to_run(cell, choice, table.columns)}
        body.append([table.name, table.title, str(len(plans)), str(len(runnable)), str(len(missing))])
    return markdown(body)


def listing(tables: Sequence[Table], choice: Choice, commands: bool) -> str:
    """A line a row with its state and hours, the sum without what rows share, and the commands where asked for."""
    parts = []
    for table in tables:
        body, hours, asked = [["row", "state", "hours to train"]], {}, []
        for row in table.rows:
            plan = planned(table, row, choice)
            if isinstance(plan, str):
                body.append([row.label, plan, "-"])
                continue
            missing = _missing(plan, choice, table.columns)
            each, source = expected_hours(plan, choice)
            body.append([row.label, _state(plan, missing, choice), _shown(each, len(missing), source)])
            lacking = _to_run(plan, choice, table.columns)
            hours |= {folder: each if cell is plan else expected_hours(cell, choice)[0] for cell, _, folder in lacking}
            asked += [_command(cell, choice, seed) for cell, seed, _ in lacking if cell.flags]
        known = [each for each in hours.values() if each is not None]
        parts_of = [f"about {sum(known):.1f} hours of training"] if known or not hours else []
        parts_of += [f"{len(hours) - len(known)} of unknown length"] if len(known) < len(hours) else []
        total = f"{len(hours)} runs are missing, {' and '.join(parts_of)}"
        parts += [f"{table.name}: {table.title}", markdown(body), f"{total}; runs that rows share count once."]
        parts += dict.fromkeys(asked) if commands else []
    return "\n".join(parts)


def expected_hours(cell: Cell, choice: Choice) -> tuple[float | None, str]:
    """Hours of one run and where they come from; None where the number of steps is unknown."""
    if not cell.flags:
        return 0.0, "nothing is trained"
    steps = _steps(cell, choice)
    if steps is None:
        return None, "the text is not there"
    records = (cells.finished(path.parent) for path in Path(choice.runs).glob(f"{cell.name}_*/run.json"))
    measured = [one["seconds_of_last_start"] / one["steps"] for one in records if one and one.get("steps")]
    backbone = next((name for name in GUESSES if cell.name.endswith(f"-{name}")), None)
    seconds = statistics.median(measured) if measured else GUESSES.get(backbone, GUESS)
    source = f"{seconds:.1f} s a step, {'measured' if measured else 'a guess for one CPU core'}"
    return steps * seconds / 3600, f"{steps} steps, {source}"


def _steps(cell: Cell, choice: Choice) -> int | None:
    settings = cell.effective()
    if int(settings.get("max_steps", -1)) > 0:
        return int(settings["max_steps"])
    named = settings["train_file"]
    try:
        files = find_files(named if isinstance(named, list) else [named], choice.data_dir)
    except BadInput:
        return None
    labelled = script_of(settings["method"]) == "run_sup.py"
    reader = reader_of(files, None if labelled else int(settings.get("columns", 1)))
    count = int(settings.get("max_rows", 0)) or sum(1 for _ in reader)
    return int(count // int(settings["per_device_train_batch_size"]) * float(settings.get("num_train_epochs", 1)))


def _missing(cell: Cell, choice: Choice, columns: Sequence[Column]) -> dict[int, Path]:
    here = cell.folders(choice).items()
    return {s: one for s, one in here if cells.finished(one) is None and not is_known(one, choice, columns)}


def _to_run(cell: Cell, choice: Choice, columns: Sequence[Column]) -> list[tuple[Cell, int, Path]]:
    """The runs that a row lacks, with their seeds and folders; what they start from before them."""
    missing = _missing(cell, choice, columns)
    starts = [(cell.first, seed, cell.first.folder(choice, seed)) for seed in missing] if cell.first else []
    lacking = [one for one in starts if cells.finished(one[2]) is None]
    return [*lacking, *((cell, seed, folder) for seed, folder in missing.items())]


def _state(cell: Cell, missing: dict[int, Path], choice: Choice) -> str:
    count = len(cell.folders(choice))
    return f"{count - len(missing)} of {count} finished" if cell.flags else "evaluated as it is"


def _shown(each: float | None, count: int, source: str) -> str:
    return f"unknown ({source})" if each is None else f"{each * count:.1f} ({source})"


def _command(cell: Cell, choice: Choice, seed: int) -> str:
    flags = cells.all_flags(cell.folder(choice, seed), cell.arguments(choice, seed))
    script = script_of(cell.effective()["method"])
    return f"python {script} " + " ".join(f"--{name} {value}" for name, value in flags.items())
