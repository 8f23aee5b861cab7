"""The Trainer of both stages: stock training, its own evaluation, terms in the log."""

from __future__ import annotations

import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from accelerate.utils import broadcast_object_list, set_seed
from transformers import Trainer, TrainerCallback

from data.sampler import KeyedSampler, Keys
from errors import BadInput, CheckpointRefused, NonFinite

logger = logging.getLogger(__name__)
COLLAPSED = -0.05  # uniformity; 0 means that all vectors point the same way, untrained BERT has about -1.5


class EmbeddingTrainer(Trainer):
    """Stock Trainer, with evaluation on a callable, the best model kept apart, and raw terms logged by name.

    Args:
        model: returns `loss` and `terms`, and has `probe(**batch)` and `after_step()`.
        args: TrainingArguments.
        collator: keys -> batch.
        count: examples in the corpus.
        dev: () -> (name of the metric, value), or None when nothing selects a best model.
        keep_best: called on the main process whenever the dev value improves.
        probe: keys of the batch that is looked at in every evaluation.
    """

    def __init__(
        self,
        model,
        args,
        collator,
        count: int,
        dev: Callable[[], tuple[str, float]] | None = None,
        keep_best: Callable[[int, float], None] | None = None,
    ) -> None:
        if args.n_gpu > 1:
            raise BadInput("several GPUs in one process would be nn.DataParallel; start with `accelerate launch`")
        if count < args.per_device_train_batch_size * args.world_size:
            raise BadInput(
                f"{count} examples are fewer than one batch of {args.per_device_train_batch_size} x {args.world_size}"
            )
        self.sampler = KeyedSampler(args.seed, count, args.per_device_train_batch_size * args.world_size)
        self.dev, self.keep_best = dev, keep_best
        self._sums: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros((), device=args.device))
        self._micro_steps = 0
        super().__init__(
            model=model, args=args, data_collator=collator, train_dataset=Keys(count), eval_dataset=Keys(count)
        )
        self._probe = collator([(-1, i, 0) for i in range(min(count, 128))])
        self.add_callback(_Steps(self.sampler, model))
        # Dropout is the augmentation: each process needs masks of its own. Everything else random is keyed.
        set_seed(args.seed, device_specific=True)

    def _get_train_sampler(self, train_dataset=None) -> KeyedSampler:
        return self.sampler

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Stock loss; the terms are summed on the device until they are logged."""
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self.count_terms(outputs.terms)
        return (loss, outputs) if return_outputs else loss

    def count_terms(self, terms: dict[str, torch.Tensor]) -> None:
        """Add one forward's terms to what the next logged line is the mean of."""
        for name, value in terms.items():
            self._sums[name] += value
        self._micro_steps += 1

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the terms' means since the last logging step; stop on a loss that is not finite.

        Raises:
            NonFinite: a logged loss is NaN or infinite.
        """
        if "loss" in logs and self._micro_steps:
            names = sorted(self._sums)
            means = torch.stack([self._sums[name] for name in names]) / self._micro_steps
            means = self.accelerator.reduce(means, reduction="mean").tolist()
            logs |= dict(zip(names, means, strict=True))
            self._sums.clear()
            self._micro_steps = 0
            bad = [name for name in ("loss", *names) if not math.isfinite(logs[name])]
            if bad:
                raise NonFinite(
                    f"{bad[0]} is {logs[bad[0]]} at step {self.state.global_step}: lower --learning_rate, or --bf16 off"
                )
        super().log(logs, start_time)

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """Score the dev task and probe the model; the same numbers on every process, no random draw."""
        found: list[dict[str, float]] = [{}]
        if self.is_world_process_zero():
            found = [{f"{metric_key_prefix}_{name}": value for name, value in self._measure().items()}]
        metrics = broadcast_object_list(found)[0]
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        metric = self.args.metric_for_best_model
        if metric is not None and self.is_world_process_zero():
            value, best = metrics[f"{metric_key_prefix}_{metric}"], self.state.best_metric
            if best is None or value > best:
                self.keep_best(self.state.global_step, value)
        return metrics

    def _measure(self) -> dict[str, float]:
        model = self.accelerator.unwrap_model(self.model)
        batch = {name: value.to(self.args.device) for name, value in self._probe.items()}
        with self.accelerator.autocast():
            seen = model.probe(**batch)
        if seen.get("uniformity", -1.0) > COLLAPSED:
            logger.warning("the encoder has collapsed (uniformity %.3f): lower --learning_rate", seen["uniformity"])
        return seen | ({} if self.dev is None else dict([self.dev()]))

    def _issue_warnings_after_load(self, load_result) -> None:
        """A resumed model must be whole; tensors that share their memory are stored once."""
        state, absent = self.model.state_dict(), set(load_result.missing_keys)
        loaded = {value.data_ptr() for name, value in state.items() if name not in absent}
        missing = {name for name in absent if state[name].data_ptr() not in loaded}
        if missing or load_result.unexpected_keys:
            names = sorted(missing) + sorted(load_result.unexpected_keys)
            raise CheckpointRefused(f"the checkpoint does not fit the model: {names[0]} ({len(names)} tensors in all)")
        self.model.tie_weights()


class _Steps(TrainerCallback):
    """What has to happen at an epoch's begin, after an optimizer step, and at the last step."""

    def __init__(self, sampler: KeyedSampler, model) -> None:
        self.sampler, self.model = sampler, model

    def on_epoch_begin(self, args, state, control, **kwargs):
        # A resumed loader hides the sampler behind several wrappers that do not pass the epoch on.
        self.sampler.set_epoch(int(state.epoch or 0))

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.model.after_step()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_log = True
        return control


class RunLog(TrainerCallback):
    """`log.jsonl`: one JSON object a logged line; a resumed run continues where its checkpoint was."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "log.jsonl"

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.path.write_text("".join(json.dumps(line) + "\n" for line in state.log_history), encoding="utf-8")

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(state.log_history[-1]) + "\n")

    def on_save(self, args, state, control, **kwargs):
        # A pickle with absolute paths that nothing here reads.
        if state.is_world_process_zero:
            for file in Path(args.output_dir).glob("checkpoint-*/training_args.bin"):
                file.unlink()
