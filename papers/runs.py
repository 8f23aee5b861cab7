"""The folder of one run: train it, score it, and refuse a run whose inputs have changed."""

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from common.errors import BadInput, CheckpointRefused, ProjectError
from common.files import ROOT, find_files
from data.lines import content_hash
from eval.encode import Encode, device_here
from eval.scores import rows_of, write_scores
from eval.tasks import Task, score_all
from models.encoder import load_encoder
from training.folder import RUN_FILE, discard, read_run, write_run
from training.methods import load_method, script_of
from training.provenance import contents
from training.settings import read_config, words_of
from training.signals import run_to_its_end

logger = logging.getLogger(__name__)
CONFIGS = ROOT / "configs"
FACTS = ("steps", "commit", "versions", "hardware", "text", "start")  # facts about a run in a row of results
read_once = cache(read_config)  # tables read the same configurations repeatedly


def start_flags(config: Path, overrides: Mapping[str, str], model: str | None, stage_one: str | None) -> dict[str, str]:
    """Flags for the checkpoints to start from; none to use those of the configuration.

    Args:
        config: a configuration of run_unsup.py or run_sup.py.
        overrides: flags that override it.
        model: masked language model to start from for methods without a first stage, and generator of methods that
            have one.
        stage_one: stage 1 run to start InfoCSE from, unless `aux_init` initialises the head in another way.
    """
    settings = {**read_once(str(config)), **overrides}
    method = settings.get("method")  # none in a stage 1
    known = {f.name for f in fields(load_method(method).arguments)} if method else set()
    needs_head = "aux_init" in known and settings.get("aux_init", "checkpoint") == "checkpoint"
    start = stage_one if needs_head else model
    flags = {"model_name_or_path": start} if start else {}
    if model and "generator" in known and "generator" not in settings:
        flags["generator"] = model
    return flags


def train(folder: Path, flags: Mapping[str, str]) -> None:
    """Train or resume the run with these flags unless it has finished; stage 1 has no method.

    Raises:
        CheckpointRefused: the folder contains a finished run whose input files have changed.
        ProjectError: the script failed; it has printed the reason. The error has its exit code.
    """
    settings = settings_of(flags)
    if record := finished(folder):
        check_inputs(folder, record, settings, flags["data_dir"])
        return
    launch(script_of(settings.get("method")), words_of(all_flags(folder, flags)))
    discard(folder, finished(folder).get("run_id"))


def settings_of(flags: Mapping[str, str]) -> dict[str, Any]:
    """The configuration, overridden by the flags."""
    return {**read_once(flags["config"]), **flags}


def all_flags(folder: Path, flags: Mapping[str, str]) -> dict[str, str]:
    """The flags of a run's script, including those of all runs."""
    # Runs of a method are scored afterwards, so that tasks can be added to a finished run.
    tests = {"test_tasks": "none"} if "method" in settings_of(flags) else {}
    machine = {"use_cpu": str(device_here() == "cpu").lower(), "disable_tqdm": "true"}
    return {**flags, **tests, "output_dir": str(folder), **machine}


def launch(script: str, argv: Sequence[str]) -> None:
    """Run a training script; ProjectError with its exit code if it fails."""
    code = run_to_its_end([sys.executable, str(ROOT / script), *argv], stdout=sys.stderr)  # stdout is for the table
    if code:
        advice = "see above" if code == BadInput.exit_code else "run it again to resume"
        error = ProjectError(f"{script} {' '.join(argv)} failed with exit code {code}; {advice}")
        error.exit_code = max(code, 1)
        raise error


def record_untrained(folder: Path, facts: Mapping[str, Any], model: str | None = None) -> None:
    """Make a folder for the scores of an untrained model, with a record like that of a finished run."""
    inputs = {"contents": {"model_name_or_path": files}} if (files := model_files(model)) else {}
    write_run(folder, {"status": "finished", "trajectory": inputs, "steps": 0, **facts})


def finished(folder: Path) -> dict[str, Any] | None:
    """The record of the run in a folder if it has finished."""
    if not (folder / RUN_FILE).is_file():
        return None
    record = read_run(folder)
    return record if record["status"] == "finished" else None


def facts_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """`FACTS` of a run's record; text and start are sha256 digests, a start on the hub is a name."""
    inputs = record["trajectory"]
    files = inputs.get("contents", {}).get("model_name_or_path", {})
    start = inputs.get("start", files.get("model.safetensors"))
    facts = record | {"text": inputs.get("text", {}).get("sha256"), "start": start}
    return {name: facts.get(name) for name in FACTS}


def score(
    folder: Path, name: str, tasks: Sequence[Task], data_dir: str, model: str | None = None, *, bf16: bool,
    pooling: str | None = None, max_length: int | None = None,
) -> None:  # fmt: skip
    """Write `NAME.json` and its examples atomically into a run's folder, unless they exist.

    `model` replaces the folder's model, `pooling` and `max_length` its own.
    """
    path = folder / f"{name}.json"
    if path.is_file():
        return
    encoder, tokenizer = load_encoder(model or str(folder), pooling, max_length)
    encoder.to(device_here())
    encode = Encode(encoder, tokenizer, bf16=bf16)
    results = score_all(encode, tasks, data_dir)
    write_scores(path, results, rows_of(results, folder.parent.name, folder.name, **encode.settings))
    logger.info("%s: scored", path)


def refuse_missing(tasks: Iterable[Task], data_dir: str) -> None:
    """Load all test data, to fail on missing data before training; BadInput as `Task.load`."""
    for task in tasks:
        task.load(data_dir)


def check_inputs(folder: Path, record: Mapping[str, Any], settings: Mapping[str, Any], data_dir: str) -> None:
    """Compare the content of a finished run's text and models with what is there now.

    The folder's name covers only paths and flags. Deleted text and models are not compared: a run may outlive them.

    Raises:
        CheckpointRefused: an input file has changed.
    """
    old = record["trajectory"]
    changed = _changed_text(old.get("text", {}).get("sha256"), settings, data_dir)
    for name, files in old.get("contents", {}).items():
        value = settings.get(name)
        now = model_files(tuple(value) if isinstance(value, list) else value)
        changed += [f"{name}: the files of {value} have changed"] if now and now != files else []
    if changed:
        raise CheckpointRefused(f"{folder}: finished run with other inputs ({'; '.join(changed)}); move it away")


def _changed_text(old: str | None, settings: Mapping[str, Any], data_dir: str) -> list[str]:
    names = settings.get("train_file", [])
    try:
        files = find_files(names if isinstance(names, list) else [names], data_dir)
    except BadInput:
        return []
    now = _text_hash(tuple(files)) if old else None
    return [f"text: sha256 was {old}, now {now}"] if old != now else []


_text_hash = cache(content_hash)


@cache
def model_files(path: str | tuple[str, ...] | None) -> dict[str, str]:
    """sha256 of each file in one or several local model folders; empty for a name on the hub; cached."""
    return contents({"": path}).get("", {})
