"""`python -m adapt MODEL --text FILE ... --output DIR`: better search in your own documents, or the start as it was.

Some documents are held out and turned into pseudo-queries. The model is trained on the others; its weights are mixed
with the start's; half of the pseudo-queries choose the mixture, the other half judge it. DIR is a run like any other:
where the result is not better beyond chance it holds the start. DIR/adapt.json has the verdict.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from common.errors import run_command

# isort: split

import run_unsup
from adapt.documents import read_documents
from adapt.held_out import Document, split, write_task
from common.command_line import peek
from common.files import digest, write_json, writing_folder
from common.flags import Parser, positive
from common.streams import show
from eval.dev import in_words, search_set
from eval.encode import Encode
from models.encoder import load_encoder
from models.loading import load_config
from models.saved_format import read_modules
from training.record import read_run
from training.registry import load_method

logger = logging.getLogger(__name__)
CONFIG = Path(__file__).parents[1] / "configs" / "adapt.yaml"
_VERSION = 1  # of the prepared text: raise it when the same documents would give another split


def parser() -> Parser:
    """The command line of `python -m adapt`."""
    p = Parser(
        prog="python -m adapt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog="Every other flag goes to run_unsup.py and wins over configs/adapt.yaml, such as --learning_rate 1e-5, "
        "--method tsdae or\n--per_device_train_batch_size 32.\n\n"
        "example:\n  python -m adapt sentence-transformers/all-MiniLM-L6-v2 --text docs/ --output runs/my-search",
    )
    p.add_argument("model", metavar="MODEL", help="where to start: an encoder, a run, or a hub id")
    p.add_argument("--text", nargs="+", required=True, metavar="FILE", help="documents: files or folders, one document "
                   "a line; a BEIR corpus.jsonl has titles too")  # fmt: skip
    p.add_argument("--output", required=True, metavar="DIR", help="the run; the same command resumes it")
    p.add_argument(
        "--labels", metavar="FOLDER", help="a BEIR set with real queries, scored at the end; chooses nothing"
    )
    p.add_argument("--steps", type=positive, help="of training (default: configs/adapt.yaml)")
    p.add_argument("--seed", type=int, default=42, help="of the held-out documents and of the training")
    p.add_argument("--cache_dir", default="corpora/cache", help="where the prepared text goes")
    return p


def prepare(documents: Sequence[Document], seed: int, cache_dir: str) -> Path:
    """A folder with the search task, `documents.txt` and, for titled ones, `documents.tsv`; made once a text and seed.

    Raises:
        BadInput: too few documents, see `adapt.held_out.split`.
    """
    folder = Path(cache_dir) / f"adapt-{digest([_VERSION, seed, documents])[:24]}"
    if folder.is_dir():
        return folder
    found = split(documents, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    titled = 2 * sum(bool(document.title) for document in found.training) > len(found.training)
    with writing_folder(folder) as part:
        _write(part / "documents.txt", (document.text for document in found.training))
        if titled:
            _write(part / "documents.tsv", map(_columns, found.training))
        write_task(part / "task", found, seed)
    logger.info("%d documents to train on, %d held out, %d near-copies of those left out", len(found.training),
                len(found.queries), found.copies)  # fmt: skip
    return folder


def _columns(document: Document) -> str:
    """Title and body; a document that has only one of them has it as both."""
    return f"{document.title or document.body}\t{document.body or document.title}"


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def flags(args: argparse.Namespace, others: Sequence[str], folder: Path) -> list[str]:
    """The command line of run_unsup.py."""
    own: dict[str, Any] = {
        "config": CONFIG,
        "model_name_or_path": args.model,
        "train_file": folder / "documents.txt",
        "dev_beir": folder / "task",
        "output_dir": args.output,
        "cache_dir": args.cache_dir,
        "seed": args.seed,
        "pooling": _pooling(args.model),
    }
    given = {word[2:].split("=")[0] for word in others if word.startswith("--")}
    config = [] if "config" in given else [f"--config={CONFIG}"]
    method = load_method(peek([*config, *others], "method"))
    if "title_share" in {field.name for field in fields(method.arguments)} and (folder / "documents.tsv").exists():
        own |= {"train_file": folder / "documents.tsv", "columns": 2, "title_share": 0.5}
    if args.steps:
        own |= {"max_steps": args.steps, "eval_steps": max(1, args.steps // 2), "save_steps": max(1, args.steps // 2)}
    return [f"--{name}={value}" for name, value in own.items() if name not in given] + [*others]


def _pooling(model: str) -> str:
    """How the model says it is pooled; the mean of the tokens for one that says nothing."""
    described = read_modules(model, load_config(model))
    return described.pooling if described else "avg"


def on_labels(args: argparse.Namespace) -> dict[str, Any]:
    """Start against result on real queries, with the metric's name and the set's."""
    found = search_set(args.labels, ["test"])
    settings = read_run(Path(args.output))["settings"]
    start, tokenizer = load_encoder(args.model, settings["pooling"])
    result, _ = load_encoder(args.output)
    start.max_length = result.max_length
    items = [found.items(Encode(one, tokenizer, one.max_length, settings["bf16"])) for one in (start, result)]
    return {"metric": found.metric, "set": Path(args.labels).name, **found.verdict(*items)}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Hold out, train, mix, judge, write; returns what adapt.json holds."""
    args, others = parser().parse_known_args(argv)
    folder = prepare(read_documents(args.text), args.seed, args.cache_dir)
    run_unsup.main(flags(args, others, folder))
    record = read_run(Path(args.output))
    found = {"model": args.model, "pseudo_queries": str(folder / "task"), "steps": record["steps"],
             "seed": args.seed, **record["verdict"]}  # fmt: skip
    if args.labels:
        found["labels"] = on_labels(args)
    write_json(Path(args.output) / "adapt.json", found)
    show("\n".join([f"{args.output}: {in_words(record['verdict'])}", *_said(found)]), args.output)
    return found


def _said(found: dict[str, Any]) -> list[str]:
    if "labels" not in found:
        return []
    return [f"{found['labels']['set']}, real queries: {in_words(found['labels'] | {'shipped': found['shipped']})}"]


if __name__ == "__main__":
    run_command(main)
