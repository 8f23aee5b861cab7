"""The run that fills a row of a paper's table, and how it differs from the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from common.arguments import NLI_COLUMNS
from eval.compare.sides import backbone_of
from papers.runs import CONFIGS, Choice, RunPlan, read_once
from papers.specification import Table, TableRow
from training.methods import SUP, UNSUP, load_method, script_of

# below DATA_DIR; the file of SBERT's 61.32, which InfoCSE and ConSERT copy
GLOVE = "word_vectors/glove.6B.300d.txt"


def plan_of(table: Table, row: TableRow, choice: Choice) -> RunPlan | str:
    """The plan of a row, or why it cannot be run.

    It is only published, or lacks a configuration, a model or a text.
    """
    if row.published_only:
        return f"published only: {row.published_only}"
    backbone = choice.backbone or row.backbone
    if backbone != row.backbone and backbone in {other.backbone for other in table.rows}:
        return f"not selected: the row's backbone is {row.backbone}"
    if row.evaluate:
        return _untrained(row, backbone, choice.model)
    fill = _fitted if row.baseline else _trained
    if not row.after:
        return fill(row, backbone, choice, None)
    first = _trained(replace(row, config=row.after, overrides={}), backbone, choice, None)
    return first if isinstance(first, str) else fill(row, backbone, choice, first)


def _untrained(row: TableRow, backbone: str, model: str | None) -> RunPlan | str:
    plain = _plain_model(backbone)
    if not (model or plain):
        return _no_model(backbone)
    difference = model_difference(model or plain, plain, backbone, row.backbone)
    return RunPlan(
        name=f"untrained-{backbone}-{row.evaluate}",
        flags={},
        model=model or plain,
        pooling=row.evaluate,
        differences=(difference,) if difference else (),
    )


def _fitted(row: TableRow, backbone: str, choice: Choice, first: RunPlan | None) -> RunPlan | str:
    """The plan of a baseline, fitted to the text of the row's configuration, or why there is none.

    Word vectors are those of GloVe's file in DATA_DIR.
    """
    if row.baseline == "word_vectors":
        file = Path(choice.data_dir) / GLOVE
        if not file.is_file():
            return f"no file: {GLOVE} in the data folder"
        return RunPlan(row.baseline, {}, model=str(file), baseline=row.baseline)
    config = config_name(str(row.config), backbone)
    files = config_files(config)
    if not files:
        return f"no config: configs/{config}.yaml"
    settings = read_once(*files)
    flags = {**row.overrides, "train_file": settings.get("train_file")}
    if script_of(settings["method"]) == SUP:
        flags["text_column"] = list(NLI_COLUMNS)
    else:
        flags["train_file"] = choice.train_file or flags["train_file"]
        flags["columns"] = settings.get("columns", "1")
    model = None if first else choice.model or _plain_model(backbone)
    if not (first or model):
        return _no_model(backbone)
    given = {"train_file": flags["train_file"]}
    if model:
        given["model_name_or_path"] = model
    return RunPlan(
        f"{row.baseline}-{config}",
        flags,
        first,
        model,
        differences=_differences(given, row, backbone, first),
        baseline=row.baseline,
    )


def _trained(row: TableRow, backbone: str, choice: Choice, first: RunPlan | None) -> RunPlan | str:
    """The plan of a row's configuration, starting from `first` if given, or why there is none."""
    config = config_name(str(row.config), backbone)
    files = config_files(config)
    if not files:
        return f"no config: configs/{config}.yaml"
    settings = read_once(*files)
    flags = {name: value for name, value in row.overrides.items() if settings.get(name) != value}
    if first is None:
        model = choice.model or _plain_model(backbone)
        flags.update(start_flags(files, flags, model, choice.stage_one))
    if choice.train_file and script_of(settings["method"]) == UNSUP:
        flags["train_file"] = choice.train_file
    if choice.steps:
        flags["max_steps"] = str(choice.steps)
    given = {**settings, **flags}
    if first is None and "model_name_or_path" not in given:
        return _no_model(backbone)
    if "train_file" not in given:
        return f"no text: {config} names none; give --train_file"
    return RunPlan(
        config,
        {**flags, "config": files},
        first,
        differences=_differences(given, row, backbone, first),
    )


def config_name(method: str, backbone: str) -> str:
    """METHOD-BACKBONE; a word that ends one and starts the other appears once: is-bert-base."""
    last, first = method.rpartition("-")[2], backbone.partition("-")[0]
    if last == first:
        method = method.removesuffix(f"-{last}")
    return f"{method}-{backbone}"


def config_files(name: str) -> list[str]:
    """The files of a configuration METHOD-BACKBONE; none if it does not exist.

    They are configs/METHOD-BACKBONE.yaml, or those of bert-base and configs/BACKBONE.yaml together.
    """
    method, _, backbone = name.rpartition("-")
    for names in ([name], [config_name(method, "bert-base"), backbone]):
        files = [CONFIGS / f"{part}.yaml" for part in names]
        if all(file.is_file() for file in files):
            return [str(file) for file in files]
    return []


def start_flags(
    files: Sequence[str], overrides: Mapping[str, str], model: str | None, stage_one: str | None
) -> dict[str, str]:
    """Flags for the checkpoints; none to use those of the configuration.

    Args:
        files: the configuration of a training script.
        overrides: flags that override it.
        model: checkpoint of methods without a first stage, and generator of methods that have
            one.
        stage_one: stage 1 run, InfoCSE's checkpoint, unless `aux_init` initialises the head in
            another way.
    """
    settings = {**read_once(*files), **overrides}
    known: set[str] = set()
    if "method" in settings:  # none in a stage 1
        known = {field.name for field in fields(load_method(settings["method"]).arguments)}
    if "aux_init" in known and settings.get("aux_init", "checkpoint") == "checkpoint":
        initial = stage_one
    else:
        initial = model
    flags = {}
    if initial:
        flags["model_name_or_path"] = initial
    if model and "generator" in known and "generator" not in settings:
        flags["generator"] = model
    return flags


def _plain_model(backbone: str) -> str | None:
    """The checkpoint of a backbone's methods without a first stage."""
    return read_once(*config_files(f"simcse-{backbone}")).get("model_name_or_path")


def _no_model(backbone: str) -> str:
    return f"no model: no configuration names a checkpoint for {backbone}; give --model"


def _differences(
    settings: Mapping[str, Any], row: TableRow, backbone: str, first: RunPlan | None
) -> tuple[str, ...]:
    """How a run differs from the paper's in backbone, checkpoint, text and budget.

    Args:
        settings: of the run; without `model_name_or_path` if it starts from another run of the
            table.
        row: whose configuration for the paper's backbone has the paper's settings, if there is one.
        backbone: of the run.
        first: the run it starts from, whose differences are its own too.
    """
    theirs = read_once(*config_files(config_name(str(row.config), row.backbone)))
    usual = theirs.get("model_name_or_path")
    model = settings.get("model_name_or_path", usual)
    differences = list(first.differences) if first else []
    if difference := model_difference(model, usual, backbone, row.backbone):
        differences.append(difference)
    if theirs.get("train_file", settings["train_file"]) != settings["train_file"]:
        differences.append("other text")
    if settings.get("max_steps", "-1") != theirs.get("max_steps", "-1"):
        differences.append("other budget")
    return tuple(dict.fromkeys(differences))


def model_difference(
    model: str | None, usual: str | None, backbone: str, papers: str
) -> str | None:
    """How a checkpoint differs from the paper's, `usual`.

    A local folder is compared by its size, other models by name.
    """
    if backbone != papers:
        return "other backbone"
    if model and (Path(model) / "config.json").is_file():
        config = AutoConfig.from_pretrained(model, trust_remote_code=False)
        published = backbone_of(config) or ""
        return None if published.startswith(papers) else "other checkpoint"
    return None if model == usual else "checkpoint not compared"
