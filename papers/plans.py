"""Which run fills a row of a table, or why it cannot be run, and how it differs from the paper's run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common.files import digest
from eval.compare.sides import backbone_of
from eval.tasks import Task
from models.loading import load_config
from papers import runs
from papers.imported import ImportedRun
from papers.runs import CONFIGS, read_once
from papers.specification import Table, TableRow
from training.methods import script_of
from training.provenance import provenance

STAND_IN = "simcse-{}.yaml"  # names the start of a backbone's methods without a first stage
BACKBONE, START = "other backbone", "other start"
SEARCH_LENGTH = 128  # tokens per document and query in studies: longer ones take hours on a CPU
UNKNOWN_START, UNKNOWN_TEXT = "start not compared", "text not compared"


@dataclass(frozen=True)
class Choice:
    """The flags of `python -m papers` that determine the runs."""

    backbone: str | None = None
    seeds: Sequence[int] = (0, 1, 2)
    steps: int | None = None
    model: str | None = None
    stage_one: str | None = None
    data_dir: str = "corpora"
    train_file: str | None = None
    runs: str = "runs/tables"
    bf16: bool = True
    imported: Mapping[str, ImportedRun] = field(default_factory=dict)


@dataclass(frozen=True)
class RunPlan:
    """How to fill a row: train a configuration once per seed, or evaluate a model untrained.

    Attributes:
        name: prefix of the folder names.
        flags: flags of the script, without seed, data and output paths; empty for an untrained model.
        starts_from: the plan whose run with the same seed this one starts from.
        model, pooling: of an untrained model.
        differences: from the paper's runs: backbone, start, text, budget.
    """

    name: str
    flags: dict[str, str]
    starts_from: RunPlan | None
    model: str | None
    pooling: str | None
    differences: tuple[str, ...]

    def folder(self, choice: Choice, seed: int) -> Path:
        """The run's folder: the configuration, a hash of everything that determines its weights, the seed."""
        settings = self.settings() | {"config": self.name, "output_dir": None}
        start = self.starts_from.folder(choice, seed).name if self.starts_from else None
        decisive = dict(sorted(settings.items())) if self.flags else None
        hashed = digest([decisive, start, self.model, self.pooling, choice.bf16])[:10]
        end = f"_seed-{self.flags.get('seed', seed)}" if self.flags else ""
        return Path(choice.runs) / f"{self.name}_{hashed}{end}"

    def settings(self) -> dict:
        """The configuration, overridden by the flags."""
        return runs.settings_of(self.flags) if self.flags else {"model_name_or_path": self.model}

    def folders(self, choice: Choice) -> dict[int, Path]:
        """Seed -> folder; an untrained model only has the first seed."""
        seeds = choice.seeds if self.flags else choice.seeds[:1]
        return {seed: self.folder(choice, seed) for seed in seeds}

    def arguments(self, choice: Choice, seed: int) -> dict[str, str]:
        """All flags of the run, except those that `runs.all_flags` adds."""
        common = {"data_dir": choice.data_dir, "seed": str(seed), "bf16": str(choice.bf16).lower()}
        start = {"model_name_or_path": str(self.starts_from.folder(choice, seed))} if self.starts_from else {}
        return {**common, **self.flags, **start}

    def train(self, choice: Choice, seed: int) -> None:
        """Train the run, after the one it starts from; for an untrained model, write its record."""
        folder = self.folder(choice, seed)
        if self.starts_from and runs.finished(folder) is None:
            self.starts_from.train(choice, seed)
        if self.flags:
            runs.train(folder, self.arguments(choice, seed))
        elif self.finished(choice, seed) is None:
            facts = {"model": self.model, "pooling": self.pooling, **provenance()}
            runs.record_untrained(folder, facts, self.model)

    def score(self, choice: Choice, seed: int, tasks: Mapping[str, Sequence[Task]]) -> None:
        """Write the missing scores files of the run."""
        for name, some in tasks.items():
            longest = SEARCH_LENGTH if name.startswith("search-") else None
            runs.score(self.folder(choice, seed), name, some, choice.data_dir, self.model, pooling=self.pooling,
                       bf16=choice.bf16, max_length=longest)  # fmt: skip

    def finished(self, choice: Choice, seed: int) -> dict[str, Any] | None:
        """The record of the run if it has finished; CheckpointRefused if its input files have changed."""
        folder = self.folder(choice, seed)
        if record := runs.finished(folder):
            runs.check_inputs(folder, record, self.settings(), choice.data_dir)
        return record


def plan_of(table: Table, row: TableRow, choice: Choice) -> RunPlan | str:
    """The plan of a row, or why it cannot be run: only published, no configuration, no model, no text."""
    if row.published_only:
        return f"published only: {row.published_only}"
    backbone = choice.backbone or row.backbone
    if backbone != row.backbone and backbone in {other.backbone for other in table.rows}:
        return f"not selected: the row's backbone is {row.backbone}"
    if row.evaluate:
        return _untrained(row, backbone, choice.model)
    first = None
    if row.after:
        first = _trained(replace(row, config=row.after, overrides={}), backbone, choice, None)
        if isinstance(first, str):
            return first
    return _trained(row, backbone, choice, first)


def _untrained(row: TableRow, backbone: str, model: str | None) -> RunPlan | str:
    plain = _plain_model(backbone)
    model = model or plain
    if not model:
        return _no_model(backbone)
    difference = start_difference(model, plain, backbone, row.backbone)
    name = f"untrained-{backbone}-{row.evaluate}"
    return RunPlan(name, {}, None, model, row.evaluate, (difference,) if difference else ())


def _trained(row: TableRow, backbone: str, choice: Choice, first: RunPlan | None) -> RunPlan | str:
    """The plan of a row's configuration on a backbone, starting from `first` if given; or why there is none."""
    config = config_path(row.config, backbone)
    if not config.is_file():
        return f"no config: configs/{config.name}"
    settings = read_once(str(config))
    flags = {name: value for name, value in row.overrides.items() if settings.get(name) != value}
    if first is None:
        flags |= runs.start_flags(config, flags, choice.model or _plain_model(backbone), choice.stage_one)
    if choice.train_file and script_of(settings["method"]) == "run_unsup.py":
        flags["train_file"] = choice.train_file
    flags |= {"max_steps": str(choice.steps)} if choice.steps else {}
    if first is None and "model_name_or_path" not in settings | flags:
        return _no_model(backbone)
    if "train_file" not in settings | flags:
        return f"no text: configs/{config.name} names none; give --train_file"
    own_differences = run_differences(settings | flags, config_path(row.config, row.backbone), backbone, row.backbone)
    differences = dict.fromkeys((*(first.differences if first else ()), *own_differences))
    return RunPlan(config.stem, flags | {"config": str(config)}, first, None, None, tuple(differences))


def config_path(method: str, backbone: str) -> Path:
    """configs/METHOD-BACKBONE.yaml; a word that ends METHOD and starts BACKBONE appears once (is-bert-base)."""
    last, first = method.rpartition("-")[2], backbone.partition("-")[0]
    method = method.removesuffix(f"-{last}") if last == first else method
    return CONFIGS / f"{method}-{backbone}.yaml"


def _plain_model(backbone: str) -> str | None:
    path = CONFIGS / STAND_IN.format(backbone)
    return read_once(str(path)).get("model_name_or_path") if path.is_file() else None


def _no_model(backbone: str) -> str:
    return f"no model: no configuration names a start for {backbone}; give --model"


def run_differences(settings: Mapping[str, Any], paper: Path, backbone: str, papers: str) -> tuple[str, ...]:
    """How a run differs from the paper's in backbone, start, text and budget, according to the configurations.

    Args:
        settings: of the run; without `model_name_or_path` if it starts from another run of the table.
        paper: the method's configuration for the paper's backbone, which may not exist.
        backbone: of the run.
        papers: the paper's backbone.
    """
    theirs = read_once(str(paper)) if paper.is_file() else {}
    start = settings.get("model_name_or_path", theirs.get("model_name_or_path"))
    differences = [start_difference(start, theirs.get("model_name_or_path"), backbone, papers)]
    if not theirs:
        differences.append(UNKNOWN_TEXT)
    elif theirs.get("train_file", settings["train_file"]) != settings["train_file"]:
        differences.append("other text")
    if settings.get("max_steps", "-1") != theirs.get("max_steps", "-1"):
        differences.append("other budget")
    return tuple(filter(None, differences))


def start_difference(start: str | None, usual: str | None, backbone: str, papers: str) -> str | None:
    """How a starting model differs from the paper's: by size if it is a local folder, otherwise by name.

    `usual` is the start in the configuration, if any; for the rest see `run_differences`.
    """
    if backbone != papers:
        return BACKBONE
    if start and (Path(start) / "config.json").is_file():
        return None if (backbone_of(load_config(start)) or "").startswith(papers) else START
    return None if start == usual else UNKNOWN_START
