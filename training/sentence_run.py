"""The run behind run_unsup.py and run_sup.py: build, train, export, score."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from transformers import set_seed

from common.errors import BadInput
from common.files import digest
from data.collator import Collator
from data.source import source_of
from data.template import TEXT, framed
from data.text import read_text
from data.tokenised import Sample, TokenisedText, false_negatives, load_tokenised
from data.views import View
from eval.dev import DevSet
from eval.encode import Encode
from models.adapters import adapter_dropout
from models.encoder import SentenceEncoder
from models.families import check_apart
from models.loading import dropout_rates, load_tokenizer
from models.pooling import pooling_named
from models.training import build_model
from training.faults import storage_errors
from training.graph import GraphedTrainer
from training.plan import describe_masking, describe_truncation, plan
from training.provenance import contents, weights_hash
from training.result import dev_set, finish, load_tests
from training.run import Run
from training.run_arguments import describe_packing, settle_packing
from training.settings import Settings
from training.trainer import CachedTrainer, EmbeddingTrainer

logger = logging.getLogger(__name__)
_MANY_UNKNOWN = 0.1  # share of tokens; below 0.001 for English Wikipedia and BERT
_SAMPLED = 100_000  # rows that the plan examines


@storage_errors(".")
def train_sentences(settings: Settings, callbacks: Sequence[Any]) -> str:
    """Build, train, export, score.

    Args:
        settings: of a method.
        callbacks: `transformers.TrainerCallback`s.

    Returns:
        The run's folder.
    """
    method, model_args, method_args = settings.method, settings.model_args, settings.method_args
    data_args, args = settings.data_args, settings.args
    for name in method.unread(method_args):
        if (value := getattr(method_args, name)) != getattr(method.arguments(), name):
            logger.warning("--%s %s has no effect with the other flags", name, value)
    model_args.packed = settle_packing(model_args.packed, args)
    if model_args.model_name_or_path is None:
        raise BadInput("--model_name_or_path is missing: give the checkpoint to start from")
    pooling_named(model_args.pooling)  # check it before reading a long text
    tokenizer = load_tokenizer(model_args.model_name_or_path)
    sample = None if data_args.max_rows is None else Sample(data_args.max_rows, args.seed)
    with args.main_process_first(desc="tokenise"):
        source = source_of(data_args, method.labels, (data_args.cache_dir, args.output_dir))
        if source.titled and not _cuts(method.views_of_rows(method_args, source.width)):
            source = replace(source, titled=False)  # title and text are a pair: a row without one of them is dropped
        corpus = load_tokenised(source, tokenizer, data_args.cache_dir, sample)
    dev, tests = dev_set(data_args, model_args.pooling), load_tests(data_args, args.device.type)
    identity = {
        "text": corpus.facts,
        "start": weights_hash(model_args.model_name_or_path),
        "dev_pairs": dev and digest([dev.metric, dev.content]),
        "contents": contents(vars(model_args) | vars(method_args)),
    }
    run = Run(settings, identity, source.file_names)
    tokenizer = method.tokenizer(method_args, tokenizer)  # may add a template, which the stored ids lack

    def end(trainer: EmbeddingTrainer) -> None:
        text = read_text(source, data_args.cache_dir)
        texts = text.cells(None if sample is None else sample.rows(len(text)))
        finish(run, trainer, tokenizer, dev, tests, data_args, texts)

    return run.execute(partial(build, settings, tokenizer, corpus, dev), end, callbacks)


def build(settings: Settings, tokenizer, corpus: TokenisedText, dev) -> tuple[EmbeddingTrainer, str]:
    """The Trainer of a method, with model and collator, and the plan as text."""
    model_args, data_args, args = settings.model_args, settings.data_args, settings.args
    set_seed(args.seed)
    model = build_model(settings.method, settings.method_args, model_args, tokenizer, args.bf16)
    collator = make_collator(settings, corpus, tokenizer, model)
    trainer = make_trainer(settings, model, collator, tokenizer, dev)
    column = corpus.columns - 1 if _cuts(collator.views) else 0  # titles may be empty or rarely shown
    first = np.arange(min(len(corpus), _SAMPLED))
    lengths = np.stack([corpus.lengths(first, column) for column in range(corpus.columns)])
    facts = {
        "method": model_args.method,
        "cut": _cut(collator, lengths, data_args.max_length, model.encoder.max_length),
        "unknown": f"{_unknown(corpus, tokenizer, data_args.max_length, column):.1%} of the tokens, to the tokenizer",
        "packed": describe_packing(model.encoder.packed, args),
        "views": len(collator.views),
        "masking": describe_masking(collator.masking),
        "pooling": model_args.pooling,
    }
    equal, examined = false_negatives(corpus, trainer.sampler, data_args.max_length, column)
    if equal:
        logger.warning("%d of %d sentences have a duplicate in their batch of %d, which becomes a negative",
                       equal, examined, trainer.sampler.batch_size)  # fmt: skip
    return trainer, plan(model, args, trainer.sampler, facts)


def make_collator(settings: Settings, corpus: TokenisedText, tokenizer, model) -> Collator:
    """The collator of the method's views; in rows of several sentences each view is one of them."""
    method, method_args, data_args, args = settings.method, settings.method_args, settings.data_args, settings.args
    longest = model.encoder.max_length
    if data_args.max_length > longest:
        raise BadInput(f"--max_length {data_args.max_length}: the model accepts at most {longest} tokens")
    views = prompted(method.views_of_rows(method_args, corpus.columns), model.encoder, tokenizer, corpus)
    if any(view.perturb for view in views):
        check_apart(model.config, "a view with perturbed embeddings")
    if corpus.columns == 1 and views.count(View()) > 1 and not _has_dropout(model.encoder):
        logger.warning("the model has no dropout, so both views give the same vector: give --dropout, such as 0.1")
    words = any(objective.reads_words for objective in model.objectives)
    packing = model.packing(settings.model_args.chunk_size, args.torch_compile or args.cuda_graph)
    return Collator(
        corpus, tokenizer, views, data_args.max_length, args.seed, method.masking(method_args),
        model.config.hidden_size, model.encoder.dropout_operations, longest, words, packing,
    )  # fmt: skip


def prompted(views: Sequence[View], encoder: SentenceEncoder, tokenizer, corpus: TokenisedText) -> list[View]:
    """Views with the encoder's prompts before their texts, except where a view has a template of its own.

    In parts of documents and in rows of several unlabelled texts, the first view is the query and the others documents.
    All other views get the default prompt, if any.
    """
    search = _cuts(views) or (corpus.columns > 1 and corpus.labels is None)
    roles = ["query" if number == 0 else "document" for number in range(len(views))] if search else [None] * len(views)
    prompts = [view.template is None and encoder.prompt_of(role) for view, role in zip(views, roles, strict=True)]
    for prompt in filter(None, dict.fromkeys(prompts)):
        frame, letter = framed(tokenizer, prompt + TEXT), tokenizer("a", add_special_tokens=False)["input_ids"]
        same = tokenizer(f"{prompt}a")["input_ids"] == [*frame.prefix, *letter, *frame.suffix]
        note = "" if same else "; a text after it is cut into other tokens than in evaluation"
        logger.log(logging.INFO if same else logging.WARNING, "training with the prompt '%s'%s", prompt, note)
    return [replace(view, template=prompt + TEXT) if prompt else view
            for view, prompt in zip(views, prompts, strict=True)]  # fmt: skip


def _has_dropout(encoder: SentenceEncoder) -> bool:
    """Whether the encoder has dropout; assumed if its configuration names no rate."""
    rates = dropout_rates(encoder.config).values()
    return any(rates) or not rates or adapter_dropout(encoder.backbone) > 0


def make_trainer(settings: Settings, model, collator: Collator, tokenizer, dev: DevSet | None) -> EmbeddingTrainer:
    """The Trainer with its dev score; BadInput for a batch or flag that the objectives do not support."""
    model_args, data_args, args = settings.model_args, settings.data_args, settings.args
    for objective in model.objectives:
        objective.check_batch(args.per_device_train_batch_size * args.world_size)
        if args.cuda_graph and objective.not_replayed:
            raise BadInput(f"--cuda_graph: not supported by this method; {objective.not_replayed}")
    if args.activation_checkpointing and model.encoder.dropout_operations:
        raise BadInput("--activation_checkpointing: not supported by this method, which draws dropout rates per pass")
    if args.gradient_accumulation_steps > 1:
        logger.warning(
            "--gradient_accumulation_steps %d adds no negatives: a sentence is compared within its own batch of %d; "
            "for more, raise --per_device_train_batch_size and give --chunk_size",
            args.gradient_accumulation_steps, args.per_device_train_batch_size * args.world_size,
        )  # fmt: skip
    score = None
    if dev is not None:
        encode = Encode(model.encoder, tokenizer, bf16=args.bf16)
        score = partial(dev.scores, encode, model_args.matryoshka_dims or ())
    args.metric_for_best_model = dev.metric if dev else None
    args.greater_is_better = True if dev else None
    keep = partial(model.encoder.save, tokenizer=tokenizer)
    common = model, args, collator, len(collator.text), score, keep, data_args.held_out, data_args.patience
    chunk_size = model_args.chunk_size
    if chunk_size and args.cuda_graph:
        raise BadInput("--chunk_size does not support --cuda_graph: the step runs in chunks; leave one out")
    if chunk_size:
        return CachedTrainer(*common, chunk_size=chunk_size)
    return (GraphedTrainer if args.cuda_graph else EmbeddingTrainer)(*common)


def _cut(collator, lengths: np.ndarray, max_length: int, most: int) -> str:
    """How many texts are truncated; none if every view crops its document anyway."""
    if all(view.cut for view in collator.views):
        return f"crops of whole documents, at most {max_length} tokens each (--max_length)"
    return describe_truncation(lengths, max_length, collator.added, most)


def _cuts(views: Sequence[View]) -> bool:
    """Whether the views are parts of documents."""
    return any(view.cut for view in views)


def _unknown(corpus: TokenisedText, tokenizer, longest: int, column: int) -> float:
    """The share of unknown tokens; warns if it is large."""
    ids, _ = corpus.sentences(np.arange(min(len(corpus), _SAMPLED)), column, longest)
    share = float((ids == tokenizer.unk_token_id).mean())
    if share > _MANY_UNKNOWN:
        logger.warning(
            "%.1f %% of the text's tokens are unknown to the tokenizer: is it for another language?", 100 * share
        )
    return share
