"""A study is data: one file in papers/studies. Every combination of its levels is trained once per
seed.

    title                  of a new page
    page                   of results/, if it is that of another study
    seeds, flags           of every run; flags are those of its script, `config` the name of a configuration
    levels                 {factor: {level: flags}}; a list of values is one of levels that set the flag FACTOR
    rows                   [{factor: [levels], flags}]: whose combinations are trained (default: all levels)
    choose                 factor: all its levels have the first seed; the best on STS-B dev has the others too
    search                 sets of DATA_DIR/beir, for the column `search`
    columns, tables        figures of a run, and tables of the page: names of papers/study_page.py
    against, effects       what the tables compare
    adapt                  yes: runs are those of `python -m adapt` on the documents of the last level
    figure                 of the curves of all runs: see `study_page.draw`

Flags may contain `stage_one`, the flags of the run whose model is the initial one (without a
`seed`, one per seed).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

from adapt.run import FACTS, TRAINING, prepare
from common.errors import BadInput, ProjectError
from common.files import digest, read_json, read_yaml
from eval.encode import device_here
from eval.scores import AVERAGE, average, headline
from eval.sts import STS_TEST
from eval.tasks import Options, Task, tasks_named
from papers.runs import CONFIGS, Choice, RunPlan, facts_of, finished, launch, read_once, start_flags
from report.runs import read_log
from training import curves
from training.settings import words_of

logger = logging.getLogger(__name__)
FOLDER = Path(__file__).parent / "studies"
LOGGED = "eval_search_ndcg"
Key = tuple[str, ...]  # the levels of a run in the order of the factors, and its seed
Rows = dict[Key, list[dict[str, Any]]]


@dataclass(frozen=True)
class Study:
    """The content of a study's file."""

    name: str
    title: str
    seeds: Sequence[str]
    levels: Mapping[str, Mapping[str, Mapping[str, Any]]]
    tables: Sequence[str]
    flags: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()
    columns: Sequence[str] = ()
    choose: str | None = None
    search: Sequence[str] = ()
    against: Mapping[str, str] | None = None
    effects: Sequence[Sequence[str]] = ()
    adapt: str | None = None
    figure: Mapping[str, str] | None = None
    page: str | None = None

    @cached_property
    def combinations(self) -> dict[Key, dict[str, Any]]:
        """Levels -> flags."""
        combined = {}
        for row in self.rows or [self.levels]:
            for key in product(*(row[factor] for factor in self.levels)):
                flags = [
                    self.levels[factor][level]
                    for factor, level in zip(self.levels, key, strict=True)
                ]
                combined[key] = {
                    k: v
                    for part in (self.flags, *flags, row.get("flags", {}))
                    for k, v in part.items()
                }
        return combined


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(name: str) -> Study:
    content = read_yaml(FOLDER / f"{name}.yaml", strings=True)
    for factor, levels in content["levels"].items():
        if isinstance(levels, list):
            content["levels"][factor] = {level: {factor: level} for level in levels}
    return Study(name=name, **content)


def known_rows(study: Study, path: Path) -> Rows:
    """The rows in a study's file by levels and seed; none if there is no file."""
    known: Rows = {}
    for row in (
        read_json(path, "a study's results", "give another --output", list)
        if path.is_file()
        else []
    ):
        known.setdefault((*(row[factor] for factor in study.levels), str(row["seed"])), []).append(
            row
        )
    return known


def ordered(study: Study, rows: Rows) -> list[dict]:
    """The rows in the order of the study's combinations."""
    order = list(study.combinations)
    return [
        row
        for key in sorted(rows, key=lambda key: (order.index(key[:-1]), int(key[-1])))
        for row in rows[key]
    ]


def plan_of(study: Study, levels: Key, choice: Choice) -> RunPlan | str:
    """The plan of a combination of levels, or what trains it instead."""
    if study.adapt:
        return "trained by `python -m adapt`"
    given = {"max_steps": choice.steps and str(choice.steps), "train_file": choice.train_file}
    return _plan(
        study.combinations[levels] | {name: value for name, value in given.items() if value}, choice
    )


def _plan(flags: dict[str, Any], choice: Choice) -> RunPlan:
    first, config = flags.pop("stage_one", None), CONFIGS / f"{flags['config']}.yaml"
    start = {} if first else start_flags(config, flags, choice.model, choice.stage_one)
    first = _plan(dict(first), choice) if first else None
    return RunPlan(config.stem, {**start, **flags, "config": str(config)}, first)


def tasks_of(study: Study) -> dict[str, Sequence[Task]]:
    """Scores file of a run -> its test tasks."""
    device = device_here()
    tasks = {
        f"search-{name}": tasks_named(["beir"], Options(beir=(name,), device=device))
        for name in study.search
    }
    tasks |= {"sts": STS_TEST} if "sts" in study.columns else {}
    if "transfer" in study.columns:
        tasks["transfer"] = tasks_named(["transfer"], Options(mode="fasttest", device=device))
    return tasks


def fill(
    study: Study, choice: Choice, path: Path, collect: bool, some: Sequence[str]
) -> list[dict]:
    """All rows of a study in its order; missing runs are trained and scored unless `collect`.

    Rows in the file `path` stay, and their runs are not trained again; a run that is in its folder
    replaces its rows. With `some`, only these levels of the first factor are run.

    Raises:
        BadInput: test data is missing, a flag is invalid, or the rows cannot be compared.
    """
    if not (collect or choice.model):
        raise BadInput(f"{study.name}: give --model, the initial model")
    combinations = [levels for levels in study.combinations if not some or levels[0] in some]
    rows, tasks = known_rows(study, path), tasks_of(study)
    if not collect:
        for task in chain(*tasks.values()):
            task.load(choice.data_dir)  # missing data is an error now, not after the training
    for seed in choice.seeds:
        for levels in combinations:
            key, take = (*levels, str(seed)), _adapted if study.adapt else _trained
            if made := take(study, levels, choice, seed, not (collect or key in rows)):
                scored = {
                    row["name"]: row for row in rows.get(key, [])
                }  # its scores files may be gone
                named = dict(zip(study.levels, levels, strict=True)) | {"seed": seed}
                rows[key] = [{**scored.get(row["name"], {}), **row, **named} for row in made]
        _refuse_mixed(study, rows)
        if study.choose and seed == choice.seeds[0]:
            combinations = _best(combinations, rows, str(seed))
    for seed, levels in product(choice.seeds, combinations if study.columns else []):
        plan = plan_of(study, levels, choice)
        if finished(plan.folder(choice, seed)):
            plan.score(choice, seed, {} if collect else tasks)
            rows[*levels, str(seed)][0] |= scores_in(plan.folder(choice, seed), tasks)
    if not rows:
        raise BadInput(f"{choice.runs}: no finished run of {study.name}; remove --collect to train")
    return ordered(study, rows)


def seeds_of(
    study: Study, choice: Choice, path: Path, some: Sequence[str]
) -> dict[Key, Sequence[int]]:
    """Levels -> seeds that `fill` trains; with `choose`, a level that is not yet the best has the first seed only."""
    combinations = [levels for levels in study.combinations if not some or levels[0] in some]
    if not study.choose:
        return dict.fromkeys(combinations, choice.seeds)
    rows, first = known_rows(study, path), choice.seeds[0]
    made = {
        (*levels, str(first)): _trained(study, levels, choice, first, train=False)
        for levels in combinations
    }
    best = _best(
        combinations, rows | {key: found for key, found in made.items() if found}, str(first)
    )
    return {levels: choice.seeds if levels in best else [first] for levels in combinations}


def _best(combinations: list[Key], rows: Rows, seed: str) -> list[Key]:
    """The combinations with the level of `choose` that is best on STS-B dev, for each level of the first factor."""
    dev = {
        levels: rows[*levels, seed][0]["dev"] for levels in combinations if (*levels, seed) in rows
    }
    first = dict.fromkeys(levels[0] for levels in dev)
    return [max((levels for levels in dev if levels[0] == level), key=dev.get) for level in first]


def _trained(study: Study, levels: Key, choice: Choice, seed: int, train: bool) -> list[dict]:
    """The rows of a run without its test scores: one, or one per evaluation for a stage 1; none without the run."""
    plan = plan_of(study, levels, choice)
    folder = plan.folder(choice, seed)
    if train:
        plan.train(choice, seed)
    if not (record := finished(folder)):
        return []
    shared, evaluations = {"name": folder.name, "facts": facts_of(record)}, evaluations_in(folder)
    if "method" not in plan.settings():
        return [shared | evaluation for evaluation in evaluations]
    if "probe_gradients" in study.flags:
        shared["gradients"] = gradients_in(folder)
    best, gap = record.get("best") or {}, evaluations[-1]["gap"] if evaluations else None
    precision = "bf16" if choice.bf16 else "float32"
    figures = {
        "dev": best.get("value"),
        "best_step": best.get("step"),
        "gap": gap,
        "precision": precision,
    }
    return [shared | figures]


def evaluations_in(folder: Path) -> list[dict]:
    """The auxiliary network's losses and gap at every evaluation in a run's log."""
    history = read_log(folder)
    mlm = {line["step"]: line["eval_mlm"] for line in history if "eval_mlm" in line}
    losses = curves.auxiliary_losses(history)
    return [{**at._asdict(), "gap": at.gap, "mlm": mlm.get(at.step)} for at in losses]


def gradients_in(folder: Path) -> list[dict]:
    """Every evaluation in a run's log: its step, gradient norms, and the loss terms logged at that step."""
    by_step: dict[int, dict] = {}
    for line in read_log(folder):
        by_step.setdefault(line["step"], {}).update(line)
    names = ("step", "contrastive", "aux_mlm", "eval_gradient_contrastive", "eval_gradient_aux_mlm")
    return [{name: line[name] for name in names} for line in by_step.values() if names[-1] in line]


def scores_in(folder: Path, files: Iterable[str]) -> dict[str, dict[str, float]]:
    """Column -> task -> figure, with their average, for the columns whose scores `files` are all in a run's folder."""
    columns: dict[str, list[Path]] = {}
    for file in files:
        columns.setdefault(file.partition("-")[0], []).append(folder / f"{file}.json")
    scores = {}
    for name, paths in columns.items():
        if all(path.is_file() for path in paths):
            rows = [
                row
                for path in paths
                for row in headline(read_json(path, "a scores file", kind=list))
            ]
            values = {row["task"]: row["value"] for row in rows}
            scores[name] = {AVERAGE: values.get(AVERAGE, average(rows)["value"]), **values}
    return scores


def _refuse_mixed(study: Study, rows: Rows) -> None:
    """Raise BadInput unless all runs have the same text, steps, precision and, by level, initial
    model.

    Rows of older versions lack some of these facts.
    """
    seen: dict[str, tuple[str, Any]] = {}
    for key, row in (
        [] if study.adapt else [(key, row) for key, some in rows.items() for row in some]
    ):
        facts, flags = row.get("facts", row), study.combinations[key[:-1]]
        usual = read_once(str(CONFIGS / f"{flags['config']}.yaml")).get("model_name_or_path")
        start = f"start {flags.get('stage_one', 'aux_init' not in flags and usual)}"
        parts = {
            "text": facts.get("text"),
            "steps": facts.get("steps"),
            "precision": row.get("precision"),
        }
        for part, value in (parts | {start: facts.get("start")}).items():
            name, first = (
                seen.setdefault(part, (row["name"], value)) if value is not None else ("", None)
            )
            if first != value:
                differ = f"{name} and {row['name']} differ in {part.split(' ')[0]}"
                raise BadInput(
                    f"{differ}; compare them in two files: give another --output and --runs"
                )


def _adapted(study: Study, levels: Key, choice: Choice, seed: int, train: bool) -> list[dict]:
    """The row of a run of `adapt`; none without the run, or if its method refuses the initial model."""
    flags, beir = study.combinations[levels].copy(), Path(choice.data_dir) / "beir" / levels[-1]
    flags |= {"steps": str(choice.steps)} if choice.steps else {}
    model, first = flags.pop("model", choice.model), flags.pop("stage_one", None)
    hashed = digest([model, first, dict(sorted(flags.items())), levels[-1], choice.bf16])[:10]
    output = Path(choice.runs) / f"adapt-{flags.get('method', 'spans')}_{hashed}_seed-{seed}"
    folder = output.with_name(output.name + TRAINING)
    if train and finished(folder) is None:
        cache = str(Path(choice.runs) / "cache")
        if first:  # on the documents that `adapt` trains on
            documents = prepare([beir / "corpus.jsonl"], seed, cache) / "documents.jsonl"
            files = {
                "model_name_or_path": model,
                "train_file": str(documents.resolve()),
                "cache_dir": cache,
            }
            plan = _plan({**files, **first}, choice)
            plan.train(choice, seed)
            model = plan.folder(choice, seed)
        common = {
            "text": beir / "corpus.jsonl",
            "labels": beir,
            "output": output,
            "seed": seed,
            "cache_dir": cache,
        }
        common |= {"bf16": str(choice.bf16).lower(), "disable_tqdm": "true"}
        words = [str(model), "--train", *words_of(common | flags)]
        try:
            launch("-m", "adapt", *words)
        except ProjectError as error:  # no bag of words from a model without a vocabulary head
            if error.exit_code != BadInput.exit_code:
                raise
            logger.error("%s: refused, skipped", folder)
    if not (record := finished(folder)):
        return []
    facts = read_json(output / FACTS, "the verdict of adapt", "remove the run")
    verdict, row = (
        facts["training"],
        next(row for row in facts["searches"] if row["search"] == "trained model"),
    )
    parts = ("start", "result", "interval", "verdict")
    pseudo, real = ({part: side[part] for part in parts} for side in (verdict, row["real"]))
    curve = [[line["step"], line[LOGGED]] for line in read_log(folder) if LOGGED in line]
    curve = [[0, verdict["dev_of_initial"]], *curve]
    return [
        {
            "name": folder.name,
            "pseudo": pseudo,
            "real": real,
            "facts": facts_of(record),
            "curve": curve,
        }
    ]
