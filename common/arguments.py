"""The flags of the training scripts: HF-style dataclasses, every default with its source."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from common.errors import BadInput
from common.ranges import Columns, Count, CountOrZero, Rate, Share, Weight, flag

NLI_COLUMNS, LABEL = ("premise", "hypothesis"), "label"  # of labelled pairs


@dataclass
class ModelArguments:
    """The encoder."""

    method: str | None = flag(None, "training method; with --help, its flags are shown too")
    model_name_or_path: str | None = flag(
        None, "checkpoint to start from: a folder, a run of stage 1, or a hub id"
    )
    pooling: str = flag(
        "cls_before_pooler",
        "cls_before_pooler, cls (keeps the projection head), avg, last_token, avg_top2, "
        "avg_first_last, avg_embedding_last, mask (of promptbert's template); saved in the model",
    )
    query_prompt: str | None = flag(
        None, "text put before every query, such as 'query: '; default: the model's own"
    )
    document_prompt: str | None = flag(
        None, "text put before every document; default: the model's own prompt"
    )
    train_pooling: str | None = flag(
        None, "pooling of the loss, if it differs from the saved one (ConSERT)"
    )
    projection: Literal["none", "linear_tanh", "batch_norm", "wide_mlp"] = flag(
        "linear_tanh",
        "head before the contrastive loss: linear_tanh (SimCSE), batch_norm (InfoCSE), wide_mlp "
        "(SG-OPT)",
    )
    dropout: Rate | None = flag(None, "hidden and attention dropout; default: the checkpoint's")
    bow_weight: Weight | None = flag(
        None,
        "weight of an extra loss that predicts the text's words from its vector with the "
        "checkpoint's MLM head (2401.11248); default: none",
    )
    packed: bool | None = flag(
        None,
        "skip padding tokens (the losses are the same; an unsupported family runs padded and says "
        "so); default: true on a CPU and with --cuda_graph",
    )
    chunk_size: CountOrZero = flag(
        0,
        "process a batch this many sentences at a time, so that batches larger than memory fit; "
        "costs one more forward pass (gradient caching, 2101.06983); 0: the whole batch at once",
    )


@dataclass
class PretrainArguments:
    """The masked language model and its auxiliary head."""

    model_name_or_path: str | None = flag(
        None, "checkpoint of a masked language model: a folder or a hub id"
    )
    config_name: str | None = flag(
        None,
        "instead of model_name_or_path: configuration (JSON file or folder) of a model to train "
        "from scratch",
        instead_of="model_name_or_path",
    )
    tokenizer_name: str | None = flag(
        None,
        "with config_name: tokenizer, a folder or a hub id; default: a vocabulary learned from "
        "train_file",
        needs="config_name",
    )
    vocabulary_size: Count = flag(
        4000, "size of the learned vocabulary in word pieces", needs="config_name"
    )
    output_init: Literal["checkpoint", "new"] = flag(
        "checkpoint",
        "the language model's output head: read it from the checkpoint, or make a new one if it "
        "has none",
    )
    skip_from: int = flag(
        6,
        "layer whose states the head reads (6 of 12: InfoCSE 3.1); auto: the checkpoint's, else "
        "half of the layers",
    )
    head_layers: CountOrZero = flag(
        2, "layers of the auxiliary head (InfoCSE 3.1); 0 trains a plain masked language model"
    )
    head_init: Literal["new", "encoder_top"] = flag(
        "new",
        "head layers if the checkpoint has none: new ones (Condenser), or copies of its top layers",
    )
    aux_cls: Literal["masked", "clean"] = flag(
        "masked",
        "text that the head's [CLS] comes from: masked (InfoCSE 3.1), or clean, as in stage 2",
    )
    aux_mask_rate: Share | None = flag(
        None,
        "mask the head's text separately, at this rate (RetroMAE 0.5, CoT-MAE 0.45); default: the "
        "encoder's masks",
        needs="head_layers",
    )
    bow_weight: Weight = flag(
        0.0,
        "weight of the loss that predicts the text's words from [CLS] alone (2401.11248); 0: off",
    )
    mask_rate: Share = flag(0.15, "share of masked tokens (Condenser)")
    whole_words: bool = flag(True, "mask whole words (Condenser)")
    dropout: Rate | None = flag(None, "hidden and attention dropout; default: the checkpoint's")
    packed: bool | None = flag(
        None,
        "skip padding tokens (the losses are the same); default: true on a CPU and with "
        "--cuda_graph",
    )


@dataclass
class DataArguments:
    """The training text."""

    train_file: list[str] = flag(
        [],
        "UTF-8 text, plain, .gz, .xz, .bz2 or .zst: files, folders (read with subfolders, sorted "
        "by path) or patterns (*, **); searched as given, then below data_dir. A file's name "
        "decides whether it is a table (csv, json, jsonl, parquet, arrow) or lines of text",
        may_differ=True,
    )
    dataset_name: list[str] = flag(
        [],
        "instead of train_file: a dataset on the hub, OWNER/NAME, then its configuration if it "
        "has several, and its split (default: train)",
        instead_of="train_file",
    )
    text_column: list[str] = flag(
        [],
        "column with the text (default: text; labelled pairs: premise hypothesis label); several "
        "columns are the sentences of a row; a text file needs a tab-separated header line",
    )
    max_length: int = flag(
        32,
        "maximum tokens per sentence or block, special ones included (SimCSE's and InfoCSE's code)",
    )
    data_dir: str = flag("corpora", "folder that `python -m data.prepare` fills", may_differ=True)
    cache_dir: str = flag("corpora/cache", "cache of tokenised text, by content", may_differ=True)
    held_out: CountOrZero = flag(
        128,
        "examples to hold out of training for diagnostics at every evaluation; at most one in a "
        "hundred, and none if that is fewer than ten, or with --upsample",
    )
    dry_run: bool = flag(
        False, "print the plan and where every setting is from, and stop", may_differ=True
    )


@dataclass
class ScoredArguments(DataArguments):
    """The training text and the data that the encoder is scored on."""

    dev: Literal["stsb", "none"] = flag(
        "stsb", "what selects the best model: STS-B dev, or none (keep the last)"
    )
    dev_file: str | None = flag(
        None,
        "your dev pairs instead of STS-B: tab-separated, header sentence1, sentence2, score (0 to "
        "5)",
        instead_of="dev",
        may_differ=True,
    )
    patience: Count | None = flag(
        None,
        "stop after this many evaluations in a row without a higher dev score (early stopping, "
        "Prechelt 1998); default: train to the last step",
    )
    max_rows: Count | None = flag(
        None,
        "use this many rows, sampled with --seed and including held-out ones (few-shot studies); "
        "default: all",
    )
    upsample: bool = flag(
        False,
        "repeat the rows of max_rows until the text has its size again, so that few sentences "
        "fill a batch (ConSERT's code, --do_upsampling)",
        needs="max_rows",
    )
    test_tasks: list[str] = flag(
        ["sts"], "tasks to score once at the end: sts, task names, or none", may_differ=True
    )

    def __post_init__(self) -> None:
        instead = [f.name for f in fields(self) if f.metadata["facts"]["instead_of"] == "dev"]
        given = [name for name in [*instead, "patience"] if getattr(self, name)]
        if given and self.dev == "none":
            raise BadInput(f"--{given[0]}: does nothing with --dev none")
        if given[1:] and given[1] in instead:
            raise BadInput(f"--{given[1]}: does nothing beside --{given[0]}")


@dataclass
class SentenceArguments(ScoredArguments):
    """Training text without labels."""

    columns: Columns = flag(1, "sentences per row; 2 or 3 for tab-separated rows")
