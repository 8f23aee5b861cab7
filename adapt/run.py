"""The run behind `python -m adapt`: prepare the text, train, judge on real queries, write adapt.json."""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

import run_unsup
from adapt import CONFIG
from adapt.documents import Document, read_documents, split, with_unique_titles, write_task
from common.errors import BadInput
from common.files import digest, find_files, read_json, write_json
from common.streams import show
from data.cache import cached
from data.source import Source
from eval.compare.intervals import Items
from eval.dev import DevSet, in_words, search_set
from eval.encode import Encode, device_here
from models.encoder import SentenceEncoder, load_encoder
from models.saved_format import read_modules
from training.checkpoint import BEST
from training.folder import read_run
from training.methods import load_method
from training.result import initial_encoder
from training.settings import lookup, read_config

logger = logging.getLogger(__name__)
_VERSION = 6  # of the prepared text; increase it when the same documents would be split or written differently


def run(args: argparse.Namespace, given: Mapping[str, Any]) -> dict[str, Any]:
    """Hold out, train, mix, judge, write.

    Args:
        args: the flags of `python -m adapt`.
        given: flags for run_unsup.py, by name.

    Returns:
        The content of adapt.json.
    """
    labels = search_set(args.labels, ["test"]) if args.labels else None  # a wrong folder fails before the training
    files = find_files(args.text, ".", (args.cache_dir, args.output))
    folder = prepare(files, args.seed, args.cache_dir, args.text_column, args.title_column)
    trained = run_unsup.train(**settings(args, given, folder))
    if not Path(trained).is_dir() or int(os.environ.get("RANK", "0")):
        return {}  # a dry run, which leaves no folder, or not the main process
    record = read_run(Path(args.output))
    file = Path(args.output) / "adapt.json"
    verdict = {"model": args.model, "pseudo_queries": str(folder / "task"), "steps": record["steps"],
               "seed": args.seed, **record["verdict"]}  # fmt: skip
    before = read_json(file, "the verdict of adapt") if file.is_file() else {}
    if verdict.items() <= before.items():  # the same result, possibly with scores on labels
        verdict = before
    lines = [f"{args.output}: {in_words(record['verdict'])}"]
    if labels:
        logger.info("scoring start and result on the queries of %s", args.labels)
        verdict["labels"] = on_labels(args, labels, verdict)
    if scored := verdict.get("labels"):
        lines.append(f"{scored['set']}, real queries: {in_words(scored | {'shipped': verdict['shipped']})}")
    verdict |= {"run_id": record["run_id"], "said": "\n".join(lines)}
    write_json(file, verdict)
    show(verdict["said"], args.output)
    return verdict


def prepare(files: Sequence[Path], seed: int, cache_dir: str, *columns: str | None) -> Path:
    """The cached folder with the search task, `documents.jsonl` and, for titled documents, `titled.jsonl`.

    Raises:
        BadInput: see `read_documents` and `split` of `adapt.documents`.
    """
    sources = [Source((path,)) for path in files]
    key = digest([_VERSION, seed, columns, [source.key() for source in sources]])

    def make(part: Path) -> None:
        documents = read_documents(files, cache_dir, *columns)
        for source in sources:
            source.check_unchanged()
        _fill(part, documents, seed)

    return cached(Path(cache_dir) / f"adapt-{key[:24]}", make)


def _fill(folder: Path, documents: Sequence[Document], seed: int) -> None:
    parts = split(documents, seed)
    # A document may itself be a JSON object, which a file of plain lines must not be.
    _write(folder / "documents.jsonl", (json.dumps({"text": document.text}) for document in parts.training))
    titled = with_unique_titles(parts.training)
    if 2 * sum(bool(document.title) for document in titled) > len(titled):
        _write(folder / "titled.jsonl", map(_titled, titled))
    write_task(folder / "task", parts, seed)
    logger.info("%d documents to train on, %d for pseudo-queries, %d near-copies of those dropped", len(parts.training),
                len(parts.queries), parts.copies)  # fmt: skip


def _titled(document: Document) -> str:
    """Title, which may be empty, and text; a title without a text is the text."""
    return json.dumps({"title": document.title if document.body else "", "text": document.body or document.title})


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def settings(args: argparse.Namespace, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings of the run: those that are given, and what adapt adds.

    Args:
        args: the flags of `python -m adapt`.
        given: flags for run_unsup.py with a `config`; what they or its file set keeps its value.
        folder: see `prepare`.
    """
    own: dict[str, Any] = {
        "model_name_or_path": args.model,
        "train_file": folder / "documents.jsonl",
        "columns": 1,
        "dev": "stsb",  # overrides `dev: none` of a configuration; `dev_beir` takes its place
        "dev_beir": folder / "task",
        "output_dir": args.output,
        "cache_dir": args.cache_dir,
        "seed": args.seed,
    }
    ours = read_config(str(CONFIG))  # also beside another --config
    defaults = {name: ours[name] for name in ("start_shares", "keep_start", "least_gain", "test_tasks")}
    method = load_method(lookup(given, "method"))
    named = {*given}
    if "title_share" in {field.name for field in fields(method.arguments)} and (folder / "titled.jsonl").exists():
        own |= {"train_file": folder / "titled.jsonl", "title_column": "title", "text_column": "text"}
        defaults["title_share"] = 0.5
    elif "title_share" in named:
        raise BadInput("--title_share: most documents have no title of their own; leave it out")
    if args.steps:
        half = max(1, args.steps // 2)
        steps = {"max_steps": args.steps, "eval_steps": half, "save_steps": half}
        own |= {name: value for name, value in steps.items() if name not in named}
    named |= read_config(lookup(given, "config")).keys()
    if "pooling" not in named:
        defaults["pooling"] = _pooling(args.model)
    added = own | {name: value for name, value in defaults.items() if name not in named}
    return added | given


def _pooling(model: str) -> str:
    """The model's own pooling; the mean of the tokens if it defines none.

    Raises:
        BadInput: the model has other modules, so the verdict would not apply to it as published.
    """
    described = read_modules(model)
    if described is None:
        return "avg"
    head = [type(module).__name__ for module in described.head]
    unsupported = [f"a module {name}" for name in head if name != "Normalize"]  # a cosine ignores the length
    if unsupported:
        raise BadInput(f"'{model}' has {unsupported[0]}, which adapt does not support; give another model, or "
                       "--pooling to start from its backbone alone")  # fmt: skip
    return described.pooling


def on_labels(args: argparse.Namespace, labels: DevSet, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Start against result on real queries, with the names of metric and set; the result even if the start was kept."""
    run, kept = read_run(Path(args.output)), verdict["shipped"] == "start"
    settings = run["settings"]
    result, tokenizer = load_encoder(str(Path(args.output) / BEST) if kept else args.output)
    start = initial_encoder(settings, result)
    device = "cpu" if settings["use_cpu"] else device_here()

    def items(model: SentenceEncoder) -> Items:
        return labels.items(Encode(model.to(device), tokenizer, bf16=settings["bf16"]))

    share, before = verdict.get("start_share"), _of_start(args, labels, run, start, items)
    if share == 1:  # the start itself
        after = before
    else:
        after = items(result.mixed_with(start, share) if kept and share else result)
    return {"metric": labels.metric, "set": Path(args.labels).name, **labels.verdict(before, after), "apart": True}


def _of_start(
    args: argparse.Namespace,
    labels: DevSet,
    run: Mapping[str, Any],
    start: SentenceEncoder,
    items: Callable[[SentenceEncoder], Items],
) -> Items:
    """The start's scores on real queries; those of a local model are cached, since runs with other flags share it."""
    files = run["trajectory"]["contents"].get("model_name_or_path")
    if not files:
        return items(start)
    settings = [run["settings"][name] for name in ("pooling", "bidirectional", "packed", "bf16", "use_cpu")]
    key = digest(
        [
            files,
            labels.content,
            settings,
            start.max_length,
            start.place,
            start.prompts,
            run["hardware"],
            run["versions"],
        ]
    )
    folder = cached(Path(args.cache_dir) / f"judged-{key[:24]}",
                    lambda part: np.savez(part / "items.npz", **items(start)))  # fmt: skip
    with np.load(folder / "items.npz", allow_pickle=False) as found:
        return dict(found)
