"""One cell of a table: a run that is trained once and scored once, however often the command is typed."""

from __future__ import annotations

import json
import logging
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from common.command_line import peek, read_config
from common.errors import ProjectError
from eval.encode import Encode
from eval.scores import rows_of, write_scores
from eval.tasks import Task, score_all
from models.encoder import load_encoder
from tables.same import check_run, model_files
from training.faults import run_to_its_end
from training.record import RUN_FILE, read_run, write_run
from training.registry import load_method, script_of
from training.run_folder import discard

logger = logging.getLogger(__name__)
ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
FACTS = ("steps", "commit", "versions", "hardware", "text", "start")


def start_flags(config: Path, overrides: Mapping[str, str], model: str | None, stage_one: str | None) -> dict[str, str]:
    """The checkpoints a configuration starts from, as flags; those it names itself stay where nothing is given.

    Args:
        config: a configuration of run_unsup.py or run_sup.py.
        overrides: flags that win over it.
        model: the masked language model that methods without a first stage start from, and the generator of those
            that have one.
        stage_one: the run of stage 1 that InfoCSE starts from, unless its head is to be made otherwise (`aux_init`).
    """
    own = read_config(str(config))
    effective = own | dict(overrides)
    known = {f.name for f in fields(load_method(effective.get("method")).arguments)}
    has_head = "aux_init" in known and effective.get("aux_init", "checkpoint") == "checkpoint"
    start = stage_one if has_head else model
    flags = {"model_name_or_path": start} if start else {}
    if model and "generator" in known and "generator" not in effective:
        flags["generator"] = model
    return flags


def trained(folder: Path, flags: Mapping[str, str]) -> dict[str, Any]:
    """The record of a finished run with these flags of its script; trained, or trained on, where it is not there.

    Raises:
        CheckpointRefused: the folder holds a finished run of other settings, or of files that have changed.
        ProjectError: the script stopped with an error, with its exit code; it has said why.
    """
    argv = command_of(folder, flags)
    record = finished(folder)
    if record is None:
        _launch(argv)
        record = finished(folder)
        discard(folder, record.get("run_id"))
    check_run(folder, record, argv)
    return record


def command_of(folder: Path, flags: Mapping[str, str]) -> list[str]:
    """All flags of a cell's script, as they are given to it."""
    return [f"--{name}={value}" for name, value in all_flags(folder, flags).items()]


def all_flags(folder: Path, flags: Mapping[str, str]) -> dict[str, str]:
    """The flags of a cell's script, with those that every cell's run gets."""
    return {
        **flags,
        "output_dir": str(folder),
        "test_tasks": "none",  # scored afterwards, so that a task can be added to a finished run
        "use_cpu": str(not torch.cuda.is_available()).lower(),
        "disable_tqdm": "true",
    }


def untrained(folder: Path, facts: Mapping[str, Any], model: str | None = None) -> None:
    """A folder for the scores of a model that is evaluated as it is, with a record like a finished run's."""
    contents = {"contents": {"model_name_or_path": files}} if (files := model_files(model)) else {}
    write_run(folder, {"status": "finished", "trajectory": contents, "steps": 0, **facts})


def finished(folder: Path) -> dict[str, Any] | None:
    """The record of the run in a folder if it has finished."""
    if not (folder / RUN_FILE).is_file():
        return None
    record = read_run(folder)
    return record if record["status"] == "finished" else None


def score(folder: Path, name: str, tasks: Sequence[Task], data_dir: str, model: str | None = None, **how: Any) -> None:
    """Write `NAME.json` and its examples beside a run, whole or not at all; what is there stays.

    Args:
        folder: of the run.
        name: of the file.
        tasks: what is scored.
        data_dir: where their data is.
        model: another model than the folder's.
        how: `pooling` of such a model, `max_length` of the texts, and `bf16` (true unless said).
    """
    path = folder / f"{name}.json"
    if path.is_file():
        return
    encoder, tokenizer = load_encoder(model or str(folder), how.get("pooling"), how.get("max_length"))
    encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    encode = Encode(encoder, tokenizer, encoder.max_length, bf16=how.get("bf16", True))
    results = score_all(encode, tasks, data_dir)
    write_scores(path, results, rows_of(results, folder.parent.name, folder.name))
    logger.info("%s: scored", path)


def spread(values: Sequence[float], missing: str) -> str:
    """`mean ± standard deviation` (n - 1) with two decimals, the mean alone of one value, words for none."""
    if not values:
        return missing
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def _launch(flags: Sequence[str]) -> None:
    script = script_of(peek(flags, "method"))
    command = [sys.executable, str(ROOT / script), *flags]
    code = run_to_its_end(command, stdout=sys.stderr)  # our output is the table
    if code:
        error = ProjectError(f"{script} {' '.join(flags)} stopped with {code}; the same command goes on there")
        error.exit_code = max(code, 1)
        raise error


def facts_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of results says of where it comes from; text and start by sha256, a start on the hub by its name."""
    read = record["trajectory"]
    files = read.get("contents", {}).get("model_name_or_path", {})
    start = read.get("start", files.get("model.safetensors"))
    found = record | {"text": read.get("text", {}).get("sha256"), "start": start}
    return {name: found.get(name) for name in FACTS}


def read_rows(path: Path) -> list[dict]:
    """The rows of a file that `score` wrote; none where there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
