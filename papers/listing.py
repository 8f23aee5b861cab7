"""The missing runs of tables and studies: `--list` and `--dry_run`."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from eval.scores import markdown
from papers import runs, study
from papers.plans import Choice, RunPlan, plan_of
from papers.specification import Table
from papers.study import Study
from training.methods import script_of

Listed = tuple[Table | Study, Choice, set]  # the last: what `--output` has of runs that are not here


def overview(contents: Sequence[Listed]) -> str:
    return markdown([["table", "title"], *([content.name, content.title] for content, _, _ in contents)])


def listing(contents: Sequence[Listed], commands: bool) -> str:
    """One line per row with its state, the number of missing runs, and optionally their commands."""
    return "\n".join(line for content in contents for line in _lines(*content, commands))


def _lines(content: Table | Study, choice: Choice, known: set, commands: bool) -> list[str]:
    body, missing = [["row", "state"]], {}
    for label, plan, keys in _plans(content, choice):
        state = plan
        if isinstance(plan, RunPlan):
            of_row = list(_missing(plan, keys, choice, known))
            left, count = sum(one is plan for one, _, _ in of_row), len(plan.folders(choice))
            state = f"{count - left} of {count} finished" if plan.flags else "evaluated untrained"
            missing |= {folder: _command(one, choice, seed) for one, seed, folder in of_row}
        body.append([label, state])
    lines = [f"{content.name}: {content.title}", markdown(body)]
    lines.append(f"{len(missing)} runs are missing; runs shared by rows count once.")
    return [*lines, *(filter(None, missing.values()) if commands else ())]


def _plans(content: Table | Study, choice: Choice) -> Iterator[tuple[str, RunPlan | str, dict]]:
    """The label of each row, its plan, and what `known` has for each seed of the row."""
    if isinstance(content, Study):
        for levels in content.combinations:
            keys = {seed: (*levels, str(seed)) for seed in choice.seeds}
            yield ", ".join(levels), study.plan_of(content, levels, choice), keys
        return
    for row in content.rows:
        plan = plan_of(content, row, choice)
        folders = plan.folders(choice) if isinstance(plan, RunPlan) else {}
        yield row.label, plan, {seed: folder.name for seed, folder in folders.items()}


def _missing(plan: RunPlan, keys: dict, choice: Choice, known: set) -> Iterator[tuple[RunPlan, int, Path]]:
    """The missing runs of a row, with seed and folder, each after the run that it starts from."""
    for seed, folder in plan.folders(choice).items():
        if keys[seed] not in known and runs.finished(folder) is None:
            first = plan.starts_from
            if first and runs.finished(first.folder(choice, seed)) is None:
                yield first, seed, first.folder(choice, seed)
            yield plan, seed, folder


def _command(plan: RunPlan, choice: Choice, seed: int) -> str:
    """The command of a run; empty for an untrained model."""
    if not plan.flags:
        return ""
    flags = runs.all_flags(plan.folder(choice, seed), plan.arguments(choice, seed))
    words = shlex.join(word for name, value in flags.items() for word in (f"--{name}", value))
    script = script_of(plan.settings().get("method"))
    return f"python {script} {words}"
