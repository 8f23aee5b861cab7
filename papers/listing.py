"""`python -m papers --list`: what the tables and studies have, and what is still to be run."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from common.files import read_json
from eval.scores import markdown
from papers import study_runs
from papers.plans import plan_of
from papers.runs import Choice, RunPlan, finished
from papers.specification import Table
from papers.study import Study, known_rows


def overview(contents: Iterable[Table | Study], choice: Choice, output: Path) -> str:
    """A line per table and study: its rows, and those that are run, can be run or cannot.

    A row is run if a file in `output` has a figure of ours. Below are the rows that cannot be run,
    each with its reason.
    """
    lines, reasons = [["table", "title", "rows", "run", "runnable", "published only"]], []
    for content in contents:
        files = [*output.glob(f"{content.name}.json"), *output.glob(f"{content.name}-*.json")]
        only: dict[str, str] = {}
        if isinstance(content, Study):
            rows = len(content.combinations)
            run = {levels for file in files for levels, _ in known_rows(content, file)}
        else:
            rows = len(content.rows)
            run = _labels_with_figures(files)
            for row in content.rows:
                plan = plan_of(content, row, choice)
                if isinstance(plan, str) and row.label not in run:
                    only[row.label] = plan
        reasons += [f"{content.name}, {label}: {why}" for label, why in only.items()]
        counts = [rows, len(run), rows - len(run) - len(only), len(only)]
        lines.append([content.name, content.title, *map(str, counts)])
    return "\n".join([markdown(lines), *reasons])


def _labels_with_figures(files: Iterable[Path]) -> set[str]:
    labels = set()
    for file in files:
        for result in read_json(file, "a results table", None, list):
            if result["ours"] is not None:
                labels.add(result["label"])
    return labels


def states(
    content: Table | Study, choice: Choice, path: Path, some: Sequence[str], commands: bool
) -> str:
    """A line per row with its state, the number of missing runs and, if asked for, their commands.

    `some` are the levels of a study, see `study_runs.fill`.
    """
    lines: list[list[str]] = [["row", "state"]]
    missing: dict[Path, list[str]] = {}
    if isinstance(content, Study):
        known = known_rows(content, path)
        for levels, seeds in study_runs.seeds_of(content, choice, path, some).items():
            done = [seed for seed in seeds if (levels, seed) in known]
            plan = study_runs.plan_of(content, levels, choice)
            state = _state(plan, replace(choice, seeds=seeds), done, missing)
            lines.append([", ".join(levels), state])
    else:
        for row in content.rows:
            lines.append([row.label, _state(plan_of(content, row, choice), choice, [], missing)])
    parts = [f"{content.name}: {content.title}", markdown(lines)]
    parts.append(f"{len(missing)} runs are missing; runs shared by rows count once.")
    if commands:
        parts += [shlex.join(["python", *words]) for words in missing.values() if words]
    return "\n".join(parts)


def _state(
    plan: RunPlan | str, choice: Choice, done: Sequence[int], missing: dict[Path, list[str]]
) -> str:
    """The state of a row; the commands of its missing runs are added to `missing`, by folder."""
    if isinstance(plan, str):
        return plan
    folders = plan.folders(choice)
    left = [
        seed for seed, folder in folders.items() if seed not in done and finished(folder) is None
    ]
    for seed in left:
        for planned in (plan.starts_from, plan):
            if planned and finished(planned.folder(choice, seed)) is None:
                missing[planned.folder(choice, seed)] = planned.command(choice, seed)
    if not (plan.flags or plan.baseline):
        return "evaluated untrained"
    return f"{len(folders) - len(left)} of {len(folders)} finished"
