"""The missing runs of a table and their estimated hours: `--list` and `--dry_run`."""

import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path

from common.errors import BadInput
from common.files import find_files
from data.lines import numbered_lines
from data.source import Source
from eval.scores import markdown
from papers import runs
from papers.plans import Choice, RunPlan, plan_of
from papers.results import is_imported
from papers.specification import Column, Table
from training.methods import script_of
from training.run_arguments import RunArguments

# Seconds per step if nothing was measured: InfoCSE with bf16 on one CPU core (results/README.md), rounded up.
GUESSES = {"mini": 3.0, "bert-base": 6.0, "roberta-base": 6.0}
GUESS = 20.0


def overview(tables: Sequence[Table], choice: Choice) -> str:
    """One line per table."""
    body = [["table", "title", "rows", "can be run", "missing runs"]]
    for table in tables:
        plans = [plan_of(table, row, choice) for row in table.rows]
        runnable = [plan for plan in plans if isinstance(plan, RunPlan)]
        missing = {folder for plan in runnable for _, _, folder in _to_run(plan, choice, table.columns)}
        body.append([table.name, table.title, str(len(plans)), str(len(runnable)), str(len(missing))])
    return markdown(body)


def listing(tables: Sequence[Table], choice: Choice, commands: bool) -> str:
    """One line per row with state and hours, the total with shared runs counted once, and optionally the commands."""
    return "\n".join(line for table in tables for line in _lines(table, choice, commands))


def _lines(table: Table, choice: Choice, commands: bool) -> list[str]:
    body, hours, command_lines = [["row", "state", "hours to train"]], {}, []
    for row in table.rows:
        plan = plan_of(table, row, choice)
        if isinstance(plan, str):
            body.append([row.label, plan, "-"])
            continue
        missing = _missing(plan, choice, table.columns)
        each, source = expected_hours(plan, choice)
        count = len(plan.folders(choice))
        state = f"{count - len(missing)} of {count} finished" if plan.flags else "evaluated untrained"
        needed = "unknown" if each is None else f"{each * len(missing):.1f}"
        body.append([row.label, state, f"{needed} ({source})"])
        for one, seed, folder in _to_run(plan, choice, table.columns):
            hours[folder] = each if one is plan else expected_hours(one, choice)[0]
            command_lines += [_command(one, choice, seed)] if one.flags else []
    total = f"{len(hours)} runs are missing, {_sum(list(hours.values()))}"
    lines = [f"{table.name}: {table.title}", markdown(body), f"{total}; runs shared by rows count once."]
    return lines + (list(dict.fromkeys(command_lines)) if commands else [])


def _sum(hours: Sequence[float | None]) -> str:
    known = [each for each in hours if each is not None]
    parts = [f"about {sum(known):.1f} hours of training"] if known or not hours else []
    parts += [f"{len(hours) - len(known)} of unknown length"] if len(known) < len(hours) else []
    return " and ".join(parts)


def expected_hours(plan: RunPlan, choice: Choice) -> tuple[float | None, str]:
    """Hours of one run and how they were estimated; None if the number of steps is unknown."""
    if not plan.flags:
        return 0.0, "nothing is trained"
    steps = _steps(plan, choice)
    if steps is None:
        return None, f"{plan.settings()['train_file']}: not found, or a table"
    records = (runs.finished(path.parent) for path in Path(choice.runs).glob(f"{plan.name}_*/run.json"))
    measured = [one["seconds_of_last_start"] / one["steps"] for one in records if one and one.get("steps")]
    backbone = next((name for name in GUESSES if plan.name.endswith(f"-{name}")), None)
    seconds = statistics.median(measured) if measured else GUESSES.get(backbone, GUESS)
    source = f"{seconds:.1f} s per step, {'measured' if measured else 'a guess for one CPU core'}"
    return steps * seconds / 3600, f"{steps} steps, {source}"


def _steps(plan: RunPlan, choice: Choice) -> int | None:
    settings = plan.settings()
    if int(settings.get("max_steps", -1)) > 0:
        return int(settings["max_steps"])
    count = int(settings.get("max_rows", 0)) or _count_lines(settings["train_file"], choice.data_dir)
    if count is None:
        return None
    batch = int(settings.get("per_device_train_batch_size", RunArguments.per_device_train_batch_size))
    return int(count // batch * float(settings.get("num_train_epochs", 1)))


def _count_lines(names: str | list[str], data_dir: str) -> int | None:
    """The lines of a text that are not empty; None if a file is missing, damaged or a table."""
    try:
        files = find_files(names if isinstance(names, list) else [names], data_dir)
        if Source(tuple(files)).kind != "text":
            return None
        return sum(1 for path in files for _, line in numbered_lines(path) if line.strip())
    except BadInput:
        return None


def _missing(plan: RunPlan, choice: Choice, columns: Sequence[Column]) -> dict[int, Path]:
    folders = plan.folders(choice).items()
    return {s: one for s, one in folders if runs.finished(one) is None and not is_imported(one, choice, columns)}


def _to_run(plan: RunPlan, choice: Choice, columns: Sequence[Column]) -> list[tuple[RunPlan, int, Path]]:
    """The missing runs of a row, with seed and folder, each after the run that it starts from."""
    missing, first = _missing(plan, choice, columns), plan.starts_from
    starts = [(first, seed, first.folder(choice, seed)) for seed in missing] if first else []
    missing_starts = [one for one in starts if runs.finished(one[2]) is None]
    return [*missing_starts, *((plan, seed, folder) for seed, folder in missing.items())]


def _command(plan: RunPlan, choice: Choice, seed: int) -> str:
    flags = runs.all_flags(plan.folder(choice, seed), plan.arguments(choice, seed))
    script = script_of(plan.settings()["method"])
    return f"python {script} {shlex.join(word for name, value in flags.items() for word in (f'--{name}', value))}"
