"""The Trainer of both stages: stock training with sentence evaluation, logged loss terms and
gradient caching.

Its callbacks are the hooks of a step, signals and the log.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from accelerate.utils import DistributedType, broadcast_object_list, send_to_device, set_seed
from transformers import Trainer, TrainerCallback

from common.errors import BadInput, NonFinite
from common.folders import remove
from common.signals import STOPPING, outlast_signals
from data.draws import KeyedSampler, Keys
from models.collectives import SharedFlag, wait_for_everyone
from models.fast.chunking import GradientCache
from models.loading import quiet
from models.objectives.base import Batch
from training.adamw import chosen_optimizer
from training.curves import describe_collapse
from training.faults import FirstBad, not_finite
from training.run_arguments import check_machine
from training.run_folder import STAGING, commit_checkpoint, keep_if_best

logger = logging.getLogger(__name__)
_WHOLE = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
_PROBED = 128  # examples
_SPARED = 100  # at most one example in this many is held out
_FEWEST = 10  # examples; fewer would be too noisy


class EmbeddingTrainer(Trainer):
    """Stock Trainer with its own evaluation, a best model separate from the checkpoints, and logged
    loss terms.

    Args:
        model: returns `loss` and `terms`, and has `probe(**batch)` and `after_step()`.
        args: TrainingArguments.
        collator: keys -> batch.
        count: examples in the corpus.
        held_out: examples to probe at every evaluation and never train on. At most one in `_SPARED`
            is held out, and none if that would be fewer than `_FEWEST`; then the first examples are
            probed.
        dev: () -> values by name, including `args.metric_for_best_model`; None if no best model is
            selected.
        keep_best: writes the model into an empty folder; called on the main process when the dev
            value improves.
        patience: evaluations without improvement after which training ends; None: never.

    Attributes:
        run_id: the run that owns the saved folders.
        initial_scores: the dev values of the initial model, by name; logged at step 0.
        events: knows whether a step was taken.
    """

    def __init__(
        self,
        model,
        args,
        collator,
        count: int,
        dev: Callable[[], dict[str, float]] | None = None,
        keep_best: Callable[[Path], None] | None = None,
        held_out: int = 0,
        patience: int | None = None,
    ) -> None:
        batch = args.per_device_train_batch_size * args.world_size
        held = min(held_out, count // _SPARED)
        self.sampler = KeyedSampler(args.seed, count, batch, held if held >= _FEWEST else 0)
        check_machine(args, self.sampler.count, len(self.sampler.held))
        self.dev, self.keep_best, self.patience = dev, keep_best, patience
        self._sums: dict[str, torch.Tensor] = defaultdict(
            lambda: torch.zeros((), device=args.device)
        )
        self._micro_steps = 0
        self._tokens = torch.zeros((), dtype=torch.long, device=args.device)
        self._first_bad = FirstBad(args.device)
        self.run_id = ""
        self.initial_scores: dict[str, float] = {}
        keys, optimizer = Keys(self.sampler.count), chosen_optimizer(args)
        super().__init__(model, args, collator, keys, keys, optimizer_cls_and_kwargs=optimizer)
        if (kind := self.accelerator.distributed_type) not in _WHOLE:
            raise BadInput(
                f"{kind.value} shards the model, but evaluation needs the whole model: use "
                "MULTI_GPU"
            )
        self._probe = collator(
            [(-1, i, 0) for i in self.sampler.held or range(min(count, _PROBED))]
        )
        self.events = Steps(self.sampler, model)
        self.add_callback(self.events)
        self.add_callback(StopWhenAsked())
        # Dropout is the augmentation, so each process needs its own masks. All other draws are
        # keyed.
        set_seed(args.seed, device_specific=True)

    def _get_train_sampler(self, train_dataset=None) -> KeyedSampler:
        return self.sampler

    def get_train_dataloader(self):
        """Stock loader; its workers draw nothing, so they need no seeds, but must outlive a signal to the whole job."""
        loader = super().get_train_dataloader()
        loader.base_dataloader.worker_init_fn = outlast_signals
        return loader

    def count_steps(self) -> int:
        """Optimizer steps of the whole run."""
        *_, steps = self.set_initial_training_values(self.args, self.get_train_dataloader())
        return steps

    def floating_point_ops(self, inputs) -> int:
        """0: nothing shows this number, and the stock count walks over all modules for every batch."""
        return 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Stock loss; sums the terms on the device until they are logged."""
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self.count_terms(outputs.terms, inputs)
        return (loss, outputs) if return_outputs else loss

    def _get_num_items_in_batch(self, batch_samples, device):
        """The number of targets of each loss, (losses,); stock assumes a single loss."""
        if not self.model_accepts_loss_kwargs or not batch_samples:
            return None
        counts = sum(
            self.accelerator.unwrap_model(self.model).count_targets(batch)
            for batch in batch_samples
        )
        return self.accelerator.reduce(counts.to(device), reduction="sum")

    def count_terms(self, terms: dict[str, torch.Tensor], inputs: dict[str, torch.Tensor]) -> None:
        """Add the terms of one forward to the next logged mean, and its tokens to the run's total."""
        for name, value in terms.items():
            self._sums[name] += value
        self._micro_steps += 1
        self._tokens += inputs["attention_mask"].sum()

    def _count_tokens(self) -> int:
        """Tokens read so far by all processes; moves the count from the device to the Trainer's state."""
        self.state.num_input_tokens_seen += int(
            self.accelerator.reduce(self._tokens, reduction="sum")
        )
        self._tokens.zero_()
        return self.state.num_input_tokens_seen

    def _get_grad_norm(self, model, grad_norm=None):
        """Stock gradient norm, checked together with the terms before the optimizer step, see `FirstBad`."""
        norm = super()._get_grad_norm(model, grad_norm)
        scaled = (
            self.accelerator.scaler is not None
        )  # fp16: the scaler uses infinite gradients to find its scale
        self._first_bad.note(
            self.state.global_step + 1, [*self._sums.values(), *([] if scaled else [norm])]
        )
        if self.args.device.type == "cpu":
            self._stop_if_bad(float(norm))
        return norm

    def _stop_if_bad(self, norm: float | None = None) -> None:
        """Raise NonFinite after a bad step."""
        step = self._first_bad.step
        if not step:
            return
        wrong = [
            f"{name} {value:g}"
            for name, value in sorted(self._sums.items())
            if not value.isfinite()
        ]
        raise NonFinite(
            f"not finite at step {step}: {', '.join(wrong) or f'gradient norm {norm}'}; this step "
            "was not saved: lower "
            "--learning_rate, or raise --temperature if it is small"
        )

    def _require_finite(self) -> None:
        """Raise NonFinite if a weight or optimizer state is NaN or infinite; called before every write."""
        self._stop_if_bad()
        name = not_finite(self.accelerator.unwrap_model(self.model), self.optimizer)
        if name is not None:
            raise NonFinite(
                f"{name} is not finite after step {self.state.global_step}: lower --learning_rate"
            )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the mean terms since the last logging step.

        Raises:
            NonFinite: a loss or gradient since then was NaN or infinite.
        """
        if "loss" in logs and self._micro_steps:
            self._stop_if_bad()
            names = sorted(self._sums)
            means = torch.stack([self._sums[name] for name in names]) / self._micro_steps
            means = self.accelerator.reduce(means, reduction="mean").tolist()
            logs |= dict(zip(names, means, strict=True))
            self._sums.clear()
            self._micro_steps = 0
            logs["tokens"] = self._count_tokens()
        super().log(logs, start_time)

    def evaluate(
        self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Score the dev task and probe the model, alike on every process and without random draws.

        Before the first step this is only logged: the initial model is no candidate for the best.
        """
        self._require_finite()
        metrics: dict[str, float] = {}
        if self.is_world_process_zero():
            metrics = {
                f"{metric_key_prefix}_{name}": value for name, value in self._measure().items()
            }
        metrics = broadcast_object_list([metrics])[0]
        self.log({**metrics, "tokens": self._count_tokens()})
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        history, metric = self.state.log_history, self.args.metric_for_best_model
        collapse = describe_collapse(history, self.probes_equal_texts)
        if collapse and not describe_collapse(history[:-1], self.probes_equal_texts):
            logger.warning(collapse)
        if metric is not None and self.state.global_step > 0:
            value, root = metrics[f"{metric_key_prefix}_{metric}"], Path(self.args.output_dir)
            keep_if_best(root, self.run_id, self.state, metric, value, self.keep_best)
        if self.is_out_of_patience(history):
            self.control.should_training_stop = True
        return metrics

    @property
    def probes_equal_texts(self) -> bool:
        """Whether every example that `evaluate` probes has the same text."""
        texts = self._probe["input_ids"][0]
        return bool((texts == texts[0]).all())

    def is_out_of_patience(self, history: Sequence[dict[str, float]]) -> bool:
        """Whether the last `patience` evaluations of a log did not improve the dev score.

        Every checkpoint contains the log, so a resumed run ends where the uninterrupted one does.
        """
        name = f"eval_{self.args.metric_for_best_model}"
        scores = [line[name] for line in history if name in line and line["step"] > 0]
        return (
            bool(scores and self.patience)
            and len(scores) - 1 - scores.index(max(scores)) >= self.patience
        )

    def _measure(self) -> dict[str, float]:
        model = self.accelerator.unwrap_model(self.model)
        batch = send_to_device(self._probe, self.args.device)
        with self.accelerator.autocast():
            values = model.probe(**batch)
        if self.state.global_step == 0:
            return values | self.initial_scores
        return values if self.dev is None else values | self.dev()

    def _save_checkpoint(self, model, trial) -> None:
        """Save the stock state atomically, without `training_args.bin`, a pickle with absolute paths."""
        self._require_finite()
        self._count_tokens()
        root, step = Path(self.args.output_dir), self.state.global_step
        self.state.best_global_step = None  # the best model is not a checkpoint
        self.args.output_dir = str(root / STAGING)
        try:
            with quiet():  # no progress bar for every file
                super()._save_checkpoint(model, trial)
            wait_for_everyone(self.args.device)
            if self.is_world_process_zero():
                (root / STAGING / f"checkpoint-{step}" / "training_args.bin").unlink()
                commit_checkpoint(root, step, self.run_id, self.args.save_total_limit)
        except BaseException:
            if self.is_world_process_zero():
                remove(root / STAGING)  # half a checkpoint would fill a full disk
            raise
        finally:
            self.args.output_dir = str(root)
        wait_for_everyone(self.args.device)


class Steps(TrainerCallback):
    """Hooks at the start of training and of an epoch, at an optimizer step, and at the last step.

    Attributes:
        stepped: whether a step has begun: until then an error may come from the checkpoint.
    """

    def __init__(self, sampler: KeyedSampler, model) -> None:
        self.sampler, self.model = sampler, model
        self.stepped = False

    def on_train_begin(self, args, state, control, **kwargs):
        # The checkpoint restores its own intervals; --save_steps and --logging_steps may have
        # changed.
        state.compute_steps(args, state.max_steps)

    def on_step_begin(self, args, state, control, **kwargs):
        self.stepped = True

    def on_epoch_begin(self, args, state, control, **kwargs):
        # A resumed loader wraps the sampler several times and does not pass on the epoch.
        self.sampler.set_epoch(int(state.epoch or 0))

    def on_optimizer_step(self, args, state, control, optimizer, **kwargs):
        if not optimizer.step_was_skipped:  # fp16 skips a step whose gradients are infinite
            self.model.after_step()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_log = True


class StopWhenAsked(TrainerCallback):
    """At the end of a step after a signal, log, save and leave the loop; all processes after the
    same step.

    That is the next end of a step, or the one after if only another process received the signal.
    """

    def __init__(self) -> None:
        self._anyone = SharedFlag()

    def on_step_end(self, args, state, control, **kwargs):
        if self._anyone.raised(STOPPING.name is not None):
            control.should_log = control.should_save = control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        self._anyone.close()


class RunLog(TrainerCallback):
    """`log.jsonl`: one JSON object per logged line; a resumed run continues at its checkpoint."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "log.jsonl"

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.path.write_text(
                "".join(json.dumps(line) + "\n" for line in state.log_history), encoding="utf-8"
            )

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(state.log_history[-1]) + "\n")


class CachedTrainer(EmbeddingTrainer):
    """An EmbeddingTrainer that keeps the graph of `chunk_size` sentences at a time, see
    `models.fast.chunking`.

    Raises:
        BadInput: fp16, whose loss scaling the cache does not handle.
    """

    def __init__(self, model, args, *others, chunk_size: int) -> None:
        if args.fp16:
            raise BadInput("--chunk_size does not support --fp16: use --bf16")
        self._cache = GradientCache(model, chunk_size, lambda: self.accelerator.autocast())
        super().__init__(model, args, *others)

    def training_step(self, model, inputs, num_items_in_batch=None) -> torch.Tensor:
        """Forward and backward in chunks; bypasses the wrapped `model`, because the cache averages gradients once."""
        model.train()
        self.optimizer.train()
        inputs = self._prepare_inputs(inputs)
        batch = Batch.of(**inputs)
        scale = 1 / self.current_gradient_accumulation_steps
        output = self._cache.backward(batch, scale, self.accelerator.sync_gradients)
        self.count_terms(output.terms, inputs)
        return output.loss * scale
