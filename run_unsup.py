"""Train a sentence encoder on unlabelled text: InfoCSE (stage 2), SimCSE and every method of models/objectives.

    python run_unsup.py --config configs/infocse-bert-base.yaml [--any_flag value ...]
    accelerate launch --config_file configs/accelerate/two_gpus.yaml run_unsup.py --config ...

The same command starts, resumes and, when finished, changes nothing. The best model by the dev task is kept in
OUTPUT_DIR/best and ends up in OUTPUT_DIR, which AutoModel and SentenceTransformer load.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys

from transformers import set_seed

import models.objectives
from arguments import ModelArguments, RunArguments, SentenceArguments
from assembly import build_model, finish, load_tests, make_collator, make_trainer, selection
from command_line import find_files, parse, peek
from data.corpus import load_corpus
from data.duplicates import false_negatives
from errors import BadInput, run_command
from lifecycle import Run
from models.encoder import load_tokenizer
from plan import dry_run, plan
from provenance import weights_hash
from stopping import stoppable
from trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)


def load_method(name: str | None):
    """The module of a method; BadInput with the known ones otherwise."""
    known = [module.name for module in pkgutil.iter_modules(models.objectives.__path__) if module.name != "base"]
    if name not in known:
        raise BadInput(f"--method {name}: choose one of {', '.join(known)} (or a --config that names one)")
    return importlib.import_module(f"models.objectives.{name}")


@stoppable
def main(argv: list[str] | None = None) -> None:
    """Parse, build, train, export, score."""
    argv = sys.argv[1:] if argv is None else argv
    method = load_method("infocse" if "--help" in argv else peek(argv, "method"))
    groups = parse(argv, (ModelArguments, method.Arguments, SentenceArguments, RunArguments), __doc__)
    model_args, _, data_args, args = groups
    if model_args.model_name_or_path is None:
        raise BadInput("--model_name_or_path is missing: the checkpoint to start from")
    tokenizer = load_tokenizer(model_args.model_name_or_path)
    files = find_files(data_args.train_file, data_args.data_dir)
    with args.main_process_first(desc="tokenise"):
        corpus = load_corpus(files, tokenizer, data_args.columns, data_args.cache_dir)
    dev, tests = selection(data_args), load_tests(data_args)
    identity = {"text": corpus.facts, "start": weights_hash(model_args.model_name_or_path)}
    run = Run("run_unsup.py", argv, groups, identity)
    with run.open(data_args.dry_run) as start:
        if not start.finished:
            trainer, description = build(method, groups, tokenizer, corpus, dev)
            if data_args.dry_run:
                dry_run(trainer, description)
                return
            run.train(trainer, start, description)
            if trainer.is_world_process_zero():
                finish(run, trainer, tokenizer, tests, data_args.data_dir)
            trainer.accelerator.wait_for_everyone()


def build(method, groups, tokenizer, corpus, dev) -> tuple[EmbeddingTrainer, str]:
    """Model, collator and Trainer of a method, and the plan in words."""
    model_args, method_args, data_args, args = groups
    set_seed(args.seed)
    model = build_model(method, method_args, model_args, tokenizer, args.bf16)
    collator = make_collator(method, method_args, data_args, corpus, tokenizer, model.config, args.seed)
    trainer = make_trainer(model, args, collator, tokenizer, dev, model_args.chunk_size)
    facts = {
        "method": model_args.method,
        "packed": model.encoder.packed,
        "views": len(collator.views),
        "masking": collator.masking,
        "pooling": model_args.pooling,
    }
    size = trainer.sampler.batch_size
    equal = false_negatives(corpus, args.seed, size, data_args.max_length)
    if equal:
        logger.warning("%d of %d sentences share their batch of %d with an equal one, as its negative",
                       equal, len(corpus), size)  # fmt: skip
    return trainer, plan(model, args, len(corpus), facts)


if __name__ == "__main__":
    run_command(main)
