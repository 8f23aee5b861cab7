"""Model, collator and Trainer of a run, and its plan as text."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForMaskedLM, PreTrainedModel, set_seed

from common.errors import BadInput
from data.collator import Collator
from data.draws import KeyedSampler
from data.template import TEXT, framed
from data.tokenised import TokenisedText
from data.views import Masking, View
from eval.dev import DevScore
from eval.encode import Encode
from models import fast
from models.auxiliary import load_head, load_masked_lm, new_head, top_layers
from models.encoder import SentenceEncoder
from models.families import check_apart
from models.loading import dropout_rates, load_config, set_dropout, usable_length
from models.masked_lm import AuxiliaryMaskedLM
from models.objectives.base import Method
from models.training import EncoderForTraining, build_model
from training.graph import GraphedTrainer
from training.run_arguments import RunArguments, recomputes
from training.settings import Settings
from training.trainer import CachedTrainer, EmbeddingTrainer

logger = logging.getLogger(__name__)
_MANY_UNKNOWN = 0.1  # share of tokens; below 0.001 for English Wikipedia and BERT
_SAMPLED = 100_000  # rows that the plan examines


def build_training(
    settings: Settings, tokenizer, corpus: TokenisedText, dev: DevScore | None
) -> tuple[EmbeddingTrainer, str]:
    """The Trainer of a method, and the plan.

    Raises:
        BadInput: a batch, length or flag that the model or the method does not support.
    """
    method, model_args, data_args = settings.method, settings.model_args, settings.data_args
    args = settings.args
    assert method is not None, "stage 1 has none"
    set_seed(args.seed)
    model = build_model(method, settings.method_args, model_args, tokenizer, args.bf16)
    encoder = model.encoder
    collator = build_collator(settings, method, corpus, tokenizer, model)
    if recomputes(args) and encoder.dropout_operations:
        raise BadInput(
            "--activation_checkpointing: not supported by this method, which draws new dropout "
            "rates in every pass"
        )
    others: dict[str, Any] = {
        "keep_best": partial(encoder.save, tokenizer=tokenizer),
        # A repeated row is trained on in its other places.
        "held_out": 0 if data_args.upsample else data_args.held_out,
        "patience": data_args.patience,
    }
    args.metric_for_best_model = args.greater_is_better = None
    if dev is not None:
        args.metric_for_best_model, args.greater_is_better = dev.metric, True
        others["dev"] = partial(dev.scores, Encode(encoder, tokenizer, bf16=args.bf16))
    if model_args.chunk_size:  # a step in chunks is not one graph
        others["chunk_size"] = model_args.chunk_size
        trainer: EmbeddingTrainer = CachedTrainer(model, args, collator, len(corpus), **others)
    else:
        trainer = trainer_class(args)(model, args, collator, len(corpus), **others)
    check_batches(model.objectives, args, trainer.sampler.count)

    first = np.arange(min(len(corpus), _SAMPLED))
    truncated = "documents into views"
    if not all(view.cut for view in collator.views):
        lengths = np.stack([corpus.lengths(first, column) for column in range(corpus.columns)])
        truncated = f"{(lengths > data_args.max_length - collator.added).mean():.1%} of the texts"
    ids, _ = corpus.sentences(first, 0, data_args.max_length)
    facts = {
        "method": model_args.method,
        "cut": f"{truncated}, at --max_length {data_args.max_length} tokens",
        "unknown": f"{share_unknown(ids, tokenizer):.1%} of the tokens, to the tokenizer",
        "packed": encoder.packed,
        "views": len(collator.views),
        "masking": describe_masking(collator.masking),
        "pooling": model_args.pooling,
    }
    return trainer, plan(model, args, trainer.sampler, trainer.count_steps(), facts)


def check_batches(objectives: Iterable[Any], args: RunArguments, count: int) -> None:
    """Refuse batches that are too small for a loss, also a last one that is not dropped."""
    batch, last = args.per_device_train_batch_size * args.world_size, 0
    if not args.dataloader_drop_last and args.world_size == 1:  # several processes fill it up
        last = count % batch
    for objective in objectives:
        objective.check_batch(batch)
        try:
            objective.check_batch(last or batch)
        except BadInput as error:
            said = f"the last of {count} sentences are a batch of {last}; leave it out"
            raise BadInput(f"--dataloader_drop_last false: {said} ({error})") from error


def trainer_class(args: RunArguments) -> type[EmbeddingTrainer]:
    """The Trainer of whole batches."""
    return GraphedTrainer if args.cuda_graph else EmbeddingTrainer


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


def build_collator(
    settings: Settings, method: Method, corpus: TokenisedText, tokenizer, model: EncoderForTraining
) -> Collator:
    """The collator of the method's views; in rows of several sentences each view is one of them."""
    method_args, data_args, args = settings.method_args, settings.data_args, settings.args
    encoder = model.encoder
    check_length(data_args.max_length, encoder.max_length)
    if getattr(method_args, "hard_negative_weight", 0) and corpus.columns < 3:
        raise BadInput("--hard_negative_weight: the text has no third column of hard negatives")
    views = method.views_of_rows(method_args, corpus.columns)
    views = prompted(views, encoder, tokenizer, corpus)
    if any(view.perturb for view in views):
        check_apart(model.config, "a view with perturbed embeddings")
    rates = dropout_rates(encoder.config).values()
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
        encoder.dropout_operations,
        encoder.max_length,
        any(objective.reads_words for objective in model.objectives),
        fast.EDGE if args.cuda_graph else 1,
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
    search = any(view.cut for view in views) or (corpus.columns > 1 and corpus.labels is None)
    changed, used = [], set()
    for number, view in enumerate(views):
        role = None
        if search:
            role = "query" if number == 0 else "document"
        prompt = encoder.prompt_of(role)
        if prompt and view.template is None:
            view = replace(view, template=prompt + TEXT)
            if prompt not in used:
                _report_prompt(prompt, tokenizer)
            used.add(prompt)
        changed.append(view)
    return changed


def _report_prompt(prompt: str, tokenizer) -> None:
    """Log a prompt; a warning where evaluation, which joins it to the text, gives other tokens."""
    frame = framed(tokenizer, prompt + TEXT)
    letter = tokenizer("a", add_special_tokens=False)["input_ids"]
    if tokenizer(f"{prompt}a")["input_ids"] == [*frame.prefix, *letter, *frame.suffix]:
        logger.info("training with the prompt '%s'", prompt)
    else:
        said = (
            "training with the prompt '%s'; evaluation splits the text after it into other tokens"
        )
        logger.warning(said, prompt)


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
    backbone: Any = lm.base_model  # transformers declares any module
    head = None
    if layers == 0:
        head = nn.ModuleList()
    elif source:
        head = load_head(source, backbone, layers, model_args.skip_from)
    if head is None and model_args.head_init == "encoder_top":
        head = top_layers(backbone, layers)
    if head is None:
        logger.info("initialised %d new layers of the auxiliary head", layers)
        head = new_head(backbone, layers)
    packed = model_args.packed is not False
    clean = model_args.aux_cls == "clean"
    model = AuxiliaryMaskedLM(lm, head, model_args.skip_from, packed, model_args.bow_weight, clean)

    check_length(data_args.max_length, usable_length(backbone, tokenizer))
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
        multiple=fast.EDGE if args.cuda_graph else 1,
    )
    trainer = trainer_class(args)(model, args, collator, len(blocks), held_out=data_args.held_out)
    facts = {
        "masking": describe_masking(maskings),
        "head": f"{layers} layers over layer {model_args.skip_from}, {model_args.aux_cls} [CLS]",
        "packed": model.packed,
    }
    return trainer, plan(model, args, trainer.sampler, trainer.count_steps(), facts)


def plan(
    model: PreTrainedModel,
    args: RunArguments,
    sampler: KeyedSampler,
    steps: int,
    facts: dict[str, Any],
) -> str:
    """The plan, one fact per line."""
    size = {True: 0, False: 0}
    for parameter in model.parameters():
        size[parameter.requires_grad] += parameter.numel()
    rates = [f"{name} {rate}" for name, rate in dropout_rates(model.config).items()]
    held_out = f", {len(sampler.held)} held out" if sampler.held else ""
    batch = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    epochs = steps * batch / sampler.count
    precision = "bf16" if args.bf16 else "fp16" if args.fp16 else "float32"
    if args.tf32:
        precision += ", TF32 products"
    lines = {
        "model": f"{size[True]:,} trainable and {size[False]:,} frozen parameters",
        "dropout": ", ".join(rates) or "none",
        "text": f"{sampler.count:,} examples{held_out}, {steps:,} steps of {batch} "
        f"({epochs:.2g} epochs)",
        "processes": f"{args.world_size} on {args.device.type}, {precision}",
        **facts,
    }
    return "\n".join(f"{name:>10}: {value}" for name, value in lines.items())


def describe_masking(masking: Sequence[Masking]) -> str:
    """The name, rate and scheme of each masking."""
    described = []
    for some in masking:
        words = "whole words, " if some.whole_words else ""
        described.append(f"{some.name} {some.rate:.0%} ({words}{some.scheme})")
    return ", ".join(described) or "none"
