"""The flags of both scripts: HF-style dataclasses, every default with its source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from transformers import TrainingArguments

from errors import BadInput


@dataclass
class ModelArguments:
    """The encoder."""

    _argument_group_name = "model"

    method: str | None = field(
        default=None,
        metadata={
            "help": "a file of models/objectives (run_unsup.py) or models/supervised (run_sup.py); --help shows "
            "the flags of the one it is given with"
        },
    )
    model_name_or_path: str | None = field(
        default=None, metadata={"help": "checkpoint to start from: a folder, a run of stage 1, or a hub id"}
    )
    pooling: str = field(
        default="cls_before_pooler",
        metadata={"help": "cls_before_pooler, cls (keeps the projection head), avg, avg_top2, avg_first_last, "
                  "avg_embedding_last; saved in the model"},
    )  # fmt: skip
    train_pooling: str | None = field(
        default=None, metadata={"help": "what the loss pools with, where that differs from the saved pooling (ConSERT)"}
    )
    projection: str = field(
        default="linear_tanh",
        metadata={"help": "head in front of the contrastive loss: none, linear_tanh (SimCSE), batch_norm (InfoCSE), "
                  "wide_mlp (SG-OPT)"},
    )  # fmt: skip
    dropout: float | None = field(
        default=None, metadata={"help": "hidden and attention dropout; default: the checkpoint's own"}
    )
    packed: bool = field(
        default=True,
        metadata={"help": "compute real tokens only (same losses; BERT and RoBERTa, others run padded and say so)"},
    )
    chunk_size: int = field(
        default=0,
        metadata={"help": "sentences a process holds the graph of at a time, so that memory does not bound the batch "
                  "and its negatives; one more forward pass (gradient caching, 2101.06983); 0: the whole batch"},
    )  # fmt: skip


@dataclass
class PretrainArguments:
    """The masked language model and its auxiliary head."""

    _argument_group_name = "model"

    model_name_or_path: str | None = field(
        default=None, metadata={"help": "masked language model to start from: a folder or a hub id"}
    )
    config_name: str | None = field(
        default=None,
        metadata={"help": "instead: a configuration (JSON file or folder) whose model is trained from scratch, with a "
                  "vocabulary learned from train_file"},
    )  # fmt: skip
    vocabulary_size: int = field(default=4000, metadata={"help": "with config_name: word pieces to learn"})
    skip_from: int = field(default=6, metadata={"help": "layer whose states the head sees (6 of 12: InfoCSE 3.1)"})
    head_layers: int = field(default=2, metadata={"help": "layers of the auxiliary head (InfoCSE 3.1)"})
    mask_rate: float = field(default=0.15, metadata={"help": "share of masked tokens (Condenser)"})
    whole_words: bool = field(default=True, metadata={"help": "mask whole words (Condenser)"})
    dropout: float | None = field(
        default=None, metadata={"help": "hidden and attention dropout; default: the checkpoint's own"}
    )
    packed: bool = field(default=True, metadata={"help": "compute real tokens only, the same losses in less time"})


@dataclass
class DataArguments:
    """The training text."""

    _argument_group_name = "data"

    train_file: list[str] = field(
        default_factory=list,
        metadata={"help": "UTF-8 text, plain, .gz, .xz or .zst, files or folders of files; looked up as given, "
                  "then below data_dir"},
    )  # fmt: skip
    max_length: int = field(default=32, metadata={"help": "tokens of a sentence or block, special ones included"})
    data_dir: str = field(default="corpora", metadata={"help": "where `python -m data.prepare` puts things"})
    cache_dir: str = field(default="corpora/cache", metadata={"help": "tokenised text, keyed by content"})
    dry_run: bool = field(
        default=False, metadata={"help": "build everything, compute one batch, print the plan, write no run"}
    )


@dataclass
class ScoredArguments(DataArguments):
    """The training text and what the encoder is scored on."""

    dev: Literal["stsb", "none"] = field(
        default="stsb", metadata={"help": "what selects the best model: STS-B dev, or none (the last is kept)"}
    )
    dev_file: str | None = field(
        default=None,
        metadata={"help": "own dev pairs instead: tab-separated, header sentence1, sentence2, score (0 to 5)"},
    )
    max_rows: int | None = field(
        default=None, metadata={"help": "train on so many rows, drawn by --seed (few-shot studies); default: all"}
    )
    test_tasks: list[str] = field(
        default_factory=lambda: ["sts"], metadata={"help": "scored once at the end: sts, task names, or none"}
    )


@dataclass
class SentenceArguments(ScoredArguments):
    """Training text without labels."""

    columns: int = field(default=1, metadata={"help": "sentences in a row; 2 or 3 for tab-separated rows"})


@dataclass
class RunArguments(TrainingArguments):
    """TrainingArguments with the defaults of this family.

    Sources: the SimCSE and InfoCSE scripts (AdamW without decay and warm-up, linear schedule, clipping at 1, seed
    42, batch 64, evaluation every 125 steps).
    """

    _argument_group_name = "training (transformers.TrainingArguments)"

    per_device_train_batch_size: int = field(default=64, metadata={"help": "sentences a step and process"})
    learning_rate: float = field(default=3e-5, metadata={"help": "peak learning rate"})
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
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "a loss that is not finite stops the run"})

    def __post_init__(self) -> None:
        """Refuse what could only fail later, or silently train something else.

        Raises:
            BadInput: a value out of its range, or a flag that goes against how runs are kept.
        """
        _check_ranges(self)
        if self.max_steps == 0 or self.max_steps < -1:
            raise BadInput(f"--max_steps {self.max_steps}: a number of steps is needed, or -1 for --num_train_epochs")
        for name, reason in _REFUSED.items():
            if getattr(self, name):
                raise BadInput(f"--{name}: {reason}")
        if self.eval_strategy != "steps":
            raise BadInput(f"--eval_strategy {self.eval_strategy}: is always steps; --dev none keeps the last model")
        try:
            super().__post_init__()
        except (ImportError, OSError) as error:
            raise BadInput(f"a flag names a file or package that is not here: {error}") from error


def _check_ranges(args: RunArguments) -> None:
    for names, (low, high) in _RANGES.items():
        for name in names.split():
            value = getattr(args, name)
            if value is not None and not low <= value <= high:  # NaN is in no range
                raise BadInput(f"--{name} {value}: a number from {low:g} to {high:g} is needed")


_TINY, _HUGE = 1e-45, 1e30
_RANGES = {
    "per_device_train_batch_size gradient_accumulation_steps save_total_limit": (1, 1e9),
    "learning_rate weight_decay max_grad_norm warmup_steps dataloader_num_workers eval_delay": (0, _HUGE),
    "num_train_epochs save_steps eval_steps logging_steps adam_epsilon": (_TINY, _HUGE),
    "adam_beta1 adam_beta2": (0, 1),
    "seed": (0, 2**32 - 1),
}
_REFUSED = {
    "auto_find_batch_size": "another batch size is another experiment, since a batch is its own negatives",
    "gradient_checkpointing": "use --chunk_size: the same batch in less memory",
    "load_best_model_at_end": "the best model is kept apart, and is the result, without it",
    "metric_for_best_model": "--dev and --dev_file choose what the best model is the best at",
    "neftune_noise_alpha": "is for language models",
    "enable_jit_checkpoint": "signals are answered here, after the step",
    "eval_on_start": "a resumed run would evaluate more often; use `python -m eval` on the start",
    "resume_from_checkpoint": "the same command goes on by itself, from the newest whole checkpoint",
    "push_to_hub": "would upload the run's folder, pickles and paths included; use `python -m export --push_to_hub`",
    "hub_token": "would be written into run.json; set HF_TOKEN, and use `python -m export --push_to_hub`",
    "save_only_model": "a run could not go on from such a checkpoint",
    "ignore_data_skip": "a resumed run would see other batches than the uninterrupted one",
}
