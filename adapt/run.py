"""The run of `python -m adapt`: prepared text, the training's flags, the verdict on real queries, adapt.json."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

import run_unsup
from adapt.documents import read_documents
from adapt.held_out import Document, split, write_task
from common.command_line import peek
from common.errors import BadInput
from common.files import digest, find_files, read_json, write_json
from common.streams import show
from data.cache import cached
from data.source import Source
from eval.dev import in_words, search_set
from eval.encode import Encode
from models.encoder import load_encoder
from models.loading import load_config
from models.saved_format import read_modules
from training.record import read_run
from training.registry import load_method

logger = logging.getLogger(__name__)
_VERSION = 3  # of the prepared text: raise it when the same documents would give another split


def run(
    args: argparse.Namespace, config: Sequence[str], others: Sequence[str], inputs: str | None = None
) -> dict[str, Any]:
    """Hold out, train, mix, judge, write.

    Args:
        args: the flags of `python -m adapt`.
        config: `--config FILE`, as words; empty where `others` names one.
        others: flags for run_unsup.py.
        inputs: what the command is known by when it is given again.

    Returns:
        What adapt.json holds.
    """
    files = find_files(args.text, ".", (args.cache_dir, args.output))
    folder = prepare(files, args.seed, args.cache_dir, args.text_column, args.title_column)
    trained = run_unsup.main([*config, *flags(args, [*config, *others], folder), *others])
    if not Path(trained).is_dir() or int(os.environ.get("RANK", "0")):
        return {}  # a dry run, whose folder is gone, or a process beside the main one
    record = read_run(Path(args.output))
    place = Path(args.output) / "adapt.json"
    found = {"model": args.model, "pseudo_queries": str(folder / "task"), "steps": record["steps"],
             "seed": args.seed, **record["verdict"]}  # fmt: skip
    before = read_json(place, "the verdict of adapt") if place.is_file() else {}
    if found.items() <= before.items():  # the same result, perhaps with scores on labels
        found = before
    if args.labels:
        found["labels"] = on_labels(args)
    said = "\n".join([f"{args.output}: {in_words(record['verdict'])}", *_said(found)])
    found |= {"inputs": inputs, "run_id": record["run_id"], "said": said}
    write_json(place, found)
    show(said, args.output)
    return found


def _said(found: dict[str, Any]) -> list[str]:
    if "labels" not in found:
        return []
    return [f"{found['labels']['set']}, real queries: {in_words(found['labels'] | {'shipped': found['shipped']})}"]


def prepare(files: Sequence[Path], seed: int, cache_dir: str, *columns: str | None) -> Path:
    """A folder with the search task, `documents.txt` and, for titled ones, `documents.tsv`; made once a text and seed.

    Raises:
        BadInput: as `adapt.documents.read_documents`; too few documents, see `adapt.held_out.split`.
    """
    key = digest([_VERSION, seed, columns, [Source((path,)).key() for path in files]])
    return cached(Path(cache_dir) / f"adapt-{key[:24]}",
                  lambda part: _fill(part, read_documents(files, cache_dir, *columns), seed))  # fmt: skip


def _fill(folder: Path, documents: Sequence[Document], seed: int) -> None:
    found = split(documents, seed)
    _write(folder / "documents.txt", (document.text for document in found.training))
    if 2 * sum(bool(document.title) for document in found.training) > len(found.training):
        _write(folder / "documents.tsv", map(_columns, found.training))
    write_task(folder / "task", found, seed)
    logger.info("%d documents to train on, %d held out, %d near-copies of those left out", len(found.training),
                len(found.queries), found.copies)  # fmt: skip


def _columns(document: Document) -> str:
    """Title and body; a document that has only one of them has it as both."""
    return f"{document.title or document.body}\t{document.body or document.title}"


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def flags(args: argparse.Namespace, given: Sequence[str], folder: Path) -> list[str]:
    """The flags of run_unsup.py that are not among the given ones."""
    own: dict[str, Any] = {
        "model_name_or_path": args.model,
        "train_file": folder / "documents.txt",
        "dev_beir": folder / "task",
        "output_dir": args.output,
        "cache_dir": args.cache_dir,
        "seed": args.seed,
        "start_shares": 0.5,
        "keep_start": "true",
        "test_tasks": "none",
    }
    method = load_method(peek(given, "method"))
    if "title_share" in {field.name for field in fields(method.arguments)} and (folder / "documents.tsv").exists():
        own |= {"train_file": folder / "documents.tsv", "columns": 2, "title_share": 0.5}
    if args.steps:
        own |= {"max_steps": args.steps, "eval_steps": max(1, args.steps // 2), "save_steps": max(1, args.steps // 2)}
    names = {word[2:].split("=")[0] for word in given if word.startswith("--")}
    if "pooling" not in names:
        own["pooling"] = _pooling(args.model)
    return [f"--{name}={value}" for name, value in own.items() if name not in names]


def _pooling(model: str) -> str:
    """How the model says it is pooled; the mean of the tokens for one that says nothing.

    Raises:
        BadInput: more than a pooling makes its vectors, so the verdict would be on another model than people use.
    """
    described = read_modules(model, load_config(model))
    if described is None:
        return "avg"
    head = [type(module).__name__ for module in described.head]
    more = [f"a module {name}" for name in head if name != "Normalize"]  # a cosine does not see the length
    more += [f"the prompt '{prompt}' for a {name}" for name, prompt in described.prompts.items() if prompt]
    if more:
        raise BadInput(f"'{model}' has {more[0]}, which adapt can neither train nor judge; give another model, or "
                       "--pooling to start from its backbone alone")  # fmt: skip
    return described.pooling


def on_labels(args: argparse.Namespace) -> dict[str, Any]:
    """Start against result on real queries, with the metric's name and the set's."""
    found = search_set(args.labels, ["test"])
    settings = read_run(Path(args.output))["settings"]
    start, tokenizer = load_encoder(args.model, settings["pooling"])
    result, _ = load_encoder(args.output)
    start.max_length = result.max_length
    device = "cuda" if torch.cuda.is_available() and not settings["use_cpu"] else "cpu"
    encoders = (Encode(one.to(device), tokenizer, one.max_length, settings["bf16"]) for one in (start, result))
    items = [found.items(encode) for encode in encoders]
    return {"metric": found.metric, "set": Path(args.labels).name, **found.verdict(*items), "apart": True}
