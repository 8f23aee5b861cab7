"""The command `python -m adapt`, and its Python function."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Mapping
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from adapt import CONFIG
from adapt.run import run
from common.errors import BadInput
from common.flags import Parser, positive, refuse_repeated, underscored
from common.ranges import Seed, check_range
from data.given import joined, keep, with_text
from training.methods import UNSUP, load_method
from training.settings import SettingsParser, fill, lookup, read_config, values_of, words_of

DESCRIPTION = """Adapt a model to search in your own documents.

Some documents are held out and turned into pseudo-queries, the model is trained on the rest, and its weights may be
averaged with the start's. Half of the pseudo-queries choose the weights, the other half compare them with the start.
DIR is an ordinary run. It contains the unchanged start unless the gain is clear (--least_gain). DIR/adapt.json has the
verdict.
"""
_OWN = {"train_file", "dataset_name", "columns", "model_name_or_path", "output_dir", "dev", "dev_file", "dev_beir"}


def parser() -> Parser:
    """The command line of `python -m adapt`."""
    p = Parser(
        prog="python -m adapt",
        description=DESCRIPTION,
        epilog="Other flags are those of run_unsup.py (python run_unsup.py --method spans --help_all), such as\n"
        "--dry_run, --pooling avg, --learning_rate 1e-5 or --method tsdae. configs/adapt.yaml has their defaults.\n\n"
        "example:\n  python -m adapt sentence-transformers/all-MiniLM-L6-v2 --text corpus.jsonl --output runs/mine",
    )
    p.add_argument("model", metavar="MODEL", help="start model: an encoder, a run, or a hub id")
    p.add_argument("--text", nargs="+", required=True, metavar="FILE", help="documents: files or folders with one "
                   "document per line, or tables with a column `text` and optionally `title`, such as BEIR's "
                   "corpus.jsonl")  # fmt: skip
    p.add_argument("--text_column", help="text column of tables (default: text)")
    p.add_argument("--title_column", help="title column of tables (default: title, if there is one)")
    p.add_argument("--output", required=True, metavar="DIR", help="the run folder; the same command resumes")
    p.add_argument("--labels", metavar="FOLDER", help="BEIR set with real queries, only scored at the end")
    p.add_argument("--steps", type=positive, help=f"training steps (default: {read_config(str(CONFIG))['max_steps']})")
    p.add_argument("--seed", type=int, default=42, help="seed of the held-out documents and of training")
    p.add_argument("--cache_dir", default="corpora/cache", help="folder for the prepared text")
    return p


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Hold out, train, mix, judge, write; returns the content of adapt.json."""
    return run(*checked(argv))


def checked(argv: list[str] | None) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Flags of adapt, and those for run_unsup.py by name, among them a configuration.

    Raises:
        BadInput: a wrong flag.
    """
    argv = sys.argv[1:] if argv is None else argv
    refuse_repeated(argv)
    flags = parser()
    _, words = flags.parse_known_args(argv)
    given: dict[str, Any] = values_of(words)
    file = lookup(given, "config")
    config = read_config(file) if file else {}
    flags.set_defaults(**{name: config[name] for name in ("seed", "cache_dir") if name in config})
    args, _ = flags.parse_known_args(argv)
    _refuse_misplaced(args, underscored(argv), words)
    if excluded := {"dev_file", "dataset_name"} & config.keys():
        raise BadInput(f"{file}: '{min(excluded)}' excludes what adapt sets itself; use a copy without it")
    given.setdefault("config", str(CONFIG))
    _refuse_names(args, given)
    fill(UNSUP, given | {"model_name_or_path": args.model, "output_dir": args.output})  # before the slow preparation
    return args, given


def _refuse_misplaced(args: argparse.Namespace, argv: list[str], words: list[str]) -> None:
    check_range("seed", args.seed, Seed)
    before = argv[argv.index(args.model) - 1] if args.model in argv[1:] else ""
    if before.startswith("--") and before in words:
        raise BadInput(f"{before} {args.model}: MODEL comes first: python -m adapt MODEL --text ...")


def _refuse_names(args: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """Refuse flags for run_unsup.py that adapt sets itself or that are misspelt ones of adapt."""
    if args.steps and (same := {"max_steps", "num_train_epochs"} & given.keys()):
        raise BadInput(f"--steps and --{min(same)} mean the same; give one")
    if reserved := _OWN & given.keys():
        raise BadInput(f"--{min(reserved)}: set by adapt itself; use python run_unsup.py to choose it")
    known = SettingsParser(UNSUP, load_method(lookup(given, "method"), UNSUP)).names
    for name in given.keys() - known - {"config"}:
        if near := difflib.get_close_matches(name, vars(args), n=1, cutoff=0.75):
            raise BadInput(f"unknown argument '--{name}'; did you mean '--{near[0]}'?")


def adapt(
    text: str | PathLike | Iterable[str], model: str | PathLike, output_dir: str | PathLike, **settings: Any
) -> dict[str, Any]:
    """The command as a function.

    Args:
        text: documents; a `datasets.Dataset` with a column `text` and optionally `title`; or the path of a file or
            folder.
        model: the model to start from.
        output_dir: the run's folder.
        settings: any flag of `python -m adapt` and of run_unsup.py by name.

    Returns:
        The content of adapt.json.

    Raises:
        ProjectError: any error that the command would print as one line.
    """
    named = joined({"output": output_dir}, settings)
    if hasattr(text, "to_parquet"):  # the command reads its columns
        content = BytesIO()
        text.to_parquet(content)
        cache = Path(named.get("cache_dir") or parser().get_default("cache_dir"))
        text = keep(content.getvalue(), cache / "documents.parquet")
    values = with_text(text, named)
    if "columns" in values.keys() - named.keys():
        raise BadInput("documents of several parts: give each as one text or, with titles, a Dataset with the columns "
                       "title and text")  # fmt: skip
    values["text"] = values.pop("train_file")
    return main([fspath(model), *words_of({name: value for name, value in values.items() if value is not None})])
