"""The run of stage 1: build, train, save."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForMaskedLM, set_seed

from common.arguments import PretrainArguments
from common.errors import BadInput
from data.collator import MaskedCollator
from data.source import Source, source_of
from data.template import frame_of
from data.tokenised import TokenisedText, load_tokenised
from data.tokenizer import train_tokenizer
from data.views import Masking
from models.auxiliary import load_head, load_masked_lm, new_head, top_layers
from models.families import check_apart
from models.loading import load_config, load_tokenizer, set_dropout, usable_length
from models.masked_lm import AuxiliaryMaskedLM
from training.faults import storage_errors
from training.graph import GraphedTrainer
from training.plan import describe_masking, plan
from training.provenance import contents, weights_hash
from training.run import Run
from training.run_arguments import describe_packing, settle_packing
from training.settings import Settings
from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)


def build_model(model_args: PretrainArguments, tokenizer) -> AuxiliaryMaskedLM:
    """Masked language model and head, each from the checkpoint or new; logs a new head."""
    source = model_args.model_name_or_path
    config = load_config(source or model_args.config_name)
    check_apart(config, "stage 1")
    set_dropout(config, model_args.dropout)
    if source:
        lm = load_masked_lm(source, config, new_output=model_args.output_init == "new")
    else:
        config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
        lm = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)  # whatever the file says
    head = build_head(model_args, lm.base_model)
    return AuxiliaryMaskedLM(lm, head, model_args.skip_from, model_args.packed is not False, model_args.bow_weight)


def build_head(model_args: PretrainArguments, backbone) -> nn.ModuleList:
    """The auxiliary layers: from the checkpoint, copies of its top layers, or new ones (logged)."""
    source, count = model_args.model_name_or_path, model_args.head_layers
    if count == 0:
        return nn.ModuleList()
    head = load_head(source, backbone, count, model_args.skip_from) if source else None
    if head is None and model_args.head_init == "encoder_top":
        return top_layers(backbone, count)
    if head is None:
        logger.info("initialised %d new layers of the auxiliary head", count)
        head = new_head(backbone, count)
    return head


def load_text(settings: Settings) -> tuple[Source, Any, TokenisedText]:
    """The text, the tokenizer (the checkpoint's, or trained on the text) and the training blocks."""
    model_args, data_args, args = settings.model_args, settings.data_args, settings.args
    if bool(model_args.model_name_or_path) == bool(model_args.config_name):
        raise BadInput("give either --model_name_or_path (a checkpoint) or --config_name (from scratch)")
    tokenizer = load_tokenizer(model_args.model_name_or_path) if model_args.model_name_or_path else None
    with args.main_process_first(desc="tokenise"):
        source = source_of(data_args, written=(data_args.cache_dir, args.output_dir))
        if tokenizer is None:
            tokenizer = train_tokenizer(source, model_args.vocabulary_size, data_args.cache_dir)
        room = data_args.max_length - frame_of(tokenizer).added
        return source, tokenizer, load_tokenised(source, tokenizer, data_args.cache_dir, block=room)


@storage_errors(".")
def pretrain(settings: Settings, callbacks: Sequence[Any]) -> str:
    """Build, train, save.

    Args:
        settings: of stage 1.
        callbacks: `transformers.TrainerCallback`s.

    Returns:
        The run's folder.
    """
    model_args, args = settings.model_args, settings.args
    model_args.packed = settle_packing(model_args.packed, args)
    source, tokenizer, blocks = load_text(settings)
    identity = {
        "text": blocks.facts,
        "start": weights_hash(model_args.model_name_or_path or model_args.config_name),
        "contents": contents(vars(model_args)),
    }
    run = Run(settings, identity, source.file_names)

    def end(trainer: EmbeddingTrainer) -> None:
        run.export(lambda folder: trainer.model.save(folder, tokenizer))
        run.finish(trainer, {})
        logger.info(
            "next: python run_unsup.py --method %s --model_name_or_path %s%s --train_file MY_SENTENCES.txt "
            "--output_dir runs/stage-2", "infocse" if model_args.head_layers else "simcse",
            shlex.quote(args.output_dir), " --skip_from auto" * bool(model_args.head_layers),
        )  # fmt: skip

    return run.execute(partial(build, settings, tokenizer, blocks), end, callbacks)


def build(settings: Settings, tokenizer, blocks) -> tuple[EmbeddingTrainer, str]:
    """The Trainer, with model and collator, and the plan as text."""
    model_args, data_args, args = settings.model_args, settings.data_args, settings.args
    set_seed(args.seed)
    masking, aux_masking = maskings(model_args)
    model = build_model(model_args, tokenizer)
    longest = usable_length(model.lm.base_model, tokenizer)
    if data_args.max_length > longest:
        raise BadInput(f"--max_length {data_args.max_length}: the model accepts at most {longest} tokens")
    clean, words = model_args.aux_cls == "clean", model_args.bow_weight > 0
    options = masking, aux_masking, clean, words, model.packing(args.torch_compile or args.cuda_graph)
    collator = MaskedCollator(blocks, tokenizer, data_args.max_length, args.seed, *options)
    made = GraphedTrainer if args.cuda_graph else EmbeddingTrainer
    trainer = made(model, args, collator, len(blocks), held_out=data_args.held_out)
    facts = {
        "masking": describe_masking([one for one in (masking, aux_masking) if one]),
        "head": f"{model_args.head_layers} layers over layer {model_args.skip_from}, {model_args.aux_cls} [CLS]",
        "packed": describe_packing(model.packed, args),
    }
    return trainer, plan(model, args, trainer.sampler, facts)


def maskings(model_args: PretrainArguments) -> tuple[Masking, Masking | None]:
    """The masking of the encoder's text and, if separate, of the auxiliary head's."""
    if model_args.head_layers == 0 and model_args.aux_mask_rate:
        raise BadInput("--aux_mask_rate: --head_layers 0 has no head to mask for; leave one of them out")
    if model_args.aux_cls == "clean" and not (model_args.head_layers or model_args.bow_weight):
        raise BadInput("--aux_cls clean: nothing reads [CLS] with --head_layers 0 and no --bow_weight; leave it out")
    words = model_args.whole_words
    own = model_args.aux_mask_rate and Masking(model_args.aux_mask_rate, whole_words=words, name="aux")
    return Masking(model_args.mask_rate, whole_words=words), own
