"""Training flags: transformers' TrainingArguments with this family's defaults, and refused values."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedModel, TrainingArguments, get_scheduler
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations

from common.arguments import ModelArguments, ScoredArguments, SentenceArguments
from common.errors import BadInput
from common.ranges import Count, Positive, Rate, Seed, Weight, check_range, flag
from models.objectives.base import Method
from training.refused import REFUSED

ADAMW = ("adamw_torch", "adamw_torch_fused")  # values of --optim
_GRAPHS = 64  # shapes of batches that a compiled run may have; torch's 8 end some runs


@dataclass
class RunArguments(TrainingArguments):
    """TrainingArguments with this family's defaults.

    Source: the SimCSE and InfoCSE scripts (AdamW without weight decay, no warm-up, linear schedule, clipping at 1, seed
    42, batch 64, evaluation every 125 steps).
    """

    output_dir: str | None = flag(None, "the run's folder: result, record, log and checkpoints")
    seed: int = flag(42, "seed of new weights, of the order of the text and of every random draw")
    per_device_train_batch_size: int = flag(64, "sentences per step and process")
    learning_rate: float = flag(3e-5, "peak learning rate")
    bf16: bool = flag(False, "bfloat16 autocast; auto: if the machine supports it")
    use_cpu: bool = flag(False, "train on the CPU; auto: if there is no CUDA GPU")
    max_steps: int = flag(-1, "optimizer steps; -1: use num_train_epochs")
    change_steps: bool = flag(
        False,
        "resume a run with a different --max_steps or --num_train_epochs; the remaining steps get the learning "
        "rates of a run with the new value",
    )
    num_train_epochs: float = flag(1.0, "passes over the text")
    eval_strategy: str = "steps"
    eval_steps: float = flag(125, "steps between evaluations; the last step is evaluated")
    save_steps: float = flag(1000, "steps between resumable checkpoints")
    save_total_limit: int | None = flag(2, "how many checkpoints to keep")
    logging_steps: float = flag(25, "steps between logged means of the loss terms")
    remove_unused_columns: bool = False
    dataloader_drop_last: bool = True
    ddp_broadcast_buffers: bool | None = False
    ddp_find_unused_parameters: bool | None = flag(
        False, "true for encoders with weights that get no gradient, such as Longformer and XLNet"
    )
    adamw: Literal["torch", "transformers", "uncorrected"] = flag(
        "torch",
        "AdamW implementation: torch, transformers 4 (official scripts of SimCSE, ESimCSE, DiffCSE and InfoCSE), "
        "or transformers 4 without bias correction (ConSERT, IS-BERT)",
    )
    cuda_graph: bool = flag(
        False,
        "replay the whole step as one CUDA graph for every shape of batch: 2.5 to 5 times as fast on an H200 "
        "(results/gpu-h200.md); one GPU; on a CPU nothing is captured",
    )
    include_num_input_tokens_seen: bool = False
    logging_nan_inf_filter: bool = False

    def __post_init__(self) -> None:
        """Refuse values that would fail later, or silently train something else.

        Raises:
            BadInput: a value is out of range, or a flag is not supported here.
        """
        _check_values(self)
        if self.ddp_backend and "WORLD_SIZE" not in os.environ:
            raise BadInput("--ddp_backend: has no effect with one process; use accelerate launch, or leave it out")
        if self.bf16 and not self.use_cpu and not torch.cuda.is_available():
            raise BadInput("--bf16 true: there is no CUDA GPU; give --use_cpu auto --bf16 auto")
        if self.tf32 is None and (self.torch_compile or self.torch_compile_mode or self.torch_compile_backend):
            self.tf32 = False  # transformers would turn it on
        try:
            super().__post_init__()
        except (ImportError, OSError) as error:
            raise BadInput(f"a flag names a file or package that is missing: {error}") from error
        if self.device.type not in ("cpu", "cuda"):
            raise BadInput(f"device '{self.device.type}' is not supported; give --use_cpu true (or auto)")
        if self.torch_compile:
            _check_compiled(self)
        elif os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no").lower() != "no":
            raise BadInput("the launcher compiles the model: leave dynamo out of accelerate's configuration, and use "
                           "--torch_compile")  # fmt: skip
        _check_activation_flags(self)
        self.accelerator_config.non_blocking = self.device.type == "cuda"  # copies the next batch during a step
        self.dataloader_pin_memory &= self.device.type == "cuda"  # without a GPU torch warns
        _check_precision(self)
        _check_optimizer(self)
        _check_schedule(self)


def argument_groups(method: Method) -> tuple[type, ...]:
    """The dataclasses whose fields are the flags of a run: model, method, data and training."""
    data = ScoredArguments if method.labels else SentenceArguments
    return ModelArguments, method.arguments, data, RunArguments


def _check_values(args: RunArguments) -> None:
    for kind, names in _RANGES.items():
        for name in names.split():
            check_range(name, getattr(args, name), kind)
    if args.dataloader_multiprocessing_context and not args.dataloader_num_workers:
        raise BadInput("--dataloader_multiprocessing_context: has no effect without --dataloader_num_workers")
    if args.save_strategy == "best":
        raise BadInput("--save_strategy best: best/ keeps the best model anyway; checkpoints are for resuming")
    if args.max_steps == 0 or args.max_steps < -1:
        raise BadInput(f"--max_steps {args.max_steps}: must be positive, or -1 for --num_train_epochs")
    for name, default in ((f.name, f.default) for f in fields(args) if f.name in REFUSED):
        if getattr(args, name) != default:
            raise BadInput(f"--{name}: {REFUSED[name]}; leave it out")  # without the value, which may be a token


def _check_precision(args: RunArguments) -> None:
    """Launcher and flags must agree: plan, record and evaluation read the precision from the flags."""
    precision = "fp16" if args.fp16 else "bf16" if args.bf16 else "no"
    if args.mixed_precision != precision:
        raise BadInput(
            f"the launcher sets mixed precision '{args.mixed_precision}' and the flags '{precision}': use --bf16 or "
            "--fp16, and leave it out of accelerate's configuration"
        )
    if args.fp16 and args.device.type == "cpu":
        raise BadInput("--fp16: not supported on a CPU; use --bf16, or neither")


def _check_compiled(args: RunArguments) -> None:
    """Compile the whole step as one graph with static shapes."""
    if args.world_size > 1:
        raise BadInput("--torch_compile: tested with one process only; leave it out with several")
    os.environ |= {"ACCELERATE_DYNAMO_USE_FULLGRAPH": "true", "ACCELERATE_DYNAMO_USE_DYNAMIC": "false"}
    torch._dynamo.config.recompile_limit = _GRAPHS


def _check_activation_flags(args: RunArguments) -> None:
    """Recomputed layers must draw the same dropout, and a compiler decides itself what to keep."""
    if args.activation_checkpointing and args.torch_compile:
        raise BadInput("--activation_checkpointing excludes --torch_compile: a compiled step is a single graph")
    _check_mapping("activation_checkpointing_kwargs", args.activation_checkpointing_kwargs, '{"every_n_layers": 2}')
    options = args.activation_checkpointing_kwargs or {}
    if unknown := sorted(options.keys() - {"every_n_layers", "offload"}):
        raise BadInput(f"--activation_checkpointing_kwargs: unknown {unknown[0]}; use every_n_layers or offload")
    if options.get("offload") and args.device.type == "cpu":
        raise BadInput("--activation_checkpointing_kwargs: offload moves activations from a GPU; leave it out")
    if options and not args.activation_checkpointing:
        raise BadInput("--activation_checkpointing_kwargs: has no effect without --activation_checkpointing true")
    every = options.get("every_n_layers", 1)
    if type(every) is not int or every < 1:
        raise BadInput(f"--activation_checkpointing_kwargs: every_n_layers {every}: must be an integer of at least 1")


def _check_optimizer(args: RunArguments) -> None:
    optim = args.optim.value
    if args.adamw != "torch" and (optim not in ADAMW or args.optim_args):
        raise BadInput(f"--adamw {args.adamw} replaces the optimizer; leave out --optim and --optim_args")
    if args.optim_target_modules and not optim.startswith(("galore", "apollo")):
        raise BadInput(f"--optim_target_modules: --optim {optim} ignores it; it is for galore and apollo")
    if optim.startswith("schedule_free"):
        raise BadInput(f"--optim {optim}: not supported, since every evaluation would need its averaged weights")
    if any(part.count("=") != 1 for part in (args.optim_args or "a=1").split(",")):
        raise BadInput(f"--optim_args {args.optim_args}: must be name=value pairs, separated by commas")
    if args.optim_args and optim in ADAMW:
        raise BadInput(f"--optim_args {args.optim_args}: --optim {optim} ignores it; use --weight_decay, --adam_beta1, "
                       "--adam_beta2 and --adam_epsilon")  # fmt: skip


def _check_schedule(args: RunArguments) -> None:
    """Refuse schedules that the libraries would reject only after training has started."""
    name = args.lr_scheduler_type.value
    if name in ("reduce_lr_on_plateau", "greedy"):
        raise BadInput(f"--lr_scheduler_type {name}: depends on the dev score, which already selects the best model")
    if name == "constant" and args.warmup_steps:
        raise BadInput(f"--warmup_steps {args.warmup_steps}: --lr_scheduler_type constant has no warm-up; use "
                       "constant_with_warmup")  # fmt: skip
    _check_mapping("lr_scheduler_kwargs", args.lr_scheduler_kwargs, '{"num_cycles": 2}')
    try:
        optimizer = torch.optim.SGD([torch.zeros(1)], args.learning_rate)
        schedule = get_scheduler(name, optimizer, 1, 10, args.lr_scheduler_kwargs)
        for _ in range(10):
            optimizer.step()  # the schedule warns without it
            schedule.step()
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        raise BadInput(
            f"--lr_scheduler_type {name} --lr_scheduler_kwargs {args.lr_scheduler_kwargs}: {error}"
        ) from error


def _check_mapping(name: str, value: object, example: str) -> None:
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"--{name} {value}: must be a JSON object, such as '{example}'")


def settle_packing(wanted: bool | None, args: RunArguments) -> bool:
    """`--packed`, or its default: packed on a CPU and in a CUDA graph, padded on a GPU without one.

    Source: results/gpu-h200.md. Packing starts more kernels, which cost a host without a graph more than padding costs.
    """
    return args.device.type == "cpu" or args.cuda_graph if wanted is None else wanted


def describe_packing(packed: bool, args: TrainingArguments) -> str:
    """The value of `--packed` and its reason, for the plan."""
    reason = "; the default on a GPU without --cuda_graph, see docs/gpu.md"
    return "yes, real tokens only" if packed else f"no, with padding{reason * (args.device.type != 'cpu')}"


def check_machine(args: TrainingArguments, count: int, held_out: int) -> None:
    """Check the devices, the number of training examples and the installed trackers."""
    if args.n_gpu > 1:
        raise BadInput(
            "one process sees several GPUs (nn.DataParallel is not supported); use `accelerate launch --config_file` "
            "with configs/accelerate/two_gpus.yaml or one_gpu.yaml"
        )
    if count < args.per_device_train_batch_size * args.world_size:
        excluded = f", with {held_out} held out," if held_out else ""
        raise BadInput(
            f"{count} examples{excluded} are fewer than one batch of {args.per_device_train_batch_size} in each of "
            f"{args.world_size} processes; lower --per_device_train_batch_size or give more text"
        )
    missing = sorted({*args.report_to} - {*get_available_reporting_integrations(), "none"})
    if missing and missing[0] in INTEGRATION_TO_CALLBACK:
        raise BadInput(f"--report_to {missing[0]}: the tracker is not installed; install its package")
    if missing:
        choices = ", ".join(sorted(INTEGRATION_TO_CALLBACK))
        raise BadInput(f"--report_to {missing[0]}: unknown to transformers; choose from {choices}")


def check_activation_checkpointing(args: TrainingArguments, model: nn.Module) -> None:
    """Refuse `--activation_checkpointing` for a backbone without it."""
    for part in model.modules() if args.activation_checkpointing else ():
        inner = [one for one in part.modules() if isinstance(one, PreTrainedModel)]
        if inner == [part] and not part.supports_gradient_checkpointing:  # a backbone, and not what contains it
            raise BadInput(f"--activation_checkpointing: transformers has none for '{part.config.model_type}'")


def steps_of(args: TrainingArguments, count: int) -> int:
    """Optimizer steps of a run over `count` examples, as the Trainer counts them: an epoch's last may be smaller."""
    batches = count // (args.per_device_train_batch_size * args.world_size)
    updates = math.ceil(batches / args.gradient_accumulation_steps)
    return args.max_steps if args.max_steps > 0 else math.ceil(updates * args.num_train_epochs)


def saved_at_once(args: TrainingArguments, steps: int) -> int:
    """The maximum number of checkpoints on disk at a time: those it keeps, and the next one."""
    every = args.save_steps if args.save_steps >= 1 else args.save_steps * steps
    count = math.ceil(steps / every) if args.save_strategy == "steps" and every else 1
    return min(count, args.save_total_limit + 1) if args.save_total_limit else count


_RANGES = {
    Count: "per_device_train_batch_size gradient_accumulation_steps save_total_limit dataloader_prefetch_factor",
    Weight: "learning_rate weight_decay max_grad_norm warmup_steps dataloader_num_workers eval_delay",
    Positive: "num_train_epochs save_steps eval_steps logging_steps adam_epsilon",
    Rate: "adam_beta1 adam_beta2",
    Seed: "seed",
}
