"""The runs of a study: which are asked for, how they are trained and scored, what is kept."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from common.errors import BadInput
from common.files import read_json
from common.folders import share
from eval.encode import device_here
from eval.scores import AVERAGE, average, headline
from eval.sts import STS_TEST
from eval.tasks import Options, Task, tasks_named
from papers.plans import config_files, start_flags
from papers.runs import Choice, RunPlan, facts_of, finished, load_all, precision, read_once
from papers.study import Levels, Rows, Study, known_rows, ordered
from training.curves import auxiliary_losses, read_log


def plan_of(study: Study, levels: Levels, choice: Choice) -> RunPlan:
    """The plan of a combination of levels."""
    return plan_of_flags(study.combinations[levels], choice)


def plan_of_flags(flags: Mapping[str, Any], choice: Choice) -> RunPlan:
    """The plan of a run with these flags, one of which may be `stage_one`."""
    name, files = flags["config"], config_files(flags["config"])
    given = {name: value for name, value in flags.items() if name != "stage_one"}
    given["config"] = files
    if choice.steps:
        given["max_steps"] = str(choice.steps)
    if choice.train_file:
        given["train_file"] = choice.train_file
    if "stage_one" in flags:
        return RunPlan(name, given, plan_of_flags(flags["stage_one"], choice))
    start = start_flags(files, given, choice.model, choice.stage_one)
    return RunPlan(name, {**start, **given})


def tasks_of(study: Study) -> dict[str, Sequence[Task]]:
    """Scores file of a run -> its test tasks."""
    device = device_here()
    tasks: dict[str, Sequence[Task]] = {}
    for name in study.retrieval:
        tasks[f"retrieval-{name}"] = tasks_named(["beir"], Options(beir=(name,), device=device))
    if "sts" in study.columns:
        tasks["sts"] = STS_TEST
    if "words" in study.columns:
        tasks["words"] = tasks_named(["words"], Options(device=device))
    if "transfer" in study.columns:
        tasks["transfer-fasttest"] = tasks_named(
            ["transfer"], Options(mode="fasttest", device=device)
        )
    return tasks


def fill(
    study: Study, choice: Choice, path: Path, collect: bool, some: Sequence[str]
) -> list[dict[str, Any]]:
    """All rows of a study in its order; missing runs are trained and scored unless `collect`.

    Rows in the file `path` stay, and their runs are not trained again; a run that is in its folder
    replaces its rows. With `some`, only these levels of the first factor are run. While other
    commands are at runs of the study there are no rows: the last one has them.

    Raises:
        BadInput: test data is missing, a flag is invalid, or the rows cannot be compared.
    """
    if not (collect or choice.model):
        raise BadInput(f"{study.name}: give --model, a checkpoint")
    tasks = tasks_of(study)
    if not collect:
        load_all(tasks, choice.data_dir)
    if study.choose and not collect:
        known, first, jobs = known_rows(study, path), choice.seeds[0], {}
        for levels in study.chosen(some):
            if (levels, first) not in known:
                plan = plan_of(study, levels, choice)
                jobs[plan.folder(choice, first).name] = partial(plan.train, choice, first)
        share(jobs)  # waits for other commands' runs too
    rows, asked = chosen_of(study, choice, path, some)
    refuse_mixed(study, rows)
    jobs = {}
    for seed, levels in product(choice.seeds, asked):
        plan = plan_of(study, levels, choice)
        folder = plan.folder(choice, seed)
        if (levels, seed) in rows and not finished(folder):
            _refuse_other(plan, choice, rows[levels, seed][0], path)
        if not collect and ((levels, seed) not in rows or finished(folder)):
            jobs[folder.name] = partial(plan.fill, choice, seed, tasks)
    if share(jobs):
        return []
    for seed, levels in product(choice.seeds, asked):
        _read(study, choice, levels, seed, rows, tasks)
    refuse_mixed(study, rows)
    if not rows:
        raise BadInput(f"{choice.runs}: no finished run of {study.name}; remove --collect to train")
    return ordered(study, rows)


def _refuse_other(plan: RunPlan, choice: Choice, row: Mapping[str, Any], path: Path) -> None:
    """Raise BadInput if a row that is not trained again is of other steps or precision."""
    facts = row.get("facts", row)  # older rows have them themselves
    steps, used = facts.get("steps"), row.get("precision") or facts.get("precision")
    planned = plan.settings().get("max_steps", "-1")
    other = planned != "-1" and steps is not None and str(steps) != planned
    if other or (used and used != precision(choice.bf16)):
        how = f"{steps} steps, {used or 'of unknown precision'}"
        raise BadInput(f"{path}: has {row['name']} with {how}; give another --output")


def chosen_of(
    study: Study, choice: Choice, path: Path, some: Sequence[str]
) -> tuple[Rows, list[Levels]]:
    """The rows that are known, and the combinations that are trained with every seed.

    With `choose`, they are for each level of the first factor the one that is best on STS-B dev
    with the first seed, whose finished runs are read too.
    """
    asked, rows, first = study.chosen(some), known_rows(study, path), choice.seeds[0]
    if not study.choose:
        return rows, asked
    best: dict[str, Levels] = {}
    for levels in asked:
        _read(study, choice, levels, first, rows, {})
        if (levels, first) in rows:
            before = best.setdefault(levels[0], levels)
            if rows[levels, first][0]["dev"] > rows[before, first][0]["dev"]:
                best[levels[0]] = levels
    return rows, list(best.values())


def _read(
    study: Study,
    choice: Choice,
    levels: Levels,
    seed: int,
    rows: Rows,
    tasks: Mapping[str, Sequence[Task]],
) -> None:
    """Put the rows of a run into `rows` if it has finished: one per evaluation of a stage 1.

    Scores that are known of it stay: its scores files may be gone.
    """
    plan = plan_of(study, levels, choice)
    folder = plan.folder(choice, seed)
    record = finished(folder)
    if record is None:
        return
    row: dict[str, Any] = {"name": folder.name, "facts": facts_of(record)}
    evaluations = evaluations_in(folder)
    if "method" in plan.settings():
        best = record.get("best") or {}
        row |= {"dev": best.get("value"), "best_step": best.get("step")}
        row["gap"] = evaluations[-1]["gap"] if evaluations else None
        row["precision"] = precision(choice.bf16)
        evaluations = [{}]
    of_run = {**dict(zip(study.levels, levels, strict=True)), "seed": seed}
    known = {row["name"]: row for row in rows.get((levels, seed), [])}
    found = []
    for evaluation in evaluations:
        made = {**row, **evaluation, **of_run}
        found.append({**known.get(made["name"], {}), **made})
    if found:
        found[0].update(scores_in(folder, tasks))
        rows[levels, seed] = found


def evaluations_in(folder: Path) -> list[dict[str, Any]]:
    """The auxiliary network's losses at every evaluation in a run's log."""
    history = read_log(folder)
    mlm = {line["step"]: line["eval_mlm"] for line in history if "eval_mlm" in line}
    return [
        {**losses._asdict(), "gap": losses.increase, "mlm": mlm.get(losses.step)}
        for losses in auxiliary_losses(history)
    ]


def scores_in(folder: Path, files: Iterable[str]) -> dict[str, dict[str, float]]:
    """Column -> task -> figure, with their average, from the scores `files` in a run's folder.

    A column without all its files is left out.
    """
    columns: dict[str, list[Path]] = {}
    for file in files:
        columns.setdefault(file.partition("-")[0], []).append(folder / f"{file}.json")
    scores = {}
    for name, paths in columns.items():
        if not all(path.is_file() for path in paths):
            continue
        rows = []
        for path in paths:
            rows += headline(read_json(path, "a scores file", kind=list))
        values = {row["task"]: row["value"] for row in rows}
        scores[name] = {AVERAGE: values.get(AVERAGE, average(rows)["value"]), **values}
    return scores


def refuse_mixed(study: Study, rows: Rows) -> None:
    """Raise BadInput unless all runs have the same text, steps and precision.

    Those of one `stage_one`, or of none, must also have the same checkpoint, by seed if each seed
    has a stage 1 of its own; a level may set its own steps. Rows of older versions lack some of
    these facts.
    """
    facts = []
    for (levels, seed), of_run in rows.items():
        flags = study.combinations[levels]
        usual = read_once(*config_files(flags["config"])).get("model_name_or_path")
        start = str(flags.get("stage_one", "aux_init" not in flags and usual))
        if "stage_one" in flags and "seed" not in flags["stage_one"]:
            start += f" of seed {seed}"
        for row in of_run:
            recorded = row.get("facts", row)
            facts += [
                (row["name"], "text", "", recorded.get("text")),
                (row["name"], "steps", str(flags.get("max_steps")), recorded.get("steps")),
                (row["name"], "precision", "", row.get("precision")),
                (row["name"], "start", start, recorded.get("start")),
            ]
    table = pd.DataFrame(facts, columns=["run", "fact", "of", "value"]).dropna()
    for (fact, _), group in table.groupby(["fact", "of"], sort=False):
        others = group[group["value"] != group["value"].iloc[0]]
        if len(others):
            raise BadInput(
                f"{group['run'].iloc[0]} and {others['run'].iloc[0]} differ in {fact}; compare "
                "them in two files: give another --output and --runs"
            )
