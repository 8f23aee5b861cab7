"""The flags of both scripts: HF-style dataclasses, every default with its source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from common.ranges import Count, CountOrZero, Positive, Rate, Share, Weight


@dataclass
class ModelArguments:
    """The encoder."""

    _argument_group_name = "model"

    method: str | None = field(
        default=None,
        metadata={"help": "a file of models/objectives; --help shows the flags of the one it is given with"},
    )
    model_name_or_path: str | None = field(
        default=None, metadata={"help": "checkpoint to start from: a folder, a run of stage 1, or a hub id"}
    )
    pooling: str = field(
        default="cls_before_pooler",
        metadata={"help": "cls_before_pooler, cls (keeps the projection head), avg, last_token, avg_top2, "
                  "avg_first_last, avg_embedding_last, mask (of promptbert's template); saved in the model"},
    )  # fmt: skip
    train_pooling: str | None = field(
        default=None, metadata={"help": "what the loss pools with, where that differs from the saved pooling (ConSERT)"}
    )
    projection: str = field(
        default="linear_tanh",
        metadata={"help": "head in front of the contrastive loss: none, linear_tanh (SimCSE), batch_norm (InfoCSE), "
                  "wide_mlp (SG-OPT)"},
    )  # fmt: skip
    dropout: Rate | None = field(
        default=None, metadata={"help": "hidden and attention dropout; default: the checkpoint's own"}
    )
    train_last_layers: Count | None = field(
        default=None, metadata={"help": "freeze the embeddings and all layers but the last so many; default: none"}
    )
    bidirectional: bool = field(
        default=False,
        metadata={"help": "let a decoder's tokens see later ones too (LLM2Vec, 2404.05961, section 2.1); saved in the "
                  "model"},
    )  # fmt: skip
    lora_r: Count | None = field(
        default=None,
        metadata={"help": "train adapters of this rank in the place of the encoder's weights (LoRA, 2106.09685); what "
                  "is saved has them merged; default: none, all weights are trained"},
    )  # fmt: skip
    lora_alpha: Positive | None = field(
        default=None,
        metadata={"help": "the adapters' outputs are multiplied by lora_alpha / lora_r (LoRA 4.1); default: by 1 "
                  "(ours; LLM2Vec's code: by 2)"},
    )  # fmt: skip
    lora_dropout: Rate = field(
        default=0.0, metadata={"help": "dropout of what the adapters read (ours; LLM2Vec's code: 0.05)"}
    )
    lora_target: list[str] = field(
        default_factory=list,
        metadata={"help": "layers with an adapter, by the ends of their names, or all-linear; default: queries and "
                  "values (LoRA table 5) of the architectures that peft knows"},
    )  # fmt: skip
    lora_keep: bool = field(
        default=False, metadata={"help": "write the adapters too, into the folder adapter/ of the result"}
    )
    matryoshka_dims: list[Count] | None = field(
        default=None,
        metadata={"help": "also train the first entries of the vector, so many each, to be used alone, such as 256 128 "
                  "64; the dev score is taken of each (Matryoshka, 2205.13147); default: no"},
    )  # fmt: skip
    bow_weight: Weight | None = field(
        default=None,
        metadata={"help": "weight of a further term: the text's words, predicted from the pooled vector by the "
                  "checkpoint's own MLM head (2401.11248); default: no such term"},
    )  # fmt: skip
    packed: bool | None = field(
        default=None,
        metadata={"help": "compute real tokens only (same losses; a family that cannot runs padded and says so); "
                  "default: true on a CPU, false on a GPU"},
    )  # fmt: skip
    chunk_size: CountOrZero = field(
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
    vocabulary_size: Count = field(default=4000, metadata={"help": "with config_name: word pieces to learn"})
    skip_from: int = field(
        default=6, metadata={"help": "layer whose states the head sees (6 of 12: InfoCSE 3.1); auto: half"}
    )
    head_layers: CountOrZero = field(
        default=2,
        metadata={"help": "layers of the auxiliary head (InfoCSE 3.1); 0 trains a plain masked language model"},
    )
    head_init: Literal["new", "encoder_top"] = field(
        default="new",
        metadata={"help": "head layers of a checkpoint that has none: new (Condenser), or copies of its top layers"},
    )
    aux_cls: Literal["masked", "clean"] = field(
        default="masked",
        metadata={"help": "the head's [CLS] is of the masked text (InfoCSE 3.1), or of the clean one, as in stage 2"},
    )
    aux_mask_rate: Share | None = field(
        default=None,
        metadata={"help": "the head gets masks of its own, at this rate (RetroMAE 0.5, CoT-MAE 0.45); default: none"},
    )
    bow_weight: Weight = field(
        default=0.0,
        metadata={"help": "weight of predicting the text's words from [CLS] alone (2401.11248); 0: not at all"},
    )
    mask_rate: Share = field(default=0.15, metadata={"help": "share of masked tokens (Condenser)"})
    whole_words: bool = field(default=True, metadata={"help": "mask whole words (Condenser)"})
    dropout: Rate | None = field(
        default=None, metadata={"help": "hidden and attention dropout; default: the checkpoint's own"}
    )
    packed: bool | None = field(
        default=None,
        metadata={"help": "compute real tokens only, the same losses; default: true on a CPU, false on a GPU"},
    )


@dataclass
class DataArguments:
    """The training text."""

    _argument_group_name = "data"

    train_file: list[str] = field(
        default_factory=list,
        metadata={"help": "UTF-8 text, plain, .gz, .xz, .bz2 or .zst: files, folders, of which all files are read, "
                  "those of subfolders too, in the order of their paths, or patterns (*, **); looked up as given, then "
                  "below data_dir. By its name a file is a table (csv, json, jsonl, parquet, arrow) or lines of text"},
    )  # fmt: skip
    dataset_name: str | None = field(
        default=None, metadata={"help": "instead of train_file: a data set of the hub, such as OWNER/NAME"}
    )
    dataset_config_name: str | None = field(default=None, metadata={"help": "its configuration, if it has several"})
    dataset_split: str = field(default="train", metadata={"help": "its split"})
    text_column: list[str] = field(
        default_factory=list,
        metadata={"help": "column of a table that holds the text (default: text; labelled pairs: premise hypothesis); "
                  "several are the sentences of a row; for lines, the names stand in the first line, tab-separated"},
    )  # fmt: skip
    title_column: str | None = field(
        default=None, metadata={"help": "column that holds the title, which becomes the first text of a row"}
    )
    max_length: int = field(default=32, metadata={"help": "tokens of a sentence or block, special ones included"})
    data_dir: str = field(default="corpora", metadata={"help": "where `python -m data.prepare` puts things"})
    cache_dir: str = field(default="corpora/cache", metadata={"help": "tokenised text, keyed by content"})
    held_out: CountOrZero = field(
        default=128,
        metadata={"help": "examples kept out of training; the model's diagnostics at every evaluation are measured on "
                  "them; at most one in a hundred, and none where that is fewer than ten; 0: none"},
    )  # fmt: skip
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
    dev_beir: str | None = field(
        default=None,
        metadata={"help": "own search set instead, a folder in BEIR's format: nDCG@10 on qrels/dev.tsv selects the "
                  "best model, qrels/test.tsv, where it is there, judges it against the start"},
    )  # fmt: skip
    start_shares: list[Share] = field(
        default_factory=list,
        metadata={"help": "shares of the start's weights, such as 0.25 0.5 0.75: at the end the dev score chooses "
                  "among these mixtures and the trained model (LM-Cocktail, 2311.13534); default: none"},
    )  # fmt: skip
    keep_start: bool = field(
        default=False,
        metadata={"help": "the start is the result unless the trained model is better beyond chance"},
    )
    patience: Count | None = field(
        default=None,
        metadata={"help": "end the training when so many evaluations in a row bring no higher dev score (Prechelt "
                  "1998, Early stopping - but when?); default: go on to the last step"},
    )  # fmt: skip
    max_rows: Count | None = field(
        default=None,
        metadata={"help": "use so many rows, held-out ones included, drawn by --seed (few-shot studies); default: all"},
    )
    test_tasks: list[str] = field(
        default_factory=lambda: ["sts"], metadata={"help": "scored once at the end: sts, task names, or none"}
    )


@dataclass
class SentenceArguments(ScoredArguments):
    """Training text without labels."""

    columns: int = field(default=1, metadata={"help": "sentences in a row; 2 or 3 for tab-separated rows"})
