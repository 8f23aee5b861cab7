"""A run from top to bottom: of stage 1 (`pretrain`), and of a method (`train_sentences`)."""

from __future__ import annotations

import logging
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from safetensors.torch import load_model
from transformers import TrainerCallback, TrainerState

from common.arguments import ScoredArguments
from common.errors import (
    BadInput,
    CheckpointRefused,
    ProjectError,
    Stopped,
    brief,
    storage_errors,
    unwritable,
)
from common.signals import STOPPING
from common.streams import show
from data.source import Source, source_of
from data.template import frame_of
from data.text import read_text
from data.tokenised import Sample, TokenisedText, load_tokenised
from data.tokenizer import train_tokenizer
from eval.dev import DevScore, of_pairs
from eval.sts import STS_DEV, merged, own_pairs
from eval.tasks import Options, Task, tasks_named
from models.collectives import sum_over_processes, wait_for_everyone
from models.loading import load_tokenizer
from models.pooling import pooling_named
from training.provenance import contents, provenance, start_of
from training.run_arguments import IN_STEP, RunArguments, determines_weights, settle_packing
from training.run_folder import (
    FORMAT,
    Start,
    begin,
    check_agreement,
    installing_result,
    misfit,
    open_run,
    state_of,
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
    began = time.time()
    model_args, data_args, args = settings.model_args, settings.data_args, settings.args
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
        from training.builders import build_pretraining  # here: a finished run needs none of it
        from training.result import finish

        trainer, plan = build_pretraining(settings, tokenizer, blocks)
        announce(settings, plan)
        if data_args.dry_run:
            return settings.values["output_dir"]
        take_steps(trainer, record, start, callbacks)
        if trainer.is_world_process_zero():
            with installing_result(Path(args.output_dir), trainer.run_id) as folder:
                trainer.model.save(str(folder), tokenizer)
            finish(trainer, record, began)
        wait_for_everyone(args.device)
    return args.output_dir


def load_blocks(settings: Settings) -> tuple[Source, Any, TokenisedText]:
    """Stage 1's text, tokenizer (a given one, or trained on the text) and training blocks.

    Raises:
        BadInput: neither or both of a checkpoint and a configuration; an unusable text.
    """
    model_args, data_args, args = settings.model_args, settings.data_args, settings.args
    if bool(model_args.model_name_or_path) == bool(model_args.config_name):
        raise BadInput(
            "give either --model_name_or_path (a checkpoint) or --config_name (from scratch)"
        )
    tokenizer = None
    if named := model_args.model_name_or_path or model_args.tokenizer_name:
        tokenizer = load_tokenizer(named)
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
    began = time.time()
    method, model_args, method_args = settings.method, settings.model_args, settings.method_args
    data_args, args = settings.data_args, settings.args
    assert method is not None, "stage 1 has none"
    model_args.packed = settle_packing(model_args.packed, args)
    if model_args.model_name_or_path is None:
        raise BadInput("--model_name_or_path is missing: give the checkpoint")
    pooling_named(model_args.pooling)  # check it before reading a long text
    tokenizer = load_tokenizer(model_args.model_name_or_path)
    sample = None
    if data_args.max_rows:
        sample = Sample(data_args.max_rows, args.seed, data_args.upsample)
    dev, tests = load_dev(data_args), load_tests(data_args, args.device.type)
    with args.main_process_first(desc="tokenise"):
        source = source_of(data_args, method.labels, (data_args.cache_dir, args.output_dir))
        corpus = load_tokenised(source, tokenizer, data_args.cache_dir, sample)
    files = contents(vars(model_args) | vars(method_args))
    identity = {
        "text": corpus.facts,
        "start": start_of(model_args.model_name_or_path, files.get("model_name_or_path", {})),
        "dev_pairs": dev and dev.identity,  # whatever it scores: the name that old records have
        "contents": files,
    }
    record = new_record(settings, identity, source.file_names)
    # It may add a template, which the stored ids lack.
    tokenizer = method.tokenizer(method_args, tokenizer)
    with opened(args, record, data_args.dry_run) as start:
        if start.finished:
            return args.output_dir
        from training.builders import build_training  # here: a finished run needs none of it
        from training.result import finish, measure_initial, save_best, score_result

        trainer, plan = build_training(settings, tokenizer, corpus, dev)
        announce(settings, plan)
        if data_args.dry_run:
            return settings.values["output_dir"]
        is_main = trainer.is_world_process_zero()
        if dev is not None and is_main:
            initial = measure_initial(trainer, dev, tokenizer)
        take_steps(trainer, record, start, callbacks)
        if is_main:
            verdict = None
            if dev is None:
                logger.info("no dev task: the last model is the result")
                with installing_result(Path(args.output_dir), trainer.run_id) as folder:
                    trainer.model.encoder.save(str(folder), tokenizer)
            else:
                facts, verdict = save_best(trainer, tokenizer, dev, initial)
                record |= facts
            text = read_text(source, data_args.cache_dir)
            rows = None if sample is None else sample.rows(len(text))
            seen = score_result(args, method.name, tests, text.cells(rows), data_args.data_dir)
            finish(trainer, record | {"seen_test_texts": seen}, began, verdict)
        wait_for_everyone(args.device)
    return args.output_dir


def load_dev(data_args: ScoredArguments) -> DevScore | None:
    """What selects the best model and judges the result; None for `--dev none`.

    Raises:
        BadInput: a missing or malformed file.
    """
    if data_args.dev == "none":
        return None
    metric, name, task = "stsb_spearman", "STS-B dev", STS_DEV[0]
    if data_args.dev_file:
        metric, name, task = "dev_spearman", "dev pairs", own_pairs(data_args.dev_file)
    pairs = merged(task.load(data_args.data_dir))
    return of_pairs(metric, f"Spearman's correlation on {name}", pairs)


def load_tests(data_args: ScoredArguments, device: str) -> list[Task]:
    """The test tasks, computed on this device.

    Loads each once, so that a missing file fails before training.
    """
    names = [name for name in data_args.test_tasks if name != "none"]
    tests = tasks_named(names, Options(device=device))
    for task in tests:
        task.load(data_args.data_dir)
    return tests


def new_record(
    settings: Settings, identity: dict[str, Any], files: Sequence[str] = ()
) -> dict[str, Any]:
    """The record of a run that begins: its settings, what determines its weights, and its machine.

    `identity` is what determines the weights beside the settings: hashes of the text, the dev set
    and the initial model; `files` are the names of the text's files.

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
    same = identity.keys() & values.keys()
    assert not same, f"hashes with the name of a flag would not be compared: {same}"
    trajectory = {name: value for name, value in values.items() if determines_weights(name)}
    trajectory |= identity | {"script": settings.script, "world_size": args.world_size}
    if args.device.type != "cpu":  # they round and draw differently; older CPU runs have no entry
        trajectory["device"] = args.device.type
    in_step = {name: value for name, value in values.items() if name in IN_STEP}
    check_agreement(gather_object([trajectory | in_step]))
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
    """Lock the run's folder while the block runs, and yield how to begin.

    The main process decides for all. A dry run has a temporary folder, but is refused as the run
    would be.

    Raises:
        ProjectError: the folder is refused, locked by another command, or not writable.
    """
    if args.process_index > 0:
        logging.disable(logging.WARNING)  # only the main process logs
    asked = Path(args.output_dir)
    with ExitStack() as stack:
        if dry_run:
            args.output_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="dry-run-"))
        stack.enter_context(storage_errors(args.output_dir))
        decision: Start | ProjectError | None = None
        if args.process_index == 0:
            try:
                if dry_run:
                    open_run(asked, record["trajectory"])
                decision = begin(Path(args.output_dir), record, stack)
            except ProjectError as error:
                decision = error
            except OSError as error:  # a parent is a file, a dangling link, a name that is too long
                said = f"--output_dir {args.output_dir}: cannot be used ({error.strerror})"
                decision = unwritable(error, said)
        [decision] = broadcast_object_list([decision])
        if isinstance(decision, ProjectError):
            raise decision
        assert decision is not None
        if decision.finished:
            logger.info("%s: already finished; nothing to do", args.output_dir)
        yield decision


def announce(settings: Settings, plan: str) -> None:
    """Log the plan; a dry run prints it, with where every setting is from."""
    plan += settings.describe_choices()
    if not settings.data_args.dry_run:
        logger.info(plan)
    elif settings.args.process_index == 0:
        show(plan + settings.describe_sources())


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
    args = trainer.args
    if trainer.is_world_process_zero():
        write_run(args.output_dir, record | {"status": "running"})
    wait_for_everyone(args.device)
    trainer.run_id = record["run_id"]
    for callback in callbacks:
        trainer.add_callback(callback)
    args.eval_on_start = start.checkpoint is None
    with STOPPING.held():
        if start.checkpoint is None:
            trainer.train()
        else:
            resume(trainer, start.checkpoint)
        stopped = torch.tensor(int(STOPPING.name is not None), device=args.device)
        anyone = bool(sum_over_processes(stopped))  # a late signal may have reached only one
    if anyone:
        raise Stopped(
            f"stopped by {STOPPING.name or 'a signal to another process'} after step "
            f"{trainer.state.global_step}; repeat the command to resume"
        )
    if trainer.dev is not None and trainer.state.best_metric is None:
        trainer.evaluate()  # a callback ended training before the first evaluation


def resume(trainer: EmbeddingTrainer, checkpoint: str) -> None:
    """Train from a checkpoint to the last step.

    Its manifest proves that it is unchanged, not who wrote it.

    Raises:
        CheckpointRefused: it does not fit the model or cannot be loaded.
    """
    logger.info("resuming from %s", checkpoint)
    state = state_of(checkpoint)
    over = state["global_step"] >= state["max_steps"]
    try:
        if name := misfit(checkpoint, trainer.model):
            raise CheckpointRefused(f"{checkpoint}: does not fit the model: {name}")
        if over or trainer.is_out_of_patience(state.get("log_history", [])):
            # The stock Trainer would train one more step.
            load_model(trainer.model, f"{checkpoint}/model.safetensors", strict=False)
            trainer.state = TrainerState.load_from_json(f"{checkpoint}/trainer_state.json")
        else:
            trainer.train(resume_from_checkpoint=checkpoint)
    except (ProjectError, OSError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if trainer.events.stepped:
            raise
        # Only the first sentence: torch goes on to explain how to run the code of a pickle.
        reason = f"{type(error).__name__}: {brief(error).partition('. ')[0]}"
        raise CheckpointRefused(
            f"{checkpoint}: its state cannot be loaded ({reason}); remove that folder to resume "
            "from the previous checkpoint, or to start over if there is none"
        ) from error
