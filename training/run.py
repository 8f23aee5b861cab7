"""The life of a run: record, start or resume, training, and end."""

from __future__ import annotations

import logging
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainerCallback

from common.errors import BadInput, CheckpointRefused, ProjectError, Stopped
from common.files import hashes
from eval.tasks import Options, tasks_named
from models.collectives import sum_over_processes, wait_for_everyone
from training.best import BEST, best_step
from training.callbacks import Pace, RunLog
from training.checkpoint import checkpoints, replacing_files, state_of, step_of
from training.curves import describe_gap, draw
from training.faults import REPORT, check_space, memory_errors, step_errors, storage_errors
from training.plan import dry_run
from training.provenance import earlier_starts, provenance
from training.record import (
    FORMAT,
    IN_STEP,
    MAY_DIFFER,
    RUN_FILE,
    STEPS,
    check_agreement,
    check_result,
    read_run,
    run_id_of,
    write_run,
)
from training.run_arguments import saved_at_once, steps_of
from training.run_folder import Start, clean, locked, open_run, status_of
from training.settings import Settings
from training.signals import STOPPING
from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)


class Run:
    """One run of a training script, from its settings to its finished folder.

    Args:
        settings: what the run does.
        identity: inputs other than settings that determine the numbers: hashes of the texts and start checkpoint.
        files: names of the training text's files, for the record.

    Raises:
        BadInput: the processes differ in their settings, or are not connected.
    """

    def __init__(self, settings: Settings, identity: dict[str, Any], files: Sequence[str] = ()) -> None:
        self.settings, self.args, values = settings, settings.args, settings.values
        started = int(os.environ.get("WORLD_SIZE", "1"))
        if started > self.args.world_size:
            raise BadInput(f"{started} processes were started, but are not connected; on a CPU add --use_cpu true")
        if "output_dir" not in settings.given and not values["dry_run"]:
            raise BadInput("--output_dir is missing: give the run's folder")
        self.trajectory = {k: v for k, v in values.items() if k not in MAY_DIFFER}
        self.trajectory |= identity | {"script": settings.script, "world_size": self.args.world_size}
        if self.args.device.type != "cpu":  # devices round and draw differently; older CPU runs have no such entry
            self.trajectory["device"] = self.args.device.type
        in_step = {k: v for k, v in values.items() if k in IN_STEP}
        check_agreement(gather_object([self.trajectory | in_step]))
        self.record = {
            "format": FORMAT,
            "run_id": uuid.uuid4().hex,
            "script": settings.script,
            "command": settings.command,
            "settings": values,
            "trajectory": self.trajectory,
            "text_files": [*files],
            **provenance(self.args.device.type == "cuda"),
        }
        self._began = time.time()

    def execute(
        self,
        build: Callable[[], tuple[EmbeddingTrainer, str]],
        end: Callable[[EmbeddingTrainer], None],
        callbacks: Sequence[TrainerCallback],
    ) -> str:
        """Build, train and end the run, unless it has finished; a dry run only measures a few batches.

        Args:
            build: returns the Trainer and the plan as text.
            end: exports the result and completes the record; called on the main process.
            callbacks: further ones of the Trainer.

        Returns:
            The run's folder.
        """
        dry = self.record["settings"]["dry_run"]
        with self._open(dry) as start:
            if not start.finished:
                with self._memory_errors():
                    trainer, description = build()
                    description += self.settings.describe_choices()
                    if dry:
                        dry_run(trainer, description + self.settings.describe_sources())
                        return self.args.output_dir
                    self._train(trainer, start, description, callbacks)
                    if trainer.is_world_process_zero():
                        end(trainer)
                wait_for_everyone(self.args.device)
        return self.args.output_dir

    @contextmanager
    def _open(self, dry_run: bool) -> Iterator[Start]:
        """Lock the folder while the block runs, and yield how to begin: start, resume, or already finished.

        The main process decides, see `training.run_folder.open_run`; a dry run leaves no folder.

        Raises:
            ProjectError: the folder is refused, locked by another command, or not writable.
        """
        if self.args.process_index > 0:
            logging.disable(logging.WARNING)  # only the main process logs
        with ExitStack() as stack:
            if dry_run:
                self.args.output_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="dry-run-"))
            stack.enter_context(storage_errors(self.args.output_dir))
            decision = self._decide(stack, dry_run) if self.args.process_index == 0 else None
            start = broadcast_object_list([decision])[0]
            if isinstance(start, ProjectError):
                raise start
            if start.finished:
                logger.info("%s: already finished; nothing to do%s", self.args.output_dir, self._unscored())
            yield start

    def _unscored(self) -> str:
        """How to score the finished run on tasks that it was not asked for; empty if there are none."""
        before = read_run(Path(self.args.output_dir)).get("settings", {})
        wanted, scored = ([name for name in settings.get("test_tasks") or () if name != "none"]
                          for settings in (self.record["settings"], before))  # fmt: skip
        known, folder = {*tasks_named(scored, Options())}, self.args.output_dir
        new = " ".join(name for name in wanted if not known.issuperset(tasks_named([name], Options())))
        return f"; not scored: {new} (python -m eval {folder} --tasks {new})" if new else ""

    def _decide(self, stack: ExitStack, dry_run: bool) -> Start | ProjectError:
        """How to begin, or the error for all processes to raise."""
        try:
            with storage_errors(self.args.output_dir):
                return Start(False, None) if dry_run else self._start(stack)
        except ProjectError as error:
            return error
        except OSError as error:  # a parent is a file, a dangling link, a name that is too long
            return BadInput(f"--output_dir {self.args.output_dir}: cannot create this folder ({error.strerror})")

    def _start(self, stack: ExitStack) -> Start:
        root = Path(self.args.output_dir)
        change = self.args.change_steps
        if status_of(root, self.trajectory, change) == "finished":
            check_result(root, read_run(root))
            return Start(True, None)
        stack.enter_context(locked(root))
        clean(root)
        (root / REPORT).unlink(missing_ok=True)  # of an attempt whose step was not saved
        start = open_run(str(root), self.trajectory, change)  # again, locked: another command may have been running
        if (root / RUN_FILE).is_file():
            old = read_run(root)
            self.record["run_id"] = run_id_of(root)
            if start.checkpoint:  # otherwise nothing of the earlier attempt remains
                self.record["earlier_starts"] = earlier_starts(old, self.record)
                self.record["changed_steps"] = _changed_steps(old, self.record, start.checkpoint)
        return start

    def _train(
        self, trainer: EmbeddingTrainer, start: Start, description: str, callbacks: Sequence[TrainerCallback]
    ) -> None:
        """Write the record, then run the Trainer from the start or a checkpoint.

        Raises:
            Stopped: a signal ended training, after a checkpoint was written.
            StorageError: disk or memory is full; NonFinite: a number is not finite.
        """
        logger.info(description)
        folder, args = self.args.output_dir, self.args
        steps = steps_of(args, trainer.sampler.count)
        state = state_of(start.checkpoint) if start.checkpoint else None
        if state is not None:
            changed = _check_change(start.checkpoint, state, steps)
            changed |= any(one["after_step"] == state["global_step"] for one in self.record.get("changed_steps", []))
            trainer.forgets_best = changed and best_step(Path(folder)) > state["global_step"]
            if trainer.forgets_best:
                logger.warning("%s/ is from a step after %s and from another number of steps; the next evaluation "
                               "replaces it", BEST, Path(start.checkpoint).name)  # fmt: skip
        if trainer.is_world_process_zero():
            check_space(folder, trainer.model, saved_at_once(args, steps) - len(checkpoints(Path(folder))))
            write_run(folder, self.record | {"status": "running"})
        wait_for_everyone(self.args.device)
        trainer.run_id = self.record["run_id"]
        for callback in (RunLog(folder), Pace(), *callbacks):
            trainer.add_callback(callback)
        if state is not None:
            logger.info("resuming from %s", start.checkpoint)
            if state["global_step"] >= steps or trainer.is_out_of_patience(state.get("log_history", [])):
                trainer.restore(start.checkpoint)  # the stock Trainer would train one more step
                return
        self._take_steps(trainer, start.checkpoint)

    def _take_steps(self, trainer: EmbeddingTrainer, checkpoint: str | None) -> None:
        args = self.args
        with STOPPING.held(), step_errors():
            trainer.train(resume_from_checkpoint=checkpoint)
            stopped = torch.tensor(int(STOPPING.name is not None), device=args.device)
            stopped = bool(sum_over_processes(stopped))  # a late signal may have reached only one process
        if stopped:
            cause = STOPPING.name or "a signal to another process"
            raise Stopped(f"stopped by {cause} after step {trainer.state.global_step}; repeat the command to resume")
        if trainer.dev is not None and trainer.state.best_metric is None:
            trainer.evaluate()  # a callback ended training before the first evaluation

    def _memory_errors(self) -> AbstractContextManager[None]:
        size, device = self.args.per_device_train_batch_size, self.args.device.type
        return memory_errors(f"--per_device_train_batch_size {size} on {device}")

    def export(self, save: Callable[[str], object]) -> None:
        """Let `save` write the result into a temporary folder, then move each file into the run's folder."""
        with replacing_files(Path(self.args.output_dir)) as folder:
            save(str(folder))
            self.record["result"] = hashes(folder)

    def finish(self, trainer: EmbeddingTrainer, facts: dict[str, Any], findings: Sequence[str] = ()) -> None:
        """Draw the curves, log the findings and, as the last write, mark the run finished."""
        draw(trainer.state.log_history, Path(self.args.output_dir) / "curves.png")
        findings = [*filter(None, [_early_end(trainer), describe_gap(trainer.state.log_history)]), *findings]
        for finding in findings:
            logger.info(finding)
        seconds = round(time.time() - self._began, 1)
        facts = facts | {
            "findings": findings,
            "steps": trainer.state.global_step,
            "seconds_of_last_start": seconds,
            "status": "finished",
        }
        write_run(self.args.output_dir, self.record | facts)
        logger.info("%s: finished in %.0f s", self.args.output_dir, seconds)


def _changed_steps(old: dict[str, Any], new: dict[str, Any], checkpoint: str) -> list[dict[str, Any]]:
    """Every change of a run's number of steps, {setting: [old, new]}, and the step after which it took effect."""
    pairs = {name: [run["trajectory"].get(name) for run in (old, new)] for name in STEPS}
    changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    after = {"after_step": step_of(Path(checkpoint))}
    return [*old.get("changed_steps", []), *([after | changed] if changed else [])]


def _check_change(checkpoint: str, state: dict[str, Any], steps: int) -> bool:
    """Return whether the number of steps has changed, and log it; CheckpointRefused if the checkpoint is past it."""
    done, before = state["global_step"], state["max_steps"]
    if steps == before:
        return False
    if done >= steps:
        raise CheckpointRefused(
            f"{checkpoint}: the run is at step {done}, so it cannot end after {steps}; give more than {done} steps "
            f"(the best model so far is in {BEST}/)"
        )
    logger.info("%d of %d steps are done; continuing to step %d with the learning rates of a run of %d steps",
                done, before, steps, steps)  # fmt: skip
    return True


def _early_end(trainer: EmbeddingTrainer) -> str | None:
    done, last = trainer.state.global_step, trainer.state.max_steps
    if done >= last:
        return None
    cause = "a callback stopped the run"
    if trainer.is_out_of_patience(trainer.state.log_history):
        cause = f"the dev score did not improve in {trainer.patience} evaluations (--patience)"
    return f"{cause}, so training ended after step {done} of {last}"
