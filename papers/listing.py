"""`python -m papers --list`: what the tables and studies have, and what is still to be run."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from common.files import read_json
from eval.scores import markdown
from papers import study_runs
from papers.plans import plan_of
from papers.runs import Choice, RunPlan, finished
from papers.specification import Table
from papers.study import Study, known_rows

# What has no runs of its own: name, title, and the command that makes it.
_ELSEWHERE = (
    ("consert-1", "Samples and texts of the seven STS sets", "data.prepare sts"),
    ("consert-figure-1", "Cosines of sentence pairs by gold score", "eval.analyse"),
)


def overview(contents: Iterable[Table | Study], choice: Choice, output: Path) -> str:
    """A line per table and study: its rows, and those that are run, can be run or cannot.

    A row is run if a file in `output` has a figure of ours; `cells` are its figures, of all that
    its columns have. Below are the rows that cannot be run, each with its reason.
    """
    titles = ["table", "title", "rows", "run", "cells", "ran on", "runnable", "not runnable"]
    lines, reasons = [titles], []
    for content in contents:
        only: dict[str, str] = {}
        cells = models = "-"
        if isinstance(content, Study):
            rows = len(content.combinations)
            run = len(
                {levels for levels, _ in known_rows(content, output / f"{content.name}.json")}
            )
        else:
            rows = len(content.rows)
            results = results_in(content, output)
            run, filled = len(results), results["filled"].sum()
            cells = f"{filled} of {rows * len(content.columns)}"
            models = ", ".join(sorted({*results["models"]})) or "-"
            for row in content.rows:
                plan = plan_of(content, row, choice)
                if isinstance(plan, str) and row.label not in results.index:
                    only[row.label] = plan
        reasons += [f"{content.name}, {label}: {why}" for label, why in only.items()]
        counts = [str(rows), str(run), cells, models, str(rows - run - len(only)), str(len(only))]
        lines.append([content.name, content.title, *counts])
    for name, title, command in _ELSEWHERE:
        lines.append([name, title, "-", "-", "-", "-", f"python -m {command}", "-"])
    return "\n".join([markdown(lines), *reasons])


def results_in(table: Table, output: Path) -> pd.DataFrame:
    """The rows of a table that have figures of ours, by label.

    Columns: `models` they ran on, `filled` figures, and the `first` row with the same runs.
    """
    figures = []
    for file in [*output.glob(f"{table.file}.json"), *output.glob(f"{table.file}-*.json")]:
        for result in read_json(file, "the results of a paper", kind=list):
            if result.get("table") == table.name and result["ours"] is not None:
                runs = sorted(facts["run"] for facts in result["provenance"].values())
                place = result["label"], result["column"]
                figures.append((*place, result["backbone"], " ".join(runs)))
    frame = pd.DataFrame(figures, columns=["label", "column", "model", "runs"])
    by_label = frame.groupby("label", sort=False)
    results = by_label.agg(filled=("column", "nunique"), runs=("runs", "first"))
    results["models"] = by_label["model"].agg(lambda models: ", ".join(models.unique()))
    labels = results.index.to_series()
    results["first"] = labels.groupby(results["runs"]).transform("first")
    return results


def states(
    content: Table | Study, choice: Choice, path: Path, some: Sequence[str], commands: bool
) -> str:
    """A line per row with its state, the number of missing runs and, if asked for, their commands.

    Rows of a table also say on which model they ran, how many of their cells that filled, and of
    which other row they are the runs. `some` are the levels of a study, see `study_runs.fill`.
    """
    missing: dict[Path, list[str]] = {}
    if isinstance(content, Study):
        lines = [["row", "state"]]
        known, chosen = study_runs.chosen_of(content, choice, path, some)
        for levels in content.chosen(some):
            seeds = choice.seeds if levels in chosen else choice.seeds[:1]
            done = [seed for seed in seeds if (levels, seed) in known]
            plan = study_runs.plan_of(content, levels, choice)
            state = _state(plan, replace(choice, seeds=seeds), done, missing)
            lines.append([", ".join(levels), state])
    else:
        lines = [["row", "state", "ran on", "cells", "the runs of"]]
        results = results_in(content, path.parent)
        for row in content.rows:
            line = [row.label, _state(plan_of(content, row, choice), choice, [], missing)]
            if row.label in results.index:
                result = results.loc[row.label]
                other = "-" if result["first"] == row.label else str(result["first"])
                cells = f"{result['filled']} of {len(content.columns)}"
                lines.append([*line, str(result["models"]), cells, other])
            else:
                lines.append([*line, "-", f"0 of {len(content.columns)}", "-"])
    parts = [f"{content.name}: {content.title}", markdown(lines)]
    parts.append(f"missing runs: {len(missing)} (those shared by rows count once)")
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
        return "off the shelf"
    return f"{len(folders) - len(left)} of {len(folders)} finished"
