"""The Trainer of both stages: sentence evaluation, logged loss terms and its own saving.

Its callbacks are the hooks of a step, signals and the log.
"""

from __future__ import annotations

import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, broadcast_object_list, send_to_device, set_seed
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

from common.errors import BadInput, NonFinite
from common.folders import remove
from common.signals import STOPPING, outlast_signals
from data.collator import Collator
from data.draws import KeyedSampler, Keys
from models.collectives import SharedFlag, wait_for_everyone
from models.fast.chunking import GradientCache
from models.loading import quiet
from models.objectives.base import Batch
from training.adamw import chosen_optimizer
from training.curves import describe_collapse
from training.faults import not_finite
from training.run_arguments import RunArguments, check_machine
from training.run_folder import STAGING, commit_checkpoint, keep_if_best

logger = logging.getLogger(__name__)
_WHOLE = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
_PROBED = 128  # examples
_SPARED = 100  # at most one example in this many is held out
_FEWEST = 10  # examples; fewer would be too noisy


class EmbeddingTrainer(Trainer):
    """Stock training with another evaluation, a best model beside the checkpoints, and loss terms.

    Args:
        model: returns `loss` and `terms`, and has `probe(**batch)` and `after_step()`.
        args: the run's.
        collator: keys -> batch.
        count: examples in the corpus.
        dev: () -> values by name, including `args.metric_for_best_model`; None if no best model is
            selected.
        keep_best: writes the model into an empty folder; called on the main process when the dev
            value improves.
        held_out: examples to probe at every evaluation and never train on. At most one in `_SPARED`
            is held out, and none if that would be fewer than `_FEWEST`; then the first examples are
            probed.
        patience: evaluations without improvement after which training ends; None: never.

    Attributes:
        run_id: the run that owns the saved folders.
        initial_scores: the dev values of the initial model, by name; logged at step 0.
        events: knows whether a step was taken.
    """

    model: Any  # of stage 1 or of a method; transformers allows None
    args: RunArguments

    def __init__(
        self,
        model,
        args: RunArguments,
        collator: Collator,
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
        self.run_id = ""
        self.initial_scores: dict[str, float] = {}
        self._sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=args.device))
        self._micro_steps = 0
        self._tokens = torch.zeros((), dtype=torch.long, device=args.device)
        self._norms = torch.zeros((), device=args.device)
        keys, optimizer = Keys(self.sampler.count), chosen_optimizer(args)
        super().__init__(model, args, collator, keys, keys, optimizer_cls_and_kwargs=optimizer)
        kind = self.accelerator.distributed_type
        # With FSDP on a CPU accelerate would run DDP.
        if kind not in _WHOLE or os.environ.get("ACCELERATE_USE_FSDP") == "true":
            raise BadInput(
                "accelerate's configuration shards the model, but evaluation and checkpoints need "
                "the whole model (docs/scale.md): use MULTI_GPU"
            )
        self.accelerator.clip_grad_norm_ = self.clip  # what all its ways to clip end in
        probed = self.sampler.held or range(min(count, _PROBED))
        self._probe = collator([(-1, index, 0) for index in probed])
        self.events = Steps(self.sampler, model)
        self.add_callback(self.events)
        self.add_callback(StopWhenAsked())
        self.add_callback(RunLog(args.output_dir))
        # Dropout is the augmentation, so each process needs its own masks. All other draws are
        # keyed.
        set_seed(args.seed, device_specific=True)

    def get_train_dataloader(self) -> DataLoader:
        """The stock loader with the keyed sampler and workers that outlast a signal to the job.

        The workers draw nothing, so they need no seeds. They end with an epoch: torch draws a
        number from dropout's stream when it makes an iterator, so one that stayed for all epochs
        would draw fewer numbers in a whole run than in a resumed one.
        """
        args = self.args
        loader = DataLoader(
            Keys(self.sampler.count),
            args.per_device_train_batch_size,
            sampler=self.sampler,
            collate_fn=self.data_collator,
            drop_last=args.dataloader_drop_last,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            worker_init_fn=outlast_signals,
        )
        return self.accelerator.prepare(loader)

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, Tensor | None]:
        """The batches of a step, and the number of targets of each loss in them, (losses,).

        Stock assumes one loss. None where the loss is a mean over the batch.
        """
        batches = list(islice(epoch_iterator, num_batches))
        if not self.model_accepts_loss_kwargs or not batches:
            return batches, None
        counts = torch.stack([self.model.count_targets(batch) for batch in batches]).sum(0)
        return batches, self.accelerator.reduce(counts.to(device), reduction="sum")

    def count_steps(self) -> int:
        """Optimizer steps of the whole run."""
        *_, steps = self.set_initial_training_values(self.args, self.get_train_dataloader())
        return steps

    def floating_point_ops(self, inputs) -> int:
        """0: nothing shows this number, and stock walks over all modules to count it."""
        return 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Stock loss; sums the terms on the device until they are logged."""
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self.count_terms(outputs.terms, inputs, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def count_terms(
        self, terms: dict[str, Tensor], inputs: dict[str, Tensor], counts: Tensor | None = None
    ) -> None:
        """Add the terms of a forward to the next logged mean, and its tokens to the run's total.

        With `counts`, of the targets in all forwards of the step and all processes, a term is its
        forward's share of the step's mean.
        """
        forwards = self.current_gradient_accumulation_steps * self.args.world_size
        for name, value in terms.items():
            self._sums[name] += value if counts is None else value * forwards
        self._micro_steps += 1
        self._tokens += inputs["attention_mask"].sum()

    def _count_tokens(self) -> int:
        """Tokens read so far by all processes; moves the count from the device to the state."""
        counted = self.accelerator.reduce(self._tokens, reduction="sum")
        self.state.num_input_tokens_seen += int(counted)
        self._tokens.zero_()
        return self.state.num_input_tokens_seen

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Stock clipping; the norm before it is added to those since the last logged step."""
        self.accelerator.unscale_gradients()
        norm = nn.utils.clip_grad_norm_(parameters, max_norm)
        if self.accelerator.scaler is None:  # fp16 finds its scale by infinite gradients
            self._norms += norm
        return norm

    def _stop_if_bad(self) -> None:
        """Raise NonFinite for a term or gradient norm since the last logged step.

        One that is not finite stays in its sum, so nothing waits for the device in every step.
        """
        sums = [*sorted(self._sums.items()), ("gradient norm", self._norms)]
        wrong = [f"{name} {value:g}" for name, value in sums if not value.isfinite()]
        if wrong:
            since = self.state.log_history[-1]["step"] if self.state.log_history else 0
            raise NonFinite(
                f"not finite after step {since}, found at step {self.state.global_step}: "
                f"{', '.join(wrong)}; not saved: lower --learning_rate, or raise --temperature if "
                "it is small"
            )

    def _require_finite(self) -> None:
        """Raise NonFinite for a bad weight or optimizer state; called before every write."""
        self._stop_if_bad()
        name = not_finite(self.model, self.optimizer)
        if name is not None:
            raise NonFinite(
                f"{name} is not finite after step {self.state.global_step}: lower --learning_rate"
            )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the mean terms since the last logging step.

        Raises:
            NonFinite: a loss or gradient since then was NaN or infinite.
        """
        self._stop_if_bad()
        if "loss" in logs and self._micro_steps:
            names = sorted(self._sums)
            means = torch.stack([self._sums[name] for name in names]) / self._micro_steps
            means = self.accelerator.reduce(means, reduction="mean")
            logs |= dict(zip(names, means.tolist(), strict=True))
            self._sums.clear()
            self._norms.zero_()
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
            values = self._measure()
            metrics = {f"{metric_key_prefix}_{name}": value for name, value in values.items()}
        [metrics] = broadcast_object_list([metrics])
        self.log({**metrics, "tokens": self._count_tokens()})
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        history, metric = self.state.log_history, self.args.metric_for_best_model
        collapse = describe_collapse(history, self.probes_equal_texts)
        if collapse and not describe_collapse(history[:-1], self.probes_equal_texts):
            logger.warning(collapse)
        if metric and self.keep_best and self.state.global_step > 0:
            root, value = Path(self.args.output_dir), metrics[f"{metric_key_prefix}_{metric}"]
            keep_if_best(root, self.run_id, self.state, metric, value, self.keep_best)
        if self.is_out_of_patience(history):
            self.control.should_training_stop = True
        return metrics

    def _measure(self) -> dict[str, float]:
        batch = send_to_device(self._probe, self.args.device)
        with self.accelerator.autocast():
            values = self.model.probe(**batch)
        if self.state.global_step == 0:
            return values | self.initial_scores
        return values if self.dev is None else values | self.dev()

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
        if not self.patience or not scores:
            return False
        return len(scores) - 1 - scores.index(max(scores)) >= self.patience

    def _save_checkpoint(self, model, trial) -> None:
        """Save the stock state atomically, without `training_args.bin`, a pickle with paths."""
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
        finally:
            self.args.output_dir = str(root)
            if self.is_world_process_zero():
                remove(root / STAGING)  # half a checkpoint would fill a full disk
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

    def on_optimizer_step(self, args, state, control, **kwargs):
        # fp16 skips a step whose gradients are infinite.
        if not kwargs["optimizer"].step_was_skipped:
            self.model.after_step()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_log = True


class StopWhenAsked(TrainerCallback):
    """After a signal, log, save and leave the loop; all processes at the end of the same step.

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
            lines = [json.dumps(line) + "\n" for line in state.log_history]
            self.path.write_text("".join(lines), encoding="utf-8")

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(state.log_history[-1]) + "\n")


class CachedTrainer(EmbeddingTrainer):
    """Keeps the graph of `chunk_size` sentences at a time, see `models.fast.chunking`.

    Raises:
        BadInput: fp16, whose loss scaling the cache does not handle.
    """

    def __init__(self, model, args: RunArguments, *others, chunk_size: int, **more) -> None:
        if args.fp16:
            raise BadInput("--chunk_size does not support --fp16: use --bf16")
        self._cache = GradientCache(model, chunk_size, lambda: self.accelerator.autocast())
        super().__init__(model, args, *others, **more)

    def training_step(self, model, inputs, num_items_in_batch=None) -> Tensor:
        """Forward and backward in chunks.

        Bypasses the wrapped `model`, because the cache averages gradients once.
        """
        model.train()
        scale = 1 / self.current_gradient_accumulation_steps
        last = self.accelerator.sync_gradients
        output = self._cache.backward(Batch.of(**inputs), scale, last)
        self.count_terms(output.terms, inputs)
        return output.loss * scale
