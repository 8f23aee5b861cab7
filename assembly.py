"""What the scripts that train on sentences share: model, collator, Trainer and the end of a run."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import set_seed

from arguments import ModelArguments, RunArguments, ScoredArguments
from cached_trainer import CachedTrainer
from command_line import find_files, parse, peek
from data.collator import Collator
from data.corpus import load_corpus
from data.reader import reader_of
from errors import BadInput
from eval.encode import Encode
from eval.report import rows_of, score_all, tables, write_scores
from eval.seen import in_words, marked, seen_texts
from eval.sts.tasks import STS_DEV, merged, own_pairs, spearman
from eval.task import Options
from eval.tasks import tasks_named
from lifecycle import Run, dry_run, plan, set_dropout, weights_hash
from models.dropout import count_operations
from models.encoder import SentenceEncoder, load_encoder
from models.heads import projection_named
from models.loading import load_backbone, load_config, load_tokenizer, usable_length
from models.packed import use_packing
from models.pooling import pooling_named
from models.training import EncoderForTraining
from registry import SCRIPTS, load_method
from trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)


def main_of(script: str, default: str, argv: Sequence[str], description: str) -> None:
    """The command of a training script: its method's flags, then `run`; `default` is shown by --help."""
    method = load_method(script, default if "--help" in argv else peek(argv, "method"))
    data = SCRIPTS[script][1]
    groups = parse(argv, (ModelArguments, method.Arguments, data, RunArguments), description)
    run(script, argv, method, groups, getattr(groups[2], "columns", None))


def build_model(method, method_args, model_args: ModelArguments, tokenizer, bf16: bool = False) -> EncoderForTraining:
    """Encoder, projection head and objectives from a checkpoint; with `bf16`, what never learns is held in it."""
    source = model_args.model_name_or_path
    config = load_config(source)
    set_dropout(config, model_args.dropout)
    backbone = load_backbone(source, config)
    length = usable_length(config, tokenizer)
    kept = pooling_named(model_args.pooling).keeps_head
    packed = use_packing(config, model_args.packed)
    if kept and model_args.train_pooling:
        raise BadInput("--pooling cls keeps the head that was trained on its vector; leave --train_pooling out")
    encoder = SentenceEncoder(backbone, model_args.pooling, None, length, packed, model_args.train_pooling)
    projection = projection_named(model_args.projection, config.hidden_size, config.initializer_range)
    if kept and projection is None:
        raise BadInput("--pooling cls keeps the projection head, but there is none; use cls_before_pooler")
    objectives = method.build(method_args, encoder, projection, source)
    for objective in objectives if bf16 else []:
        objective.hold_frozen(torch.bfloat16)
    encoder.head = projection if kept else None
    return EncoderForTraining(encoder, None if kept else projection, objectives)


def selection(data_args: ScoredArguments) -> tuple[str, object] | None:
    """Name of the dev metric and its pairs, or None for `--dev none`."""
    if data_args.dev == "none":
        return None
    if data_args.dev_file:
        return "dev_spearman", merged(own_pairs(data_args.dev_file).load(data_args.data_dir))
    return "stsb_spearman", merged(STS_DEV[0].load(data_args.data_dir))


def finish(run: Run, trainer: EmbeddingTrainer, tokenizer, tests: list, data_dir: str, texts: Iterable[str]) -> None:
    """Export the chosen model to the run's root, score it there, and close the record; `texts` it was trained on."""
    folder, best = Path(run.args.output_dir), Path(run.args.output_dir) / "best"
    facts = {}
    if trainer.dev is None:
        logger.info("no dev task: the last model is the result")
        trainer.model.encoder.save(str(folder), tokenizer)
    else:
        facts["best"] = {"step": trainer.state.best_global_step, "value": trainer.state.best_metric}
        shutil.copytree(best, folder, dirs_exist_ok=True)
    encoder, tokenizer = load_encoder(str(folder))
    encode = Encode(encoder.to(run.args.device), tokenizer, encoder.max_length, run.args.bf16)
    results = score_all(encode, tests, data_dir)
    seen = seen_texts(texts, tests, data_dir) if tests else {}
    facts["seen_test_texts"] = seen
    rows = marked(rows_of(results, run.record["settings"]["method"], folder.name), seen)
    write_scores(folder / "scores.json", results, rows)
    if rows:
        sys.stdout.write(tables({folder.name: rows}) + "\n")
    if said := in_words(seen):
        logger.warning(said)
    run.finish(trainer, facts)


def keep_best(model: EncoderForTraining, tokenizer, folder: str, step: int, value: float) -> None:
    """Write the encoder to OUTPUT_DIR/best, whole or not at all."""
    best, partial_folder = Path(folder) / "best", Path(folder) / ".best.partial"
    shutil.rmtree(partial_folder, ignore_errors=True)
    model.encoder.save(str(partial_folder), tokenizer)
    (partial_folder / "best.json").write_text(json.dumps({"step": step, "value": value}), encoding="utf-8")
    shutil.rmtree(best, ignore_errors=True)
    partial_folder.rename(best)


def make_collator(method, method_args, data_args: ScoredArguments, corpus, tokenizer, model, seed: int) -> Collator:
    """The method's views of the text; rows of several sentences show one sentence a view."""
    longest = usable_length(model.config, tokenizer)
    if data_args.max_length > longest:
        raise BadInput(f"--max_length {data_args.max_length}: the model takes at most {longest} tokens")
    views = method.views(method_args)
    if corpus.columns > 1 and corpus.labels is None:
        views = views[:1] * corpus.columns
    masking, width, operations = method.masking(method_args), model.config.hidden_size, count_operations(model.encoder)
    return Collator(corpus, tokenizer, views, data_args.max_length, seed, masking, width, operations)


def make_trainer(
    model, args: RunArguments, collator: Collator, tokenizer, dev, chunk_size: int = 0
) -> EmbeddingTrainer:
    """The Trainer with its dev score and what to do when it improves."""
    if args.gradient_accumulation_steps > 1 and not chunk_size:
        logger.warning(
            "--gradient_accumulation_steps %d adds no negatives: a sentence is compared with its own batch of %d only; "
            "for more, raise --per_device_train_batch_size and give --chunk_size",
            args.gradient_accumulation_steps, args.per_device_train_batch_size * args.world_size,
        )  # fmt: skip
    score = None
    if dev is not None:
        name, pairs = dev
        encode = Encode(model.encoder, tokenizer, model.encoder.max_length, args.bf16)
        score = lambda: (name, spearman(encode, pairs))  # noqa: E731
    args.metric_for_best_model = dev[0] if dev else None
    args.greater_is_better = True if dev else None
    keep = partial(keep_best, model, tokenizer, args.output_dir)
    common = model, args, collator, len(collator.corpus), score, keep
    return CachedTrainer(*common, chunk_size=chunk_size) if chunk_size else EmbeddingTrainer(*common)


def load_tests(data_args: ScoredArguments) -> list:
    """The test tasks, read once now: a missing file is better known before the training than after."""
    tests = tasks_named([name for name in data_args.test_tasks if name != "none"], Options())
    for task in tests:
        task.load(data_args.data_dir)
    return tests


def run(
    script: str,
    argv: Sequence[str],
    method: ModuleType,
    groups: tuple[ModelArguments, Any, ScoredArguments, RunArguments],
    columns: int | None,
) -> None:
    """Build, train, export, score; `columns` as in `data.reader.reader_of`."""
    model_args, method_args, data_args, args = groups
    if model_args.model_name_or_path is None:
        raise BadInput("--model_name_or_path is missing: the checkpoint to start from")
    tokenizer = load_tokenizer(model_args.model_name_or_path)
    files = find_files(data_args.train_file, data_args.data_dir)
    with args.main_process_first(desc="tokenise"):
        corpus = load_corpus(files, tokenizer, columns, data_args.cache_dir)
    if data_args.max_rows is not None:
        corpus = corpus.sample(data_args.max_rows, args.seed)
    dev, tests = selection(data_args), load_tests(data_args)
    identity = {"text": corpus.facts, "start": weights_hash(model_args.model_name_or_path)}
    record = Run(script, argv, groups, identity)
    start = record.open(data_args.dry_run)
    if start.finished:
        return
    set_seed(args.seed)
    model = build_model(method, method_args, model_args, tokenizer, args.bf16)
    collator = make_collator(method, method_args, data_args, corpus, tokenizer, model, args.seed)
    trainer = make_trainer(model, args, collator, tokenizer, dev, model_args.chunk_size)
    facts = {
        "method": model_args.method,
        "packed": model.encoder.packed,
        "views": len(collator.views),
        "masking": collator.masking,
    }
    description = plan(model, args, len(corpus), facts | {"pooling": model_args.pooling})
    if data_args.dry_run:
        dry_run(trainer, description)
        return
    record.train(trainer, start, description)
    texts = (text for row in reader_of(files, columns) for text in row)
    if trainer.is_world_process_zero():
        finish(record, trainer, tokenizer, tests, data_args.data_dir, texts)
    trainer.accelerator.wait_for_everyone()
