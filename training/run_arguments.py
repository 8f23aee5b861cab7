"""transformers' TrainingArguments with this family's defaults, and a run's needs of its machine."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from transformers import TrainingArguments
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames
from transformers.utils import is_torch_bf16_gpu_available

from common.arguments import PretrainArguments, SentenceArguments
from common.errors import BadInput
from common.ranges import Count, Positive, Seed, Weight, flag

# What determines the weights and the selection of the best model: these arguments of transformers',
# and all of ours but the next. At a resume no other one matters.
_DECISIVE = frozenset(
    """seed data_seed full_determinism max_steps num_train_epochs per_device_train_batch_size
    gradient_accumulation_steps average_tokens_across_devices auto_find_batch_size
    dataloader_drop_last train_sampling_strategy ignore_data_skip accelerator_config
    learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio optim optim_args
    optim_target_modules weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm
    label_smoothing_factor neftune_noise_alpha bf16 fp16 tf32 gradient_checkpointing
    activation_checkpointing torch_compile torch_compile_backend torch_compile_mode use_liger_kernel
    ddp_bucket_cap_mb ddp_static_graph ddp_find_unused_parameters fsdp deepspeed parallelism_config
    eval_strategy eval_steps eval_delay eval_on_start metric_for_best_model greater_is_better
    load_best_model_at_end""".split()
)
_THEIRS = frozenset(field.name for field in fields(TrainingArguments))
# They determine when processes synchronize, so they must agree over the processes of a run.
IN_STEP = frozenset(
    "output_dir dry_run logging_strategy logging_first_step logging_steps save_strategy "
    "save_steps".split()
)
_TORCH_ADAMW = ("adamw_torch", "adamw_torch_fused")  # values of --optim that --adamw may replace


@dataclass
class RunArguments(TrainingArguments):
    """TrainingArguments with this family's defaults; a configuration has only what differs.

    Source: the scripts of SimCSE and InfoCSE: AdamW without weight decay, no warm-up, linear
    schedule, clipping at 1, batch 64 (SimCSE's README), evaluation every 125 steps (SimCSE's
    script, InfoCSE 4.2), seed 42 (the Trainer's).
    """

    output_dir: str = flag(None, "the run's folder: result, record, log and checkpoints")
    seed: Seed = flag(42, "seed of new weights, the order of the text and every random draw")
    per_device_train_batch_size: Count = flag(64, "sentences per step and process")
    learning_rate: Weight = flag(3e-5, "peak learning rate")
    bf16: bool = flag("auto", "compute in bfloat16; auto, the default: if the machine supports it")
    use_cpu: bool = flag("auto", "train on the CPU; auto, the default: if there is no CUDA GPU")
    max_steps: int = flag(
        -1, "optimizer steps; -1: use num_train_epochs", instead_of="num_train_epochs"
    )
    num_train_epochs: Positive = flag(1.0, "passes over the text")
    eval_strategy: str = "steps"
    eval_steps: Positive = flag(125, "steps between evaluations; the last step is always evaluated")
    save_steps: Positive = flag(1000, "steps between resumable checkpoints")
    save_total_limit: Count | None = flag(2, "number of checkpoints to keep")
    logging_steps: Positive = flag(25, "steps between logged means of the loss terms")
    remove_unused_columns: bool = False
    dataloader_drop_last: bool = True
    ddp_broadcast_buffers: bool | None = False
    ddp_find_unused_parameters: bool | None = flag(
        False, "set to true if some weights get no gradient, as in Longformer and XLNet"
    )
    adamw: Literal["torch", "transformers", "uncorrected"] = flag(
        "torch",
        "AdamW implementation: torch, transformers 4 (official scripts of SimCSE, ESimCSE, "
        "DiffCSE and InfoCSE), or transformers 4 without bias correction (ConSERT, IS-BERT)",
    )
    cuda_graph: bool = flag(
        False,
        "replay the whole step as a CUDA graph, one for each of the first 16 shapes of batch: 2.5 "
        "to 5 times as fast on an H200 (results/gpu-h200.md); needs one GPU; on a CPU it has no "
        "effect",
    )
    logging_nan_inf_filter: bool = False

    def __post_init__(self) -> None:
        """Fill what depends on the machine.

        Raises:
            BadInput: the launcher's precision is not that of the flags, or a flag would be ignored
                or do something else.
        """
        if self.fp16 and self.use_cpu:
            raise BadInput("--fp16: needs a GPU; on a CPU it would do nothing, see --bf16")
        if self.bf16 and not self.use_cpu and not is_torch_bf16_gpu_available():
            raise BadInput("--bf16: no GPU here computes in it; leave out --use_cpu and --bf16")
        compiles = self.torch_compile or self.torch_compile_mode or self.torch_compile_backend
        if self.tf32 is None and compiles:
            self.tf32 = False  # transformers would turn it on
        super().__post_init__()
        if self.eval_strategy == "epoch":  # it would evaluate after the checkpoint of its step
            raise BadInput("--eval_strategy epoch: give --eval_steps, which may be a share of all")
        if self.save_strategy == "best":  # it would drop the checkpoint of a signal
            said = "best/ keeps the best model anyway; give steps or epoch, to resume from"
            raise BadInput(f"--save_strategy best: {said}")
        if self.max_steps == 0:
            raise BadInput("--max_steps 0: give 1 or more, or -1 for --num_train_epochs")
        if self.fp16 and self.optim == OptimizerNames.ADAMW_TORCH_FUSED:
            self.optim = OptimizerNames.ADAMW_TORCH  # fused, it hides that a step was skipped
        schedule = SchedulerType(self.lr_scheduler_type).value
        if schedule in ("reduce_lr_on_plateau", "greedy"):  # they expect a loss that falls
            raise BadInput(f"--lr_scheduler_type {schedule}: not supported")
        if self.warmup_steps and schedule == "constant":
            said = (
                "does nothing with a constant rate; give --lr_scheduler_type constant_with_warmup"
            )
            raise BadInput(f"--warmup_steps: {said}")
        if self.report_to:
            # Here, because this import takes as long as torch's.
            from transformers.integrations import get_available_reporting_integrations

            installed = get_available_reporting_integrations()
            if missing := [name for name in self.report_to if name not in installed]:
                said = "unknown, or its package is not installed"
                raise BadInput(f"--report_to {missing[0]}: {said}")
        accelerator: Any = self.accelerator_config
        accelerator.non_blocking = self.device.type == "cuda"  # copies the next batch in a step
        self.dataloader_pin_memory &= self.device.type == "cuda"  # without a GPU torch warns
        precision = "fp16" if self.fp16 else "bf16" if self.bf16 else "no"
        if self.mixed_precision != precision:  # plan, record and evaluation read the flags
            raise BadInput(
                f"the launcher sets mixed precision '{self.mixed_precision}' and the flags "
                f"'{precision}': use --bf16 or --fp16, and leave it out of accelerate's "
                "configuration"
            )
        optim = OptimizerNames(self.optim).value
        ignored = self.adamw != "torch" and (optim not in _TORCH_ADAMW or self.optim_args)
        # a schedule-free optimizer evaluates other weights than it trains
        if ignored or optim.startswith("schedule_free"):
            raise BadInput(f"--optim {optim} with --adamw {self.adamw}: not supported")


# What `common.ranges.flag` declares of our flags, by name.
FACTS: dict[str, dict[str, Any]] = {
    field.name: field.metadata["facts"]
    for kind in (PretrainArguments, SentenceArguments, RunArguments)
    for field in fields(kind)
    if "facts" in field.metadata
}


def determines_weights(name: str) -> bool:
    """Whether a setting, by name, must be the same when a run resumes."""
    if name in _THEIRS:
        return name in _DECISIVE
    return not FACTS.get(name, {}).get("may_differ")


def recomputes(args: TrainingArguments) -> bool:
    """Whether layers are recomputed in the backward pass; transformers has named the flag twice."""
    return bool(
        getattr(args, "activation_checkpointing", None)
        or getattr(args, "gradient_checkpointing", None)
    )


def settle_packing(wanted: bool | None, args: RunArguments) -> bool:
    """`--packed`, or its default: packed on a CPU and in a CUDA graph, padded on a GPU without one.

    Source: results/gpu-h200.md. Packing starts more kernels, which cost a host without a graph more
    than padding costs.
    """
    return args.device.type == "cpu" or args.cuda_graph if wanted is None else wanted


def check_machine(args: TrainingArguments, count: int, held_out: int) -> None:
    """Check the devices and the number of training examples."""
    if args.n_gpu > 1:
        raise BadInput(
            "one process sees several GPUs (nn.DataParallel is not supported); use `accelerate "
            "launch --config_file` with configs/accelerate/two_gpus.yaml or one_gpu.yaml"
        )
    batch, processes = args.per_device_train_batch_size, args.world_size
    if count < batch * processes:
        excluded = f", with {held_out} held out," if held_out else ""
        raise BadInput(
            f"{count} examples{excluded} are fewer than one batch of {batch} in each of "
            f"{processes} processes; lower --per_device_train_batch_size or give more text"
        )
