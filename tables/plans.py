"""From a row of a table and what the user chose to the run that fills it, or to the words why there is none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.command_line import read_config
from tables import cells, differences
from tables.cells import CONFIGS
from tables.known import Known
from tables.same import check_model, check_run
from tables.specification import Row, Table
from training.provenance import provenance
from training.registry import script_of

STAND_IN = "simcse-{}.yaml"  # the configuration that says where a backbone's methods without a first stage start


@dataclass(frozen=True)
class Choice:
    """The flags of `python -m tables` that decide what is run."""

    backbone: str | None = None
    seeds: Sequence[int] = (0, 1, 2)
    steps: int | None = None
    model: str | None = None
    stage_one: str | None = None
    data_dir: str = "corpora"
    train_file: str | None = None
    runs: str = "runs/tables"
    bf16: bool = True
    known: Mapping[str, Known] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """What fills a row: a configuration trained with every seed, or an untrained model evaluated as it is.

    Attributes:
        name: begins the name of its folders.
        flags: of its script, seed and paths of data and output aside; none for an untrained model.
        first: the cell whose run, with the same seed, this one starts from.
        model, pooling: of an untrained model.
        differs: what sets the runs apart from the paper's: other backbone, start, text, budget.
    """

    name: str
    flags: dict[str, str]
    first: Cell | None
    model: str | None
    pooling: str | None
    differs: tuple[str, ...]

    def folder(self, choice: Choice, seed: int) -> Path:
        """Where the run lies: the configuration, a hash of everything that decides its weights, the seed."""
        settings = self.effective() | {"config": self.name, "output_dir": None}
        start = self.first.folder(choice, seed).name if self.first else None
        content = [settings if self.flags else None, start, self.model, self.pooling, choice.bf16]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
        end = f"_seed-{seed}" if self.flags else ""
        return Path(choice.runs) / f"{self.name}_{digest}{end}"

    def effective(self) -> dict:
        """The configuration with the flags that win over it."""
        return {**read_config(self.flags["config"]), **self.flags} if self.flags else {}

    def folders(self, choice: Choice) -> dict[int, Path]:
        """One folder a seed; an untrained model has one."""
        seeds = choice.seeds if self.flags else choice.seeds[:1]
        return {seed: self.folder(choice, seed) for seed in seeds}

    def arguments(self, choice: Choice, seed: int) -> dict[str, str]:
        """All flags of the run but those that `cells.trained` adds."""
        own = {"data_dir": choice.data_dir, "seed": str(seed), "bf16": str(choice.bf16).lower()}
        start = {"model_name_or_path": str(self.first.folder(choice, seed))} if self.first else {}
        return {**self.flags, **own, **start}

    def fill(self, choice: Choice, seed: int) -> None:
        """Train, what it starts from before it, or record that nothing is trained."""
        folder = self.folder(choice, seed)
        if self.first and cells.finished(folder) is None:
            self.first.fill(choice, seed)
        if self.flags:
            cells.trained(folder, self.arguments(choice, seed))
        elif self.finished(choice, seed) is None:
            cells.untrained(folder, {"model": self.model, "pooling": self.pooling, **provenance()}, self.model)

    def finished(self, choice: Choice, seed: int) -> dict[str, Any] | None:
        """The record of the cell's run if it has finished; CheckpointRefused if it is of other settings or files."""
        folder = self.folder(choice, seed)
        record = cells.finished(folder)
        if record is not None and self.flags:
            check_run(folder, record, cells.command_of(folder, self.arguments(choice, seed)))
        elif record is not None:
            check_model(folder, record, self.model)
        return record


def planned(table: Table, row: Row, choice: Choice) -> Cell | str:
    """The cell of a row; or why there is none: published only, no configuration, nothing to start from, no text."""
    if row.published_only:
        return f"published only: {row.published_only}"
    backbone = choice.backbone or row.backbone
    if backbone != row.backbone and backbone in {other.backbone for other in table.rows}:
        return f"not asked for: the row is of {row.backbone}"
    model = choice.model or _plain_model(backbone)
    if row.evaluate:
        differs = differences.of_start(model, _plain_model(backbone), backbone, row.backbone)
        name, words = f"untrained-{backbone}-{row.evaluate}", (differs,) if differs else ()
        return Cell(name, {}, None, model, row.evaluate, words) if model else _no_model(backbone)
    first = None
    if row.after:
        first = _trained(row.after, {}, backbone, row.backbone, model, choice, None)
        if isinstance(first, str):
            return first
    return _trained(row.config, row.overrides, backbone, row.backbone, model, choice, first)


def _trained(
    method: str, overrides: dict[str, str], backbone: str, papers: str, model: str | None, choice: Choice,
    first: Cell | None,
) -> Cell | str:  # fmt: skip
    """The cell of a configuration, or why there is none; `papers` is the backbone of the paper's row."""
    config = config_path(method, backbone)
    if not config.is_file():
        return f"no config: configs/{config.name}"
    own = read_config(str(config))
    flags = {name: value for name, value in overrides.items() if own.get(name) != value}
    if first is None:
        flags |= cells.start_flags(config, flags, model, choice.stage_one)
    if choice.train_file and script_of(own["method"]) == "run_unsup.py":
        flags["train_file"] = choice.train_file
    flags |= {"max_steps": str(choice.steps)} if choice.steps else {}
    if first is None and "model_name_or_path" not in own | flags:
        return _no_model(backbone)
    if "train_file" not in own | flags:
        return f"no text: configs/{config.name} names none; give --train_file"
    differs = differences.of_run(own | flags, config_path(method, papers), backbone, papers)
    differs = tuple(dict.fromkeys((*(first.differs if first else ()), *differs)))
    return Cell(config.stem, flags | {"config": str(config)}, first, None, None, differs)


def config_path(method: str, backbone: str) -> Path:
    """configs/METHOD-BACKBONE.yaml; a word that ends the one and begins the other stands once (is-bert-base)."""
    last, first = method.rpartition("-")[2], backbone.partition("-")[0]
    method = method.removesuffix(f"-{last}") if last == first else method
    return CONFIGS / f"{method}-{backbone}.yaml"


def _plain_model(backbone: str) -> str | None:
    path = CONFIGS / STAND_IN.format(backbone)
    return read_config(str(path)).get("model_name_or_path") if path.is_file() else None


def _no_model(backbone: str) -> str:
    return f"no model: no configuration says where {backbone} starts; give --model"
