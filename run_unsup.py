"""Train a sentence encoder on unlabelled text: InfoCSE (stage 2), SimCSE and every method of models/objectives.

    python run_unsup.py --config configs/infocse-bert-base.yaml [--any_flag value ...]
    accelerate launch --config_file configs/accelerate/two_gpus.yaml run_unsup.py --config ...

The same command starts, resumes and, when finished, changes nothing. The best model by the dev task is kept in
OUTPUT_DIR/best and ends up in OUTPUT_DIR, which AutoModel and SentenceTransformer load.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

from transformers import set_seed

import models.objectives
from arguments import ModelArguments, RunArguments, SentenceArguments
from assembly import build_model, finish, load_tests, make_collator, make_trainer, selection
from command_line import find_files, parse, peek
from data.corpus import load_corpus
from errors import BadInput, run_command
from lifecycle import Run, dry_run, plan, weights_hash
from models.encoder import load_tokenizer


def load_method(name: str | None):
    """The module of a method; BadInput with the known ones otherwise."""
    known = [module.name for module in pkgutil.iter_modules(models.objectives.__path__) if module.name != "base"]
    if name not in known:
        raise BadInput(f"--method {name}: choose one of {', '.join(known)} (or a --config that names one)")
    return importlib.import_module(f"models.objectives.{name}")


def main(argv: list[str] | None = None) -> None:
    """Parse, build, train, export, score."""
    argv = sys.argv[1:] if argv is None else argv
    method = load_method("infocse" if "--help" in argv else peek(argv, "method"))
    groups = parse(argv, (ModelArguments, method.Arguments, SentenceArguments, RunArguments), __doc__)
    model_args, method_args, data_args, args = groups
    if model_args.model_name_or_path is None:
        raise BadInput("--model_name_or_path is missing: the checkpoint to start from")
    tokenizer = load_tokenizer(model_args.model_name_or_path)
    files = find_files(data_args.train_file, data_args.data_dir)
    with args.main_process_first(desc="tokenise"):
        corpus = load_corpus(files, tokenizer, data_args.columns, data_args.cache_dir)
    dev, tests = selection(data_args), load_tests(data_args)
    identity = {"text": corpus.facts, "start": weights_hash(model_args.model_name_or_path)}
    run = Run("run_unsup.py", argv, groups, identity)
    start = run.open(data_args.dry_run)
    if start.finished:
        return
    set_seed(args.seed)
    model = build_model(method, method_args, model_args, tokenizer, args.bf16)
    collator = make_collator(method, method_args, data_args, corpus, tokenizer, model.config, args.seed)
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
    run.train(trainer, start, description)
    if trainer.is_world_process_zero():
        finish(run, trainer, tokenizer, tests, data_args.data_dir)
    trainer.accelerator.wait_for_everyone()


if __name__ == "__main__":
    run_command(main)
