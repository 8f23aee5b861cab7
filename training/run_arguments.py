"""The flags of training: transformers' TrainingArguments with this family's defaults, and the refused ones."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Literal

import torch
from transformers import SchedulerType, TrainingArguments, get_scheduler
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations
from transformers.training_args import OptimizerNames

from common.errors import BadInput


@dataclass
class RunArguments(TrainingArguments):
    """TrainingArguments with the defaults of this family.

    Sources: the SimCSE and InfoCSE scripts (AdamW without decay and warm-up, linear schedule, clipping at 1, seed
    42, batch 64, evaluation every 125 steps).
    """

    _argument_group_name = "training (transformers.TrainingArguments)"

    per_device_train_batch_size: int = field(default=64, metadata={"help": "sentences a step and process"})
    learning_rate: float = field(default=3e-5, metadata={"help": "peak learning rate"})
    bf16: bool = field(default=False, metadata={"help": "bfloat16 autocast; auto: where the machine computes it"})
    use_cpu: bool = field(default=False, metadata={"help": "leave a GPU unused; auto: without CUDA"})
    max_steps: int = field(default=-1, metadata={"help": "optimizer steps, instead of num_train_epochs; -1: by those"})
    change_steps: bool = field(
        default=False,
        metadata={"help": "go on with a run that had another --max_steps or --num_train_epochs; the steps left get "
                  "the learning rates of a run that began with the new ones"},
    )  # fmt: skip
    num_train_epochs: float = field(default=1.0, metadata={"help": "passes over the text"})
    eval_strategy: str = field(default="steps", metadata={"help": "always by steps"})
    eval_steps: float = field(default=125, metadata={"help": "evaluate every so many steps, and at the last one"})
    save_steps: float = field(default=1000, metadata={"help": "full resumable state every so many steps"})
    save_total_limit: int | None = field(default=2, metadata={"help": "resumable states that are kept"})
    logging_steps: float = field(default=25, metadata={"help": "log the mean of the terms every so many steps"})
    remove_unused_columns: bool = field(default=False, metadata={"help": "the collator makes the columns"})
    dataloader_drop_last: bool = field(
        default=True, metadata={"help": "the last batch would be smaller: fewer negatives, or repeated sentences"}
    )
    ddp_broadcast_buffers: bool | None = field(default=False, metadata={"help": "buffers agree by construction"})
    ddp_find_unused_parameters: bool | None = field(default=False, metadata={"help": "every parameter is used"})
    adamw: Literal["torch", "transformers", "uncorrected"] = field(
        default="torch",
        metadata={"help": "whose AdamW: torch's, that of transformers 4 (the official scripts of SimCSE, ESimCSE, "
                  "DiffCSE and InfoCSE), or the latter without bias correction (ConSERT, IS-BERT)"},
    )  # fmt: skip
    include_num_input_tokens_seen: bool = field(default=False, metadata={"help": "every logged line has the tokens"})
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "a loss that is not finite stops the run"})

    def __post_init__(self) -> None:
        """Refuse values that would fail later, or silently train something else.

        Raises:
            BadInput: a value out of its range, or a flag that conflicts with how runs are kept.
        """
        _check_ranges(self)
        _check_refused(self)
        if self.tf32 is None and (self.torch_compile or self.torch_compile_mode or self.torch_compile_backend):
            self.tf32 = False  # transformers would switch it on
        try:
            super().__post_init__()
        except (ImportError, OSError) as error:
            raise BadInput(f"a flag names a file or package that is not here: {error}") from error
        if self.torch_compile:
            _check_compiled(self)
        _check_checkpointing(self)
        self.accelerator_config.non_blocking = self.device.type == "cuda"  # the next batch travels during a step
        self.dataloader_pin_memory &= self.device.type == "cuda"  # without a GPU torch warns
        _check_precision(self)
        _check_schedule(self)


def _check_ranges(args: RunArguments) -> None:
    for names, (low, high) in _RANGES.items():
        for name in names.split():
            value = getattr(args, name)
            if value is not None and not low <= value <= high:  # NaN is in no range
                raise BadInput(f"--{name} {value}: a number from {low:g} to {high:g} is needed")


def _check_refused(args: RunArguments) -> None:
    if args.save_strategy == "best":
        raise BadInput("--save_strategy best: the best model is kept in best/ anyway; a checkpoint is to go on from")
    if args.max_steps == 0 or args.max_steps < -1:
        raise BadInput(f"--max_steps {args.max_steps}: a number of steps is needed, or -1 for --num_train_epochs")
    for name, reason in _REFUSED.items():
        if getattr(args, name):
            raise BadInput(f"--{name}: {reason}")
    for name, (value, reason) in _ONLY.items():
        if getattr(args, name) != value:
            raise BadInput(f"--{name} {getattr(args, name)}: is always {str(value).lower()}; {reason}")


def _check_precision(args: RunArguments) -> None:
    """Launcher and flags must agree: plan, record and evaluation take the precision from the flags."""
    said = "fp16" if args.fp16 else "bf16" if args.bf16 else "no"
    if args.mixed_precision != said:
        raise BadInput(
            f"the launcher asks for mixed precision '{args.mixed_precision}' and the flags for '{said}': say it by "
            "--bf16 or --fp16, true or false, and leave it out of accelerate's configuration"
        )
    if args.fp16 and args.device.type == "cpu":
        raise BadInput("--fp16: is not computed on a CPU; use --bf16, or neither")


def _check_compiled(args: RunArguments) -> None:
    """A compiled step is whole and of few shapes."""
    if args.world_size > 1:
        raise BadInput("--torch_compile: is tested for one process only; leave it out with several")
    os.environ |= {"ACCELERATE_DYNAMO_USE_FULLGRAPH": "true", "ACCELERATE_DYNAMO_USE_DYNAMIC": "false"}


def _check_checkpointing(args: RunArguments) -> None:
    """A layer that is computed again must draw the same dropout; and a compiler decides itself what it keeps."""
    if args.activation_checkpointing and args.torch_compile:
        raise BadInput("--activation_checkpointing and --torch_compile do not go together: a compiled step is whole")
    unknown = sorted((args.activation_checkpointing_kwargs or {}).keys() - {"every_n_layers", "offload"})
    if unknown:
        raise BadInput(f"--activation_checkpointing_kwargs: every_n_layers and offload are known, not {unknown[0]}")


def _check_schedule(args: RunArguments) -> None:
    """Refuse optimizers and schedules that the libraries would reject only after training has begun."""
    name, optim = SchedulerType(args.lr_scheduler_type).value, OptimizerNames(args.optim).value
    if args.adamw != "torch" and (optim not in ("adamw_torch", "adamw_torch_fused") or args.optim_args):
        raise BadInput(f"--adamw {args.adamw}: is an optimizer of its own; leave --optim and --optim_args out")
    if name in ("reduce_lr_on_plateau", "greedy"):
        raise BadInput(f"--lr_scheduler_type {name}: would follow the dev score, which chooses the best model already")
    if optim.startswith("schedule_free"):
        raise BadInput(f"--optim {optim}: its averaged weights would have to be put in place for every evaluation")
    if any(part.count("=") != 1 for part in (args.optim_args or "a=1").split(",")):
        raise BadInput(f"--optim_args {args.optim_args}: name=value, separated by commas, is needed")
    try:
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        get_scheduler(name, optimizer, 1, 10, args.lr_scheduler_kwargs)
    except (TypeError, ValueError, KeyError) as error:
        raise BadInput(
            f"--lr_scheduler_type {name} --lr_scheduler_kwargs {args.lr_scheduler_kwargs}: {error}"
        ) from error


def settle_packing(wanted: bool | None, args: TrainingArguments) -> bool:
    """`--packed`, or its default: packed on a CPU; padded on a GPU, until results/ has figures from one."""
    return args.device.type == "cpu" if wanted is None else wanted


def path_in_words(packed: bool, args: TrainingArguments) -> str:
    """Which path runs, for the plan."""
    why = "; the default on a GPU until one was measured, see docs/gpu.md" if args.device.type != "cpu" else ""
    return "yes, real tokens only" if packed else f"no, with padding{why}"


def check_machine(args: TrainingArguments, count: int, held_out: int) -> None:
    """Refuse what depends on the processes, on the `count` examples to train on, and on the installed packages."""
    if args.n_gpu > 1:
        raise BadInput(
            "several GPUs in one process would be nn.DataParallel; start with `accelerate launch`, "
            "--config_file configs/accelerate/two_gpus.yaml or one_gpu.yaml, which names one"
        )
    if count < args.per_device_train_batch_size * args.world_size:
        beside = f", with {held_out} held out," if held_out else ""
        raise BadInput(
            f"{count} examples{beside} are fewer than one batch of {args.per_device_train_batch_size} x "
            f"{args.world_size}"
        )
    absent = sorted({*args.report_to} - {*get_available_reporting_integrations(), "none"})
    if absent and absent[0] in INTEGRATION_TO_CALLBACK:
        raise BadInput(f"--report_to {absent[0]}: not installed here; install the package of that tracker")
    if absent:
        known = ", ".join(sorted(INTEGRATION_TO_CALLBACK))
        raise BadInput(f"--report_to {absent[0]}: unknown to transformers, which knows {known}")


def steps_of(args: TrainingArguments, count: int) -> int:
    """Optimizer steps of a run over `count` examples, as the Trainer counts: an epoch's last step may be smaller."""
    batches = count // (args.per_device_train_batch_size * args.world_size)
    updates = math.ceil(batches / args.gradient_accumulation_steps)
    return args.max_steps if args.max_steps > 0 else math.ceil(updates * args.num_train_epochs)


def saved_at_once(args: TrainingArguments, steps: int) -> int:
    """The most checkpoints that a run has on its disk at a time: those it keeps, and the next one."""
    every = args.save_steps if args.save_steps >= 1 else args.save_steps * steps
    count = math.ceil(steps / every) if args.save_strategy == "steps" and every else 1
    return min(count, args.save_total_limit + 1) if args.save_total_limit else count


_TINY, _HUGE = 1e-45, 1e30
_RANGES = {
    "per_device_train_batch_size gradient_accumulation_steps save_total_limit": (1, 1e9),
    "learning_rate weight_decay max_grad_norm warmup_steps dataloader_num_workers eval_delay": (0, _HUGE),
    "num_train_epochs save_steps eval_steps logging_steps adam_epsilon": (_TINY, _HUGE),
    "adam_beta1 adam_beta2": (0, 1 - 1e-7),
    "seed": (0, 2**32 - 1),
}
_ONLY = {
    "eval_strategy": ("steps", "--dev none keeps the last model"),
    "train_sampling_strategy": ("random", "which sentences share a batch decides what they are told from"),
    "average_tokens_across_devices": (True, "a loss is a mean over the targets of all processes"),
    "dataloader_in_order": (True, "batches in another order are another run"),
}
_REFUSED = {
    "auto_find_batch_size": "another batch size is another experiment, since a batch is its own negatives",
    "accelerator_config": "how batches are dealt to processes is fixed here",
    "data_seed": "--seed decides the order of the text too",
    "label_smoothing_factor": "the losses are the papers'",
    "dataloader_persistent_workers": "a resumed run would draw other dropout than the uninterrupted one",
    "load_best_model_at_end": "the best model is kept apart, and is the result, without it",
    "metric_for_best_model": "--dev and --dev_file choose what the best model is the best at",
    "include_num_input_tokens_seen": "every logged line has the tokens anyway, and they would be counted twice",
    "neftune_noise_alpha": "is for language models",
    "enable_jit_checkpoint": "signals are answered here, after the step",
    "eval_on_start": "a resumed run would evaluate more often; use `python -m eval` on the start",
    "resume_from_checkpoint": "the same command goes on by itself, from the newest whole checkpoint",
    "push_to_hub": "would upload the run's folder, pickles and paths included; use `python -m export --push_to_hub`",
    "hub_token": "would be written into run.json; set HF_TOKEN, and use `python -m export --push_to_hub`",
    "save_only_model": "a run could not go on from such a checkpoint",
    "ignore_data_skip": "a resumed run would see other batches than the uninterrupted one",
}
