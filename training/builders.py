"""Model, collator and Trainer of a run, and its plan as text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForMaskedLM, TrainingArguments, set_seed

from common.errors import BadInput
from data.collator import Collator
from data.draws import KeyedSampler
from data.template import TEXT, framed
from data.tokenised import TokenisedText
from data.views import Masking, View, cuts
from eval.dev import DevSet
from eval.encode import Encode
from models import fast
from models.auxiliary import load_head, load_masked_lm, new_head, top_layers
from models.encoder import SentenceEncoder
from models.families import check_apart
from models.loading import dropout_rates, load_config, set_dropout, usable_length
from models.masked_lm import AuxiliaryMaskedLM
from models.training import build_model
from training.graph import GraphedTrainer
from training.run_arguments import recomputes
from training.settings import Settings
from training.trainer import CachedTrainer, EmbeddingTrainer

logger = logging.getLogger(__name__)
_MANY_UNKNOWN = 0.1  # share of tokens; below 0.001 for English Wikipedia and BERT
_SAMPLED = 100_000  # rows that the plan examines


def build_training(
    settings: Settings, tokenizer, corpus: TokenisedText, dev: DevSet | None
) -> tuple[EmbeddingTrainer, str]:
    """The Trainer of a method, and the plan.

    Raises:
        BadInput: a batch, length or flag that the model or the method does not support.
    """
    model_args, data_args, args = settings.model_args, settings.data_args, settings.args
    set_seed(args.seed)
    model = build_model(settings.method, settings.method_args, model_args, tokenizer, args.bf16)
    encoder, batch = model.encoder, args.per_device_train_batch_size * args.world_size
    collator = build_collator(settings, corpus, tokenizer, model)
    for objective in model.objectives:
        objective.check_batch(batch)
    if recomputes(args) and encoder.dropout_operations:
        raise BadInput(
            "--activation_checkpointing: not supported by this method, which draws new dropout "
            "rates in every pass"
        )
    score = None
    if dev is not None:
        score = partial(dev.scores, Encode(encoder, tokenizer, bf16=args.bf16))
        args.metric_for_best_model, args.greater_is_better = dev.metric, True
    else:
        args.metric_for_best_model = args.greater_is_better = None
    trainer_class = GraphedTrainer if args.cuda_graph else EmbeddingTrainer
    if model_args.chunk_size:  # a step in chunks is not one graph
        trainer_class = partial(CachedTrainer, chunk_size=model_args.chunk_size)
    keep = partial(encoder.save, tokenizer=tokenizer)
    trainer = trainer_class(
        model, args, collator, len(corpus), score, keep, data_args.held_out, data_args.patience
    )

    column = (
        corpus.columns - 1 if cuts(collator.views) else 0
    )  # titles may be empty or rarely shown
    first = np.arange(min(len(corpus), _SAMPLED))
    truncated = "documents into views"
    if not all(view.cut for view in collator.views):
        lengths = np.stack([corpus.lengths(first, column) for column in range(corpus.columns)])
        truncated = f"{(lengths > data_args.max_length - collator.added).mean():.1%} of the texts"
    ids, _ = corpus.sentences(first, column, data_args.max_length)
    unknown = share_unknown(ids, tokenizer)
    facts = {
        "method": model_args.method,
        "cut": f"{truncated}, at --max_length {data_args.max_length} tokens",
        "unknown": f"{unknown:.1%} of the tokens, to the tokenizer",
        "packed": encoder.packed,
        "views": len(collator.views),
        "masking": describe_masking(collator.masking),
        "pooling": model_args.pooling,
    }
    return trainer, plan(model, args, trainer.sampler, trainer.count_steps(), facts)


def share_unknown(ids: np.ndarray, tokenizer) -> float:
    """The share of unknown tokens; warns if they are many, BadInput if they are all."""
    share = float((ids == tokenizer.unk_token_id).mean())
    said = (
        f"{share:.1%} of the text's tokens are unknown to the tokenizer: was it made for another "
        "language?"
    )
    if share == 1:
        raise BadInput(said)
    if share > _MANY_UNKNOWN:
        logger.warning(said)
    return share


def build_collator(settings: Settings, corpus: TokenisedText, tokenizer, model) -> Collator:
    """The collator of the method's views; in rows of several sentences each view is one of them."""
    method, method_args, data_args, args = (
        settings.method,
        settings.method_args,
        settings.data_args,
        settings.args,
    )
    longest = model.encoder.max_length
    check_length(data_args.max_length, longest)
    views = prompted(
        method.views_of_rows(method_args, corpus.columns), model.encoder, tokenizer, corpus
    )
    if any(view.perturb for view in views):
        check_apart(model.config, "a view with perturbed embeddings")
    rates = dropout_rates(model.encoder.config).values()
    dropout = any(rates) or not rates  # assumed if no rate is named
    if corpus.columns == 1 and views.count(View()) > 1 and not dropout:
        logger.warning(
            "the model has no dropout, so both views have the same vector: set --dropout, such as "
            "0.1"
        )
    return Collator(
        corpus,
        tokenizer,
        views,
        data_args.max_length,
        args.seed,
        method.masking(method_args),
        model.config.hidden_size,
        model.encoder.dropout_operations,
        longest,
        any(objective.reads_words for objective in model.objectives),
        fast.packing(model.encoder.packed, settings.model_args.chunk_size, args.cuda_graph),
    )


def check_length(max_length: int, longest: int) -> None:
    """Refuse a `--max_length` above the tokens that the model accepts."""
    if max_length > longest:
        raise BadInput(f"--max_length {max_length}: the model accepts at most {longest} tokens")


def prompted(
    views: Sequence[View], encoder: SentenceEncoder, tokenizer, corpus: TokenisedText
) -> list[View]:
    """Views with the encoder's prompts before their texts, except where a view has a template.

    In parts of documents and in rows of several unlabelled texts, the first view is the query and
    the others documents. All other views get the default prompt, if any.
    """
    search = cuts(views) or (corpus.columns > 1 and corpus.labels is None)
    roles = (
        ["query" if number == 0 else "document" for number in range(len(views))]
        if search
        else [None] * len(views)
    )
    prompts = [
        view.template is None and encoder.prompt_of(role)
        for view, role in zip(views, roles, strict=True)
    ]
    for prompt in filter(None, dict.fromkeys(prompts)):
        frame, letter = (
            framed(tokenizer, prompt + TEXT),
            tokenizer("a", add_special_tokens=False)["input_ids"],
        )
        same = tokenizer(f"{prompt}a")["input_ids"] == [*frame.prefix, *letter, *frame.suffix]
        note = "" if same else "; evaluation splits the text after it into other tokens"
        logger.log(
            logging.INFO if same else logging.WARNING,
            "training with the prompt '%s'%s",
            prompt,
            note,
        )
    pairs = zip(views, prompts, strict=True)
    return [replace(view, template=prompt + TEXT) if prompt else view for view, prompt in pairs]


def build_pretraining(
    settings: Settings, tokenizer, blocks: TokenisedText
) -> tuple[EmbeddingTrainer, str]:
    """The Trainer of stage 1, and the plan.

    Raises:
        BadInput: a model or flag that stage 1 does not support.
    """
    model_args, data_args, args = settings.model_args, settings.data_args, settings.args
    set_seed(args.seed)
    rate, words, layers = model_args.aux_mask_rate, model_args.whole_words, model_args.head_layers
    maskings = [Masking(model_args.mask_rate, whole_words=words)]
    if rate and layers:
        maskings.append(Masking(rate, whole_words=words, name="aux"))

    source = model_args.model_name_or_path
    config = load_config(source or model_args.config_name)
    check_apart(config, "stage 1")
    set_dropout(config, model_args.dropout)
    if source:
        lm = load_masked_lm(source, config, new_output=model_args.output_init == "new")
    else:
        config.vocab_size = max(tokenizer.get_vocab().values()) + 1  # ids may have gaps
        config.pad_token_id = tokenizer.pad_token_id
        lm = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)  # whatever the file says
    head = nn.ModuleList() if layers == 0 else None
    if head is None and source:
        head = load_head(source, lm.base_model, layers, model_args.skip_from)
    if head is None and model_args.head_init == "encoder_top":
        head = top_layers(lm.base_model, layers)
    if head is None:
        logger.info("initialised %d new layers of the auxiliary head", layers)
        head = new_head(lm.base_model, layers)
    packed = model_args.packed is not False
    clean = model_args.aux_cls == "clean"
    model = AuxiliaryMaskedLM(lm, head, model_args.skip_from, packed, model_args.bow_weight, clean)

    check_length(data_args.max_length, usable_length(lm.base_model, tokenizer))
    first, _ = blocks.sentences(np.arange(min(len(blocks), _SAMPLED)), 0, data_args.max_length)
    share_unknown(first, tokenizer)
    collator = Collator(
        blocks,
        tokenizer,
        [View()],
        data_args.max_length,
        args.seed,
        maskings,
        words=model_args.bow_weight > 0,
        packing=fast.packing(model.packed, static=args.cuda_graph),
    )
    trainer_class = GraphedTrainer if args.cuda_graph else EmbeddingTrainer
    trainer = trainer_class(model, args, collator, len(blocks), held_out=data_args.held_out)
    facts = {
        "masking": describe_masking(maskings),
        "head": f"{layers} layers over layer {model_args.skip_from}, {model_args.aux_cls} [CLS]",
        "packed": model.packed,
    }
    return trainer, plan(model, args, trainer.sampler, trainer.count_steps(), facts)


def plan(
    model: nn.Module,
    args: TrainingArguments,
    sampler: KeyedSampler,
    steps: int,
    facts: dict[str, Any],
) -> str:
    """The plan, one fact per line."""
    size = {True: 0, False: 0}
    for parameter in model.parameters():
        size[parameter.requires_grad] += parameter.numel()
    rates = dropout_rates(model.config)
    held_out = f", {len(sampler.held)} held out" if sampler.held else ""
    batch = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    precision = (
        "bf16" if args.bf16 else "fp16" if args.fp16 else "float32"
    ) + ", TF32 products" * bool(args.tf32)
    lines = {
        "model": f"{size[True]:,} trainable and {size[False]:,} frozen parameters",
        "dropout": ", ".join(f"{name} {rate}" for name, rate in rates.items()) or "none",
        "text": f"{sampler.count:,} examples{held_out}, {steps:,} steps of {batch} "
        f"({steps * batch / sampler.count:.2g} epochs)",
        "processes": f"{args.world_size} on {args.device.type}, {precision}",
        **facts,
    }
    return "\n".join(f"{name:>10}: {value}" for name, value in lines.items())


def describe_masking(masking: Sequence[Masking]) -> str:
    """The name, rate and recipe of each masking."""
    return (
        ", ".join(
            f"{m.name} {m.rate:.0%} ({'whole words, ' * m.whole_words}{m.recipe})" for m in masking
        )
        or "none"
    )
