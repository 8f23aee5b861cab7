"""The run behind `python -m adapt`: make queries, train if asked, compare, write the best."""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

import infocse
from adapt.documents import read_documents, split, with_unique_titles, write_task
from adapt.searches import AS_IT_IS, POWER, Search, SearchSet, fitted, ndcg, searches, vectors_of
from common.errors import BadInput
from common.files import digest, read_json, write_json
from common.folders import cached, facts_of, filling, refuse_existing
from common.streams import show
from eval.dev import BETTER, verdict
from eval.retrieval.beir import name_of
from eval.scores import markdown
from models.encoder import SentenceEncoder
from models.heads import Dense, Head, Normalize
from models.saved_format import read_modules
from search.recipe import Recipe
from training.config_files import read_config
from training.methods import load_method
from training.run_folder import read_run

logger = logging.getLogger(__name__)
FACTS, TRAINING = "adapt.json", "-training"
# of the prepared text; increase it when the same documents would be split or written differently
_VERSION = 8
_LONGEST = 256  # tokens of a text, for a model that states no length
Scores = Mapping[Search, np.ndarray]


def run(args: argparse.Namespace, given: Mapping[str, Any]) -> dict[str, Any]:
    """Hold out, train if asked, compare, write.

    Args:
        args: the flags of `python -m adapt`.
        given: flags for run_unsup.py, by name.

    Returns:
        The content of adapt.json; nothing after a dry run.
    """
    labels = (
        SearchSet.of(Path(args.labels), "test") if args.labels else None
    )  # a wrong folder fails before any work
    plain = read_modules(args.model) is None
    train = args.train or plain
    if not train and (unused := given.keys() - {"config", "use_cpu", "disable_tqdm"}):
        raise BadInput(
            f"--{min(unused)} is for training, and a finished model is trained only with --train"
        )
    columns = args.text_column, args.title_column
    folder = prepare(args.text, args.seed, args.cache_dir, args.language, *columns)
    if train and not (folder / "documents.jsonl").stat().st_size:
        raise BadInput(
            f"{', '.join(args.text)}: no document is left to train on; all others are near-copies "
            "of those that are held out"
        )
    asked = {
        name: getattr(args, name)
        for name in ("model", "pooling", "labels", "steps", "seed", "language")
    }
    asked |= {
        "train": train,
        "documents": folder.name,
        "given": {name: str(given[name]) for name in sorted(given)},
    }
    output = Path(args.output)
    if (output / FACTS).is_file():
        done = read_json(output / FACTS, "the verdict of adapt")
        if done.get("asked") == asked:
            facts_of(output, "remove the folder to compare again")
            show(done["said"])
            return done
    refuse_existing(output)

    start, tokenizer = infocse.load(args.model, args.pooling or ("avg" if plain else None))
    start.max_length = min(start.max_length, _LONGEST) if plain else start.max_length
    models = {False: start}
    if train:
        trained = Path(infocse.train(**settings(args, given, folder)))
        if not trained.is_dir() or int(os.environ.get("RANK", "0")):
            return {}  # a dry run, which leaves no folder, or not the main process
        models[True], _ = infocse.load(str(trained))
        models[True].max_length = start.max_length  # it was trained on shorter texts

    halves = [SearchSet.of(folder / "task", part) for part in ("dev", "test")]
    # training has seen the first half
    pseudo = halves[1] if train else halves[0].with_queries(halves[1])
    result = {"asked": asked, "model": args.model, "pseudo_queries": str(folder / "task")}
    if train:
        result["training"] = read_run(trained)["verdict"]
    with filling(output) as written:
        encoder, recipe = compare(args, models, tokenizer, pseudo, labels, result)
        encoder.cpu().save(str(written), tokenizer)
        recipe.write(written)
        write_json(written / FACTS, result)
    show(result["said"])
    return result


def compare(
    args: argparse.Namespace,
    models: Mapping[bool, SentenceEncoder],
    tokenizer: Any,
    pseudo: SearchSet,
    labels: SearchSet | None,
    result: dict[str, Any],
) -> tuple[SentenceEncoder, Recipe]:
    """The best search, as a model and how to search with it.

    Args:
        args: the flags of `python -m adapt`.
        models: by whether they were trained.
        tokenizer: of all models.
        pseudo: pseudo-queries, which decide.
        labels: judged queries, which are only reported.
        result: gets the scores and the verdict.
    """
    judged: dict[Search, np.ndarray] = {}
    real: dict[Search, np.ndarray] = {}
    layers: dict[bool, Dense | None] = {}
    for is_trained, encoder in models.items():
        vectors = vectors_of(encoder, tokenizer)
        layer = layers[is_trained] = fitted(vectors(pseudo.documents, "document"))
        if layer is None:
            logger.info("no linear layer: there are too few documents")
        compared = searches(is_trained, layer is not None)
        judged |= ndcg(pseudo, vectors, compared, {POWER: layer}, args.language)
        if labels:
            real |= ndcg(labels, vectors, compared, {POWER: layer}, args.language)
    shipped = AS_IT_IS
    for search in judged:  # cheapest first: a dearer one must be better than it
        if against(judged, search, shipped)["verdict"] == BETTER:
            shipped = search

    rows = []
    for search in judged:
        rows.append({"search": str(search), **search._asdict(), "pseudo": against(judged, search)})
        if real:
            rows[-1]["real"] = against(real, search)
    result["shipped"], result["verdict"] = str(shipped), against(judged, shipped)
    result["searches"] = rows
    if real:
        result["labels"] = against(real, shipped)
    result["said"] = f"{table(rows, args.labels)}\n\n{in_words(result, args.output)}"
    encoder = models[shipped.trained]
    if shipped.power is not None:  # behind the other layers, before a final normalisation
        dense = encoder.head.dense_layers() if encoder.head is not None else []
        last = [Normalize()] if encoder.normalizes else []
        encoder.head = Head(*dense, layers[shipped.trained], *last)
    return encoder, Recipe(shipped.weight, args.language)


def prepare(
    paths: Sequence[str | Path],
    seed: int,
    cache_dir: str,
    language: str = "english",
    text_column: str | None = None,
    title_column: str | None = None,
) -> Path:
    """The cached folder with the search task, `documents.jsonl` and `titled.jsonl`.

    The last one is written if most documents have a title of their own.

    Raises:
        BadInput: see `read_documents` and `split` of `adapt.documents`.
    """
    documents = read_documents([Path(path) for path in paths], text_column, title_column)
    key = digest([_VERSION, seed, language, documents])

    def make(folder: Path) -> None:
        parts = split(documents, seed, language)
        # A document may itself be a JSON object, which a file of plain lines must not be.
        _write(folder / "documents.jsonl", [{"text": document.text} for document in parts.training])
        titled = with_unique_titles(parts.training)
        if 2 * sum(bool(document.title) for document in titled) > len(titled):
            _write(
                folder / "titled.jsonl",
                [{"title": title if body else "", "text": body or title} for title, body in titled],
            )
        write_task(folder / "task", parts, seed)
        logger.info(
            "%d documents and passages of long ones, %d of them for pseudo-queries, %d near-copies "
            "of those",
            len(documents),
            len(parts.queries),
            parts.copies,
        )

    return cached(Path(cache_dir) / f"adapt-{key[:24]}", make)


def _write(path: Path, records: Sequence[Mapping[str, str]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def settings(args: argparse.Namespace, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings of the training: those that are given, and what adapt adds.

    Args:
        args: the flags of `python -m adapt`.
        given: flags for run_unsup.py with a `config`; what they or its file set keeps its value.
        folder: see `prepare`.
    """
    values: dict[str, Any] = {
        "model_name_or_path": args.model,
        "train_file": folder / "documents.jsonl",
        "columns": 1,
        "dev": "stsb",  # overrides `dev: none` of a configuration; `dev_beir` takes its place
        "dev_beir": folder / "task",
        "output_dir": f"{args.output.rstrip('/')}{TRAINING}",
        "cache_dir": args.cache_dir,
        "seed": args.seed,
        "pooling": args.pooling or _pooling(args.model),
    }
    file = read_config(*given["config"])
    named = given.keys() | file.keys()
    defaults: dict[str, Any] = {"test_tasks": ["none"]}  # also beside another --config
    method = load_method(given.get("method") or file.get("method"))
    if (
        "title_share" in {field.name for field in fields(method.arguments)}
        and (folder / "titled.jsonl").exists()
    ):
        values |= {
            "train_file": folder / "titled.jsonl",
            "title_column": "title",
            "text_column": "text",
        }
        defaults["title_share"] = 0.5
    if args.steps:
        half = max(1, args.steps // 2)
        values |= {"max_steps": args.steps, "eval_steps": half, "save_steps": half}
    return values | {name: value for name, value in defaults.items() if name not in named} | given


def _pooling(model: str) -> str:
    """The model's own pooling; the mean of the tokens if it defines none.

    Raises:
        BadInput: the model has layers after its pooling, which training would leave out.
    """
    described = read_modules(model)
    if described is None:
        return "avg"
    if others := [
        type(module).__name__ for module in described.head if not isinstance(module, Normalize)
    ]:
        raise BadInput(
            f"'{model}' has a module {others[0]}, which training would drop; leave out --train, or "
            "give "
            "--pooling to start from its backbone alone"
        )
    return described.pooling


def against(scores: Scores, search: Search, other: Search = AS_IT_IS) -> dict[str, Any]:
    """A search against another one, see `eval.dev.verdict`."""
    return verdict({"value": scores[other]}, {"value": scores[search]})


def table(rows: Sequence[Mapping[str, Any]], labels: str | None) -> str:
    """Score and gain of every search on pseudo-queries and on real ones."""
    sides = {"pseudo": "pseudo-queries"} | (
        {"real": f"real queries of {name_of(Path(labels))}"} if labels else {}
    )
    body = [
        ["search", *(cell for name in sides.values() for cell in (name, "gain (95 % interval)"))]
    ]
    for row in rows:
        cells = ((f"{row[side]['result']:.2f}", gain(row[side])) for side in sides)
        body.append([row["search"], *(cell for pair in cells for cell in pair)])
    return markdown(body)


def gain(facts: Mapping[str, Any]) -> str:
    low, high = facts["interval"]
    return f"{facts['difference']:+.2f} ({low:+.2f} to {high:+.2f})"


def in_words(result: Mapping[str, Any], output: str) -> str:
    """What was written and why."""
    facts, count = result["verdict"], f"{result['verdict']['examples']} pseudo-queries"
    if result["shipped"] == str(AS_IT_IS):
        return f"{output}: the model as it is. No other search is better on {count}."
    return (
        f"{output}: {result['shipped']}. On {count} it is better than the model as it is: nDCG@10 "
        f"{facts['start']:.2f} -> {facts['result']:.2f}, gain {gain(facts)}."
    )
