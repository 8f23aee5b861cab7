"""Train a sentence encoder on unlabelled text: InfoCSE (stage 2), SimCSE and every method of models/objectives.

    python run_unsup.py --config configs/infocse-bert-base.yaml [--any_flag value ...]
    accelerate launch --config_file configs/accelerate/two_gpus.yaml run_unsup.py --config ...

The same command starts, resumes and, when finished, changes nothing. The best model by the dev task is kept in
OUTPUT_DIR/best and ends up in OUTPUT_DIR, which AutoModel and SentenceTransformer load.
"""

from __future__ import annotations

import importlib
import json
import logging
import pkgutil
import shutil
import sys
from functools import partial
from pathlib import Path

from transformers import set_seed

import models.objectives
from arguments import ModelArguments, RunArguments, SentenceArguments, find_files, parse, peek
from data.collator import Collator
from data.corpus import load_corpus
from errors import BadInput, run_command
from eval.encode import Encode
from eval.report import table, with_source, write_rows
from eval.sts import spearman
from eval.tasks import STS_DEV, average, own_pairs, tasks_named
from models.encoder import SentenceEncoder, load_backbone, load_config, load_encoder, load_tokenizer, usable_length
from models.heads import projection_named
from models.pooling import pooling_named
from models.training import EncoderForTraining
from session import Session, dry_run, plan, scratch_folder, set_dropout, weights_hash
from trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)


def load_method(name: str | None):
    """The module of a method; BadInput with the known ones otherwise."""
    known = [module.name for module in pkgutil.iter_modules(models.objectives.__path__) if module.name != "base"]
    if name not in known:
        raise BadInput(f"--method {name}: choose one of {', '.join(known)} (or a --config that names one)")
    return importlib.import_module(f"models.objectives.{name}")


def build_model(method, method_args, model_args: ModelArguments, tokenizer) -> EncoderForTraining:
    """Encoder, projection head and objectives from a checkpoint."""
    source = model_args.model_name_or_path
    config = load_config(source)
    set_dropout(config, model_args.dropout)
    backbone = load_backbone(source, config)
    length = usable_length(config, tokenizer)
    kept = pooling_named(model_args.pooling).keeps_head
    encoder = SentenceEncoder(backbone, model_args.pooling, None, length)
    objectives = method.build(method_args, encoder, source)
    projection = None
    if any(objective.reads_projection for objective in objectives):
        projection = projection_named(model_args.projection, config.hidden_size, config.initializer_range)
    if kept and projection is None:
        raise BadInput("--pooling cls keeps the projection head, but there is none; use cls_before_pooler")
    encoder.head = projection if kept else None
    return EncoderForTraining(encoder, None if kept else projection, objectives)


def selection(data_args: SentenceArguments) -> tuple[str, object] | None:
    """Name of the dev metric and its pairs, or None for `--dev none`."""
    if data_args.dev_file:
        return "dev_spearman", own_pairs(data_args.dev_file).load(data_args.data_dir)
    return None if data_args.dev == "none" else ("stsb_spearman", STS_DEV[0].load(data_args.data_dir))


def finish(session: Session, trainer: EmbeddingTrainer, tokenizer, tests: list, data_dir: str) -> None:
    """Export the chosen model to the run's root, score it there, and close the record."""
    folder, best = Path(session.args.output_dir), Path(session.args.output_dir) / "best"
    facts = {}
    if trainer.dev is None:
        logger.info("no dev task: the last model is the result")
        trainer.model.encoder.save(str(folder), tokenizer)
    else:
        facts["best"] = {"step": trainer.state.best_global_step, "value": trainer.state.best_metric}
        shutil.copytree(best, folder, dirs_exist_ok=True)
    encoder, tokenizer = load_encoder(str(folder))
    encode = Encode(encoder.to(session.args.device), tokenizer, encoder.max_length, session.args.bf16)
    rows = [task.score(encode, data_dir) for task in tests]
    if len(rows) > 1:
        rows.append(average(rows))
    rows = with_source(rows, session.record["settings"]["method"], folder.name)
    write_rows(folder / "scores.json", rows)
    if rows:
        sys.stdout.write(table({folder.name: rows}) + "\n")
    session.finish(trainer, facts)


def keep_best(model: EncoderForTraining, tokenizer, folder: str, step: int, value: float) -> None:
    """Write the encoder to OUTPUT_DIR/best, whole or not at all."""
    best, partial_folder = Path(folder) / "best", Path(folder) / ".best.partial"
    shutil.rmtree(partial_folder, ignore_errors=True)
    model.encoder.save(str(partial_folder), tokenizer)
    (partial_folder / "best.json").write_text(json.dumps({"step": step, "value": value}), encoding="utf-8")
    shutil.rmtree(best, ignore_errors=True)
    partial_folder.rename(best)


def main(argv: list[str] | None = None) -> None:
    """Parse, build, train, export, score."""
    argv = sys.argv[1:] if argv is None else argv
    method = load_method(peek(argv, "method")) if "--help" not in argv else load_method("infocse")
    groups = parse(argv, (ModelArguments, method.Arguments, SentenceArguments, RunArguments), __doc__)
    model_args, method_args, data_args, args = groups
    if model_args.model_name_or_path is None:
        raise BadInput("--model_name_or_path is missing: the checkpoint to start from")
    tokenizer = load_tokenizer(model_args.model_name_or_path)
    files = find_files(data_args.train_file, data_args.data_dir)
    with args.main_process_first(desc="tokenise"):
        corpus = load_corpus(files, tokenizer, data_args.columns, data_args.cache_dir)
    dev = selection(data_args)
    tests = tasks_named([name for name in data_args.test_tasks if name != "none"], "test")
    for task in tests:
        task.load(data_args.data_dir)  # a missing file is better known now than after the training
    args.metric_for_best_model = dev[0] if dev else None
    args.greater_is_better = True if dev else None
    identity = {"text": corpus.facts, "start": weights_hash(model_args.model_name_or_path)}
    session = Session("run_unsup.py", argv, groups, identity)
    if data_args.dry_run:
        args.output_dir = scratch_folder()
    start = session.open()
    if start.finished:
        return

    set_seed(args.seed)
    model = build_model(method, method_args, model_args, tokenizer)
    views = method.views(method_args) if corpus.columns == 1 else method.views(method_args)[:1] * corpus.columns
    masking = method.masking(method_args)
    collator = Collator(corpus, tokenizer, views, data_args.max_length, args.seed, masking)
    score = None
    if dev:
        encode = Encode(model.encoder, tokenizer, model.encoder.max_length, args.bf16)
        score = lambda: (dev[0], spearman(encode, dev[1]))  # noqa: E731
    trainer = EmbeddingTrainer(
        model, args, collator, len(corpus), score, partial(keep_best, model, tokenizer, args.output_dir)
    )
    facts = {"method": model_args.method, "views": len(views), "masking": masking, "pooling": model_args.pooling}
    description = plan(model, args, len(corpus), facts)
    if data_args.dry_run:
        dry_run(trainer, description)
        return
    logger.info(description)
    session.train(trainer, start)
    if trainer.is_world_process_zero():
        finish(session, trainer, tokenizer, tests, data_args.data_dir)
    trainer.accelerator.wait_for_everyone()


if __name__ == "__main__":
    run_command(main)
