"""The parts of a run on sentences: model, collator, Trainer and tests."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import torch

from common.arguments import ModelArguments, ScoredArguments
from common.errors import BadInput
from common.template import mask_place
from common.views import View
from data.collator import Collator
from eval.dev import DevSet
from eval.encode import Encode
from eval.tasks import Options, tasks_named
from models.adapters import adapter_dropout
from models.bag_of_words import BagOfWords
from models.encoder import SentenceEncoder
from models.families import attend_both_ways, check_apart
from models.heads import projection_named
from models.kernels.dropout import count_operations
from models.loading import NO_LIMIT, dropout_rates, load_backbone, load_config, set_dropout, usable_length
from models.objectives.base import Contrast, Method, Objective
from models.pooling import pooling_named
from models.saved_format import Described, read_modules
from models.training import EncoderForTraining
from training.run_arguments import RunArguments
from training.trainer import CachedTrainer, EmbeddingTrainer

logger = logging.getLogger(__name__)


def build_model(
    method: Method, method_args, model_args: ModelArguments, tokenizer, bf16: bool = False
) -> EncoderForTraining:
    """Encoder, projection head and objectives from a checkpoint; `bf16` casts frozen parts."""
    source = model_args.model_name_or_path
    config = load_config(source)
    set_dropout(config, model_args.dropout)
    backbone = load_backbone(source, config)
    if model_args.bidirectional:
        attend_both_ways(backbone)
    described = _describe(source, config, model_args.pooling)
    length = min(usable_length(config, tokenizer), described.max_length or NO_LIMIT)
    kept = pooling_named(model_args.pooling).keeps_head
    if kept and model_args.train_pooling:
        raise BadInput("--pooling cls keeps the projection head; leave out --train_pooling")
    encoder = SentenceEncoder(
        backbone, model_args.pooling, None, length, model_args.packed is not False, model_args.train_pooling,
        mask_place(tokenizer), described.prompts,
    )  # fmt: skip
    _choose_trained(encoder, method, model_args)
    projection = projection_named(model_args.projection, config.hidden_size, config.initializer_range)
    if kept and projection is None:
        raise BadInput("--pooling cls keeps the projection head, but there is none; use cls_before_pooler")
    if projection is not None and not method.takes_projection:
        raise BadInput(f"--method {method.name} uses no projection head: give --projection none")
    objectives = method.build(method_args, encoder, projection, source)
    if model_args.bow_weight:
        objectives.append(BagOfWords.of(source, model_args.bow_weight))
    _nest(objectives, model_args, projection.dense_layers()[-1][0].out_features if kept else config.hidden_size)
    for objective in objectives if bf16 else []:
        objective.cast_frozen(torch.bfloat16)
    if kept and not any(objective.reads_projection for objective in objectives):
        raise BadInput("--pooling cls would save a projection head that no loss trains; use cls_before_pooler")
    encoder.head = projection if kept else None
    encoder.normalized = described.normalizes and not kept
    return EncoderForTraining(encoder, None if kept else projection, objectives)


def _choose_trained(encoder: SentenceEncoder, method: Method, args: ModelArguments) -> None:
    """Train only the last layers, or adapters; called before the method copies the encoder."""
    if args.train_last_layers is not None:
        encoder.train_last(args.train_last_layers)
    given = [name for name in ("lora_alpha", "lora_dropout", "lora_target", "lora_keep") if getattr(args, name)]
    if args.lora_r is None:
        if given:
            raise BadInput(f"--{given[0]} has no effect without --lora_r, the rank of the adapters")
        return
    if method.not_adapted:
        raise BadInput(f"--lora_r: not supported by --method {method.name}; {method.not_adapted}")
    if args.train_last_layers is not None:
        raise BadInput("--lora_r trains adapters only and excludes --train_last_layers; leave one of them out")
    encoder.adapt(args.lora_r, args.lora_alpha or args.lora_r, args.lora_dropout, args.lora_target, args.lora_keep)


def _nest(objectives: list[Objective], model_args: ModelArguments, width: int) -> None:
    """Apply the contrastive losses to prefixes of the vectors too; BadInput if the head they see is not kept."""
    dims, nested = model_args.matryoshka_dims, [one for one in objectives if isinstance(one, Contrast)]
    if not dims:
        return
    dropped = model_args.projection != "none" and not pooling_named(model_args.pooling).keeps_head
    if not nested:
        raise BadInput(f"--matryoshka_dims: --method {model_args.method} has no contrastive loss on vectors")
    if dropped and any(one.reads_projection for one in nested):
        raise BadInput(
            f"--matryoshka_dims: the loss sees the output of --projection {model_args.projection}, which is dropped "
            "after training; give --projection none, or --pooling cls, which keeps it"
        )
    if len({*dims}) < len(dims) or max(dims) >= width:
        listed = " ".join(map(str, dims))
        raise BadInput(f"--matryoshka_dims {listed}: give distinct numbers below {width}, the width of the vector")
    for one in nested:
        one.widths = sorted(dims, reverse=True)


def _describe(source: str, config, pooling: str) -> Described:
    """The model's own description; warns if its pooling, head or prompts are dropped."""
    try:
        described = read_modules(source, config)
    except BadInput as error:
        logger.warning("%s; training uses only its backbone, with --pooling %s", error, pooling)
        described = None
    dropped = len(described.head) - described.normalizes if described else 0
    if described and (dropped or described.pooling != pooling):
        head = f" and a head of {dropped} modules" if dropped else ""
        logger.warning("'%s' has pooling %s%s; training uses only its backbone, with --pooling %s", source,
                       described.pooling, head, pooling)  # fmt: skip
    if described and described.prompts and pooling_named(pooling).module is None:
        logger.warning("'%s': its prompts are dropped; sentence-transformers has no pooling %s", source, pooling)
    return described or Described(pooling, [], None)


def make_collator(
    method: Method, method_args, data_args: ScoredArguments, corpus, tokenizer, model, seed: int, chunk_size: int = 0,
    static: bool = False,
) -> Collator:  # fmt: skip
    """The collator of the method's views; in rows of several sentences each view is one of them.

    `static` limits batches to a few shapes, for a compiled step.
    """
    longest = usable_length(model.config, tokenizer)
    if data_args.max_length > longest:
        raise BadInput(f"--max_length {data_args.max_length}: the model accepts at most {longest} tokens")
    views = method.views_of_rows(method_args, corpus.columns)
    if any(view.perturb for view in views):
        check_apart(model.config, "a view with perturbed embeddings")
    if corpus.columns == 1 and views.count(View()) > 1 and not _has_dropout(model.encoder):
        logger.warning("the model has no dropout, so both views give the same vector: give --dropout, such as 0.1")
    words = any(objective.reads_words for objective in model.objectives)
    return Collator(
        corpus, tokenizer, views, data_args.max_length, seed, method.masking(method_args), model.config.hidden_size,
        count_operations(model.encoder), longest, words, model.packing(len(views), chunk_size, static),
    )  # fmt: skip


def _has_dropout(encoder: SentenceEncoder) -> bool:
    """Whether the encoder has dropout; assumed if its configuration names no rate."""
    rates = dropout_rates(encoder.config).values()
    return any(rates) or not rates or adapter_dropout(encoder.backbone) > 0


def make_trainer(
    model, args: RunArguments, collator: Collator, tokenizer, dev: DevSet | None, chunk_size: int = 0,
    held_out: int = 0, patience: int | None = None, widths: Sequence[int] = (),
) -> EmbeddingTrainer:  # fmt: skip
    """The Trainer with its dev score; BadInput for a batch or flag that the objectives do not support."""
    for objective in model.objectives:
        objective.check_batch(args.per_device_train_batch_size * args.world_size)
        if args.torch_compile and objective.not_compiled:
            raise BadInput(f"--torch_compile: not supported by this method; {objective.not_compiled}")
    if args.activation_checkpointing and count_operations(model.encoder):
        raise BadInput("--activation_checkpointing: not supported by this method, which draws dropout rates per pass")
    if args.gradient_accumulation_steps > 1:
        logger.warning(
            "--gradient_accumulation_steps %d adds no negatives: a sentence is compared within its own batch of %d; "
            "for more, raise --per_device_train_batch_size and give --chunk_size",
            args.gradient_accumulation_steps, args.per_device_train_batch_size * args.world_size,
        )  # fmt: skip
    score = None
    if dev is not None:
        encode = Encode(model.encoder, tokenizer, model.encoder.max_length, args.bf16)
        score = partial(dev.scores, encode, widths)
    args.metric_for_best_model = dev.metric if dev else None
    args.greater_is_better = True if dev else None
    keep = lambda folder: model.encoder.save(str(folder), tokenizer)  # noqa: E731
    common = model, args, collator, len(collator.text), score, keep, held_out, patience
    return CachedTrainer(*common, chunk_size=chunk_size) if chunk_size else EmbeddingTrainer(*common)


def load_tests(data_args: ScoredArguments, device: str) -> list:
    """The test tasks, computed on this device; loads each once, so that a missing file fails before training."""
    tests = tasks_named([name for name in data_args.test_tasks if name != "none"], Options(device=device))
    for task in tests:
        task.load(data_args.data_dir)
    return tests
