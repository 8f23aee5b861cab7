"""A run from top to bottom: stage 1 (`pretrain`), and the training of sentence encoders (`train_sentences`)."""

from __future__ import annotations

import logging
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from safetensors.torch import load_model
from transformers import TrainerCallback, TrainerState

from common.errors import (
    BadInput,
    CheckpointRefused,
    ProjectError,
    Stopped,
    brief,
    storage_errors,
    unwritable,
)
from common.files import digest
from common.folders import locked
from common.signals import STOPPING
from common.streams import show
from data.source import Source, source_of
from data.template import frame_of
from data.text import read_text
from data.tokenised import Sample, TokenisedText, load_tokenised
from data.tokenizer import train_tokenizer
from data.views import cuts
from models.collectives import sum_over_processes, wait_for_everyone
from models.loading import load_tokenizer
from models.pooling import pooling_named
from training.curves import describe_collapse, describe_gap, draw
from training.provenance import contents, earlier_starts, provenance, start_of
from training.result import dev_set, load_tests, measure_initial, save_result, score_result
from training.run_arguments import IN_STEP, RunArguments, determines_weights, settle_packing
from training.run_folder import (
    FORMAT,
    RUN_FILE,
    Start,
    check_agreement,
    check_result,
    clean,
    installing_result,
    misfit,
    open_run,
    read_run,
    state_of,
    status_of,
    write_run,
)
from training.settings import Settings

if TYPE_CHECKING:
    from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)


@storage_errors(".")
def pretrain(settings: Settings, callbacks: Sequence[TrainerCallback] = ()) -> str:
    """Stage 1: build, train, save; returns the run's folder.

    Raises:
        ProjectError: anything that the command prints as one line.
    """
    model_args, data_args, args, began = (
        settings.model_args,
        settings.data_args,
        settings.args,
        time.time(),
    )
    model_args.packed = settle_packing(model_args.packed, args)
    source, tokenizer, blocks = load_blocks(settings)
    files = contents(vars(model_args))
    named = "config_name" if model_args.config_name else "model_name_or_path"
    identity = {
        "text": blocks.facts,
        "start": start_of(getattr(model_args, named), files.get(named, {})),
        "contents": files,
    }
    record = new_record(settings, identity, source.file_names)
    with opened(args, record, data_args.dry_run) as start:
        if start.finished:
            return args.output_dir
        from training.builders import build_pretraining  # here: a finished run needs no model

        trainer, plan = build_pretraining(settings, tokenizer, blocks)
        plan += settings.describe_choices()
        if data_args.dry_run:
            if trainer.is_world_process_zero():
                show(plan + settings.describe_sources())
            return args.output_dir
        logger.info(plan)
        take_steps(trainer, record, start, callbacks)
        if trainer.is_world_process_zero():
            with installing_result(Path(args.output_dir), trainer.run_id) as folder:
                trainer.model.save(str(folder), tokenizer)
            finish(trainer, record, began)
        wait_for_everyone(args.device)
    return args.output_dir


def load_blocks(settings: Settings) -> tuple[Source, Any, TokenisedText]:
    """Stage 1's text, the tokenizer (the checkpoint's, or trained on the text) and the training
    blocks.

    Raises:
        BadInput: neither or both of a checkpoint and a configuration; an unusable text.
    """
    model_args, data_args, args = settings.model_args, settings.data_args, settings.args
    if bool(model_args.model_name_or_path) == bool(model_args.config_name):
        raise BadInput(
            "give either --model_name_or_path (a checkpoint) or --config_name (from scratch)"
        )
    tokenizer = (
        load_tokenizer(model_args.model_name_or_path) if model_args.model_name_or_path else None
    )
    with args.main_process_first(desc="tokenise"):
        source = source_of(data_args, written=(data_args.cache_dir, args.output_dir))
        if tokenizer is None:
            tokenizer = train_tokenizer(source, model_args.vocabulary_size, data_args.cache_dir)
        room = data_args.max_length - frame_of(tokenizer).added
        return source, tokenizer, load_tokenised(source, tokenizer, data_args.cache_dir, block=room)


@storage_errors(".")
def train_sentences(settings: Settings, callbacks: Sequence[TrainerCallback] = ()) -> str:
    """A method: build, train, choose the result, export, score; returns the run's folder.

    Raises:
        ProjectError: anything that the command prints as one line.
    """
    method, model_args, method_args = settings.method, settings.model_args, settings.method_args
    data_args, args, began = settings.data_args, settings.args, time.time()
    model_args.packed = settle_packing(model_args.packed, args)
    if model_args.model_name_or_path is None:
        raise BadInput("--model_name_or_path is missing: give the initial model")
    pooling_named(model_args.pooling)  # check it before reading a long text
    tokenizer = load_tokenizer(model_args.model_name_or_path)
    sample = data_args.max_rows and Sample(data_args.max_rows, args.seed, data_args.upsample)
    with args.main_process_first(desc="tokenise"):
        source = source_of(data_args, method.labels, (data_args.cache_dir, args.output_dir))
        if source.titled and not cuts(method.views_of_rows(method_args, source.width)):
            source = replace(
                source, titled=False
            )  # title and text are a pair: a row without one of them is dropped
        corpus = load_tokenised(source, tokenizer, data_args.cache_dir, sample)
    dev, tests = dev_set(data_args), load_tests(data_args, args.device.type)
    files = contents(vars(model_args) | vars(method_args))
    identity = {
        "text": corpus.facts,
        "start": start_of(model_args.model_name_or_path, files.get("model_name_or_path", {})),
        "dev_pairs": dev and digest([dev.metric, dev.content]),
        "contents": files,
    }
    record = new_record(settings, identity, source.file_names)
    tokenizer = method.tokenizer(
        method_args, tokenizer
    )  # may add a template, which the stored ids lack
    with opened(args, record, data_args.dry_run) as start:
        if start.finished:
            return args.output_dir
        from training.builders import build_training  # here: a finished run needs no model

        trainer, plan = build_training(settings, tokenizer, corpus, dev)
        plan += settings.describe_choices()
        if data_args.dry_run:
            if trainer.is_world_process_zero():
                show(plan + settings.describe_sources())
            return args.output_dir
        logger.info(plan)
        initial = None
        if dev is not None and trainer.is_world_process_zero():
            initial = measure_initial(trainer, dev, tokenizer)
        take_steps(trainer, record, start, callbacks)
        if trainer.is_world_process_zero():
            facts, findings = save_result(trainer, tokenizer, dev, initial)
            rows = read_text(source, data_args.cache_dir)
            texts = rows.cells(None if sample is None else sample.rows(len(rows)))
            facts["seen_test_texts"] = score_result(
                args, method.name, tests, texts, data_args.data_dir
            )
            finish(trainer, record | facts, began, findings)
        wait_for_everyone(args.device)
    return args.output_dir


def new_record(
    settings: Settings, identity: dict[str, Any], files: Sequence[str] = ()
) -> dict[str, Any]:
    """The record of a run that begins: its settings, what determines its weights, and its machine.

    Args:
        settings: what the run does.
        identity: what else determines the weights: hashes of the text, the dev set and the initial
            model.
        files: names of the text's files.

    Raises:
        BadInput: the processes differ in their settings, or are not connected; there is no folder.
    """
    args, values = settings.args, settings.values
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > args.world_size:
        raise BadInput(
            f"{started} processes were started, but are not connected; on a CPU add --use_cpu true"
        )
    if "output_dir" not in settings.given and not values["dry_run"]:
        raise BadInput("--output_dir is missing: give the run's folder")
    trajectory = {name: value for name, value in values.items() if determines_weights(name)}
    trajectory |= identity | {"script": settings.script, "world_size": args.world_size}
    if (
        args.device.type != "cpu"
    ):  # devices round and draw differently; older CPU runs have no such entry
        trajectory["device"] = args.device.type
    check_agreement(
        gather_object([trajectory | {name: values[name] for name in IN_STEP if name in values}])
    )
    return {
        "format": FORMAT,
        "run_id": uuid.uuid4().hex,
        "script": settings.script,
        "command": settings.command,
        "settings": values,
        "trajectory": trajectory,
        "text_files": [*files],
        **provenance(args.device.type == "cuda"),
    }


@contextmanager
def opened(args: RunArguments, record: dict[str, Any], dry_run: bool) -> Iterator[Start]:
    """Lock the run's folder while the block runs, and yield how to begin: new, from a checkpoint,
    or finished.

    The main process decides for all, see `training.run_folder.open_run`. An earlier run's facts go into
    `record`. A dry run has a temporary folder.

    Raises:
        ProjectError: the folder is refused, locked by another command, or not writable.
    """
    if args.process_index > 0:
        logging.disable(logging.WARNING)  # only the main process logs
    with ExitStack() as stack:
        if dry_run:
            args.output_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="dry-run-"))
        stack.enter_context(storage_errors(args.output_dir))
        decision = None
        if args.process_index == 0:
            try:
                with storage_errors(args.output_dir):
                    decision = (
                        Start(False, None)
                        if dry_run
                        else _begin(Path(args.output_dir), record, stack)
                    )
            except ProjectError as error:
                decision = error
            except OSError as error:  # a parent is a file, a dangling link, a name that is too long
                message = (
                    f"--output_dir {args.output_dir}: cannot create this folder ({error.strerror})"
                )
                decision = unwritable(error, message)
        start = broadcast_object_list([decision])[0]
        if isinstance(start, ProjectError):
            raise start
        if start.finished:
            logger.info("%s: already finished; nothing to do", args.output_dir)
        yield start


def _begin(root: Path, record: dict[str, Any], stack: ExitStack) -> Start:
    if status_of(root, record["trajectory"]) == "finished":
        check_result(root)
        return Start(True, None)
    stack.enter_context(locked(root / RUN_FILE))
    clean(root)
    start = open_run(
        str(root), record["trajectory"]
    )  # again, locked: another command may have been running
    if (root / RUN_FILE).is_file():
        old = read_run(root)
        record["run_id"] = old.get("run_id") or record["run_id"]
        if start.checkpoint:  # otherwise nothing of the earlier attempt remains
            record["earlier_starts"] = earlier_starts(old, record)
    return start


def take_steps(
    trainer: EmbeddingTrainer,
    record: dict[str, Any],
    start: Start,
    callbacks: Sequence[TrainerCallback] = (),
) -> None:
    """Write the record, then train to the last step, from step 0 or a checkpoint.

    Raises:
        Stopped: a signal ended training, after a checkpoint was written.
        CheckpointRefused: the checkpoint does not fit or cannot be loaded.
        StorageError: the disk is full; NonFinite: a number is not finite.
    """
    from training.trainer import RunLog

    args, folder = trainer.args, Path(trainer.args.output_dir)
    if trainer.is_world_process_zero():
        write_run(folder, record | {"status": "running"})
    wait_for_everyone(args.device)
    trainer.run_id = record["run_id"]
    args.eval_on_start = start.checkpoint is None
    for callback in (RunLog(folder), *callbacks):
        trainer.add_callback(callback)
    over = False
    if start.checkpoint:
        logger.info("resuming from %s", start.checkpoint)
        state = state_of(start.checkpoint)
        over = state["global_step"] >= state["max_steps"] or trainer.is_out_of_patience(
            state.get("log_history", [])
        )
    with STOPPING.held():
        try:
            if start.checkpoint and (name := misfit(start.checkpoint, trainer.model)):
                raise CheckpointRefused(f"{start.checkpoint}: does not fit the model: {name}")
            if over:  # the stock Trainer would train one more step
                load_model(
                    trainer.model, Path(start.checkpoint) / "model.safetensors", strict=False
                )
                trainer.state = TrainerState.load_from_json(
                    str(Path(start.checkpoint) / "trainer_state.json")
                )
                return
            trainer.train(resume_from_checkpoint=start.checkpoint)
        except (ProjectError, OSError):
            raise
        except (
            Exception
        ) as error:  # a manifest proves that a checkpoint is unchanged, not who wrote it
            full = isinstance(error, (MemoryError, torch.OutOfMemoryError))
            if start.checkpoint is None or trainer.events.stepped or full:
                raise
            # Only the first sentence: torch goes on to explain how to run the code of a pickle.
            reason = f"{type(error).__name__}: {brief(error).partition('. ')[0]}"
            raise CheckpointRefused(
                f"{start.checkpoint}: its state cannot be loaded ({reason}); remove that folder to "
                "resume from the "
                "previous checkpoint, or to start over if there is none"
            ) from error
        stopped = torch.tensor(int(STOPPING.name is not None), device=args.device)
        stopped = bool(
            sum_over_processes(stopped)
        )  # a late signal may have reached only one process
    if stopped:
        cause = STOPPING.name or "a signal to another process"
        raise Stopped(
            f"stopped by {cause} after step {trainer.state.global_step}; repeat the command to "
            "resume"
        )
    if trainer.dev is not None and trainer.state.best_metric is None:
        trainer.evaluate()  # a callback ended training before the first evaluation


def finish(
    trainer: EmbeddingTrainer, record: dict[str, Any], began: float, findings: Sequence[str] = ()
) -> None:
    """Draw the curves, log the findings and, as the last write, mark the run finished."""
    history, state, folder = trainer.state.log_history, trainer.state, trainer.args.output_dir
    draw(history, Path(folder) / "curves.png")
    ended = None
    if state.global_step < state.max_steps:
        ended = f"training ended after step {state.global_step} of {state.max_steps}"
    collapse = describe_collapse(history, trainer.probes_equal_texts)
    findings = [*filter(None, [ended, describe_gap(history), *findings, collapse])]
    for finding in findings:
        logger.info(finding)
    seconds = round(time.time() - began, 1)
    facts = {
        "findings": findings,
        "steps": state.global_step,
        "seconds_of_last_start": seconds,
        "status": "finished",
    }
    write_run(folder, record | facts)
    failed = ", but its vectors are nearly parallel" if collapse else ""
    logger.info("%s: finished in %.0f s%s", folder, seconds, failed)
